import json

import pytest

from tests.ops.cli.terminal import ANSI, COLOUR, CTRL_C, terminal

HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"


def closing_lines(output):
    """What stays on the screen after the bars are gone."""
    text = ANSI.sub("", output[output.rindex(SHOW) :]).replace("\r", "")
    return [line.rstrip() for line in text.splitlines() if line.strip()]


@pytest.mark.parametrize(
    ("engine", "columns"),
    [
        ("sqlite", 60),
        pytest.param("sqlite", 80, marks=pytest.mark.slow),
        pytest.param("sqlite", 120, marks=pytest.mark.slow),
        ("dynamodb", 80),
    ],
)
def test_on_a_terminal_bars_move_and_a_table_stays(empty_url, columns):
    args = ("demo", "--seconds", "0.6", "--url", empty_url)
    with terminal(*args, columns=columns) as screen:
        assert screen.wait() == 0
    assert HIDE in screen.output
    bars = ANSI.sub("", screen.output[: screen.output.rindex(SHOW)])
    assert "━━" in bars
    assert "of 0.6 s" in bars
    assert COLOUR.search(screen.output)
    lines = closing_lines(screen.output)
    assert lines[0].startswith("entity")
    assert lines[2].startswith("acme")
    assert any(line.startswith("invariant holds") for line in lines)
    assert all(len(line) <= columns for line in lines)
    assert "…" not in "".join(lines)


def test_more_tenants_than_lines_leave_out_the_keys():
    with terminal("demo", "--seconds", "0.5", "--tenants", "9", lines=24) as screen:
        assert screen.wait() == 0
    bars = ANSI.sub("", screen.output[: screen.output.rindex(SHOW)])
    assert "tenant-9" in bars
    assert "(18 rows hidden)" in bars
    assert "└ batch" not in bars


def test_no_color_is_respected():
    with terminal("demo", "--seconds", "0.5", "--tenants", "1", NO_COLOR=1) as screen:
        assert screen.wait() == 0
    assert "━━" in screen.output
    assert not COLOUR.search(screen.output)


def test_a_dumb_terminal_gets_lines():
    with terminal("demo", "--seconds", "1", "--tenants", "1", TERM="dumb") as screen:
        assert screen.wait() == 0
    assert "\x1b" not in screen.output
    assert "1.0 s" in screen.output


def test_ctrl_c_gives_the_terminal_back(tmp_path):
    with terminal("demo", "--seconds", "30", TMPDIR=tmp_path) as screen:
        screen.read_until("acquires/s")
        screen.press(CTRL_C)
        assert screen.wait() == 130
    assert screen.output.rindex(SHOW) > screen.output.rindex(HIDE)
    (line,) = closing_lines(screen.output)
    assert line.removeprefix("^C").startswith("interrupted after ")
    assert len(line) <= 80
    assert "Traceback" not in screen.output
    assert list(tmp_path.iterdir()) == []


def test_json_comes_after_the_bars():
    with terminal("demo", "--seconds", "0.5", "--output", "json") as screen:
        assert screen.wait() == 0
    assert "━━" in screen.output
    text = "\n".join(closing_lines(screen.output))
    assert json.loads(text)["invariant"]["holds"] is True
