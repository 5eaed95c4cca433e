"""Draw the pictures of the documents: terminals with the output of real commands, and a bucket.

``python -m tools.pictures`` writes ``docs/pictures``, ``--check`` compares. Commands run in this
process on a SQLite file, at a fixed time, so that the same sources make the same pictures; the demo
alone is real traffic in real time, and is not compared.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from zae_limiter import Limit, SyncRateLimiter, SyncRepository, SyncRepositoryBuilder

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "pictures"
WIDTH = 100  # columns of a terminal in a picture, which a page shows without scrolling
NOW_MS = 1_767_258_930_000  # 2026-01-01 09:15:30 UTC, in every picture
DEMO = "demo"
MANIFEST = """\
system:
  limits:
    rpm: {capacity: 120}
resources:
  gpt-4:
    limits:
      rpd: 24/day
      tpd: 100000/day:150000
  claude:
    limits:
      rpm: {capacity: 30}
entities:
  key-9:
    parent: project-1
    cascade: true
"""
COMMANDS = {
    "explain": ["explain", "key-7", "gpt-4", "-c", "rpd=1"],
    "bucket-list": ["bucket", "list", "--sort", "wait"],
    "plan": ["limits", "plan", "-f", "limits.yaml"],
    DEMO: ["demo", "--seconds", "3"],
}
# rich's form without its web fonts: a page must load nothing from elsewhere.
SVG = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: {char_height}px; line-height: {line_height}px; white-space: pre }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def pictures(*, demo: bool) -> Iterator[tuple[str, str]]:
    """Yield the file name and content of each picture."""
    yield "bucket.svg", bucket_picture()
    for name, args in COMMANDS.items():
        if demo or name != DEMO:
            clock = contextlib.nullcontext() if name == DEMO else fixed_time()
            with in_store(clock):
                yield f"{name}.svg", terminal(name, args)


@contextlib.contextmanager
def fixed_time() -> Iterator[None]:
    """Open every repository of this process at the same moment."""
    build = SyncRepositoryBuilder.build

    def build_at_fixed_time(self: SyncRepositoryBuilder) -> SyncRepository:
        return build(self.clock(lambda: NOW_MS))

    setattr(SyncRepositoryBuilder, build.__name__, build_at_fixed_time)
    try:
        yield
    finally:
        setattr(SyncRepositoryBuilder, build.__name__, build)


@contextlib.contextmanager
def in_store(clock: contextlib.AbstractContextManager[None]) -> Iterator[None]:
    """Run the block in a temporary folder with a store that has a little of everything."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), clock:
        Path("limits.yaml").write_text(MANIFEST, encoding="utf-8")
        with SyncRepository.builder().url("sqlite:///limits.db").build() as repository:
            fill(SyncRateLimiter(repository=repository))
        yield


def fill(limiter: SyncRateLimiter) -> None:
    limiter.set_system_defaults([Limit.per_minute("rpm", 60)])
    daily = [Limit.per_day("rpd", 24), Limit.per_day("tpd", 100_000, burst=150_000)]
    limiter.set_resource_defaults("gpt-4", daily)
    limiter.create_entity("project-1")
    for key in ("key-7", "key-8"):
        limiter.create_entity(key, parent_id="project-1", cascade=True)
    limiter.set_limits("project-1", [Limit.per_day("rpd", 40)])
    with limiter.acquire("key-7", "gpt-4", {"rpd": 24, "tpd": 20_000}) as lease:
        lease.adjust(tpd=150_000)
    with limiter.acquire("key-8", "gpt-4", {"rpd": 9, "tpd": 1_000}):
        pass


def terminal(name: str, args: list[str]) -> str:
    """Return the picture of a terminal after a command."""
    from rich.console import Console
    from rich.text import Text

    command = " ".join(["zae-limiter", *args])
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(Text(f"$ {command}", style="bold"))
    console.print(Text.from_ansi(output_of(args)))
    return console.export_svg(title=command, code_format=SVG, unique_id=f"picture-{name}")


def output_of(args: list[str]) -> str:
    """Run a command as on a terminal, and return its output."""
    from zae_limiter_ops.cli.app import app
    from zae_limiter_ops.cli.shared.errors import run

    settings = {
        "COLORTERM": "",
        "COLUMNS": str(WIDTH),
        "FORCE_COLOR": "1",
        "TERM": "xterm-256color",
        "ZAEL_URL": "sqlite:///limits.db" if args[0] != DEMO else "",
    }
    before = dict(os.environ)
    os.environ.update(settings)
    os.environ.pop("NO_COLOR", None)
    printed = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")  # as a terminal: all characters
    try:
        with contextlib.redirect_stdout(printed):
            code = run(app, args)
    finally:
        os.environ.clear()
        os.environ.update(before)
    if code:
        raise SystemExit(f"zae-limiter {' '.join(args)} exits with {code}")
    printed.seek(0)
    return printed.read()


# --- the bucket ------------------------------------------------------------------------------

LIMIT = Limit.per_minute("tpm", 60, burst=90)
# Seconds, tokens, whether the charge is checked (an acquire) or not (an adjustment), and a label.
CHARGES = [
    (20, 90, True, "acquire 90: a burst"),
    (40, 15, True, "acquire 15"),
    (60, 60, False, "adjust +60: into debt"),
    (75, 10, True, "acquire 10: rejected"),
    (190, 30, True, "acquire 30: after idling, still at most 90"),
]
SECONDS, LEFT, TOP, X, Y = 220, 60, 40, 3.2, 2.0  # the axis, and pixels of a second and a token


def bucket_picture() -> str:
    """Return the level of a bucket over time, by the documented arithmetic."""
    points, marks = levels()
    line = " ".join(f"{_x(at):.1f},{_y(level):.1f}" for at, level in points)
    labels = "\n".join(_mark(number, *mark) for number, mark in enumerate(marks, 1))
    full, zero = _y(LIMIT.capacity), _y(0)
    return f"""\
<svg viewBox="0 0 860 430" xmlns="http://www.w3.org/2000/svg"
  font-family="DejaVu Sans, sans-serif" font-size="13">
<rect width="860" height="430" rx="8" fill="#ffffff"/>
<text x="{LEFT}" y="22" font-weight="bold">Level of a bucket: 60 tokens a minute, burst 90</text>
<line x1="{LEFT}" x2="{_x(SECONDS):.0f}" y1="{full:.0f}" y2="{full:.0f}" stroke="#5c6bc0"
  stroke-dasharray="6 4"/>
<text x="{LEFT - 8}" y="{full + 4:.0f}" text-anchor="end" fill="#5c6bc0">90</text>
<line x1="{LEFT}" x2="{_x(SECONDS):.0f}" y1="{zero:.0f}" y2="{zero:.0f}" stroke="#444444"/>
<text x="{LEFT - 8}" y="{zero + 4:.0f}" text-anchor="end">0</text>
<text x="{_x(SECONDS):.0f}" y="{zero + 18:.0f}" text-anchor="end">{SECONDS} s</text>
<polyline points="{line}" fill="none" stroke="#303f9f" stroke-width="2.5"/>
{labels}
</svg>
"""


def levels() -> tuple[list[tuple[float, float]], list[tuple[float, float, str]]]:
    """Return the corners of the curve, and the place and label of each charge."""
    from dataclasses import replace

    from zae_limiter import BucketState
    from zae_limiter.bucket import force_consume, refill_bucket, try_consume

    state = BucketState.from_limit("key-1", "gpt-4", LIMIT, 0)
    rate = state.capacity_milli, state.refill_amount_milli, state.refill_period_ms

    def level(at_ms: int) -> float:
        return (
            refill_bucket(state.tokens_milli, state.last_refill_ms, at_ms, *rate).new_tokens_milli
            / 1000
        )

    points: list[tuple[float, float]] = [(0, level(0))]
    marks: list[tuple[float, float, str]] = []
    for at, tokens, checked, label in CHARGES:
        points += [
            (second, level(second * 1000)) for second in range(int(points[-1][0]) + 1, at + 1)
        ]
        change = (try_consume if checked else force_consume)(state, tokens, at * 1000)
        state = replace(
            state, tokens_milli=change.new_tokens_milli, last_refill_ms=change.new_last_refill_ms
        )
        points.append((at, level(at * 1000)))
        marks.append((at, level(at * 1000), label))
    points += [(second, level(second * 1000)) for second in range(CHARGES[-1][0] + 1, SECONDS + 1)]
    return points, marks


def _mark(number: int, at: float, level: float, label: str) -> str:
    place = f'cx="{_x(at):.1f}" cy="{_y(level):.1f}"'
    text = f'<text x="{LEFT + 20}" y="{320 + 20 * number}">{number}  {label}</text>'
    near = f'<text x="{_x(at) + 8:.1f}" y="{_y(level) + 16:.1f}" font-weight="bold">{number}</text>'
    return f'<circle {place} r="4" fill="#c62828"/>\n{near}\n{text}'


def _x(seconds: float) -> float:
    return LEFT + seconds * X


def _y(tokens: float) -> float:
    return TOP + (LIMIT.capacity - tokens) * Y


def main(write: Callable[[str, str], None], *, demo: bool = True) -> None:
    for name, content in pictures(demo=demo):
        write(name, content)


def stale() -> list[str]:
    """Return the pictures that the sources would draw in another way."""
    drawn = dict(pictures(demo=False))
    return [
        name
        for name, content in drawn.items()
        if not (FOLDER / name).exists() or (FOLDER / name).read_text("utf-8") != content
    ]


def write_file(name: str, content: str) -> None:
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / name).write_text(content, encoding="utf-8")
    print(FOLDER / name)


if __name__ == "__main__":
    if "--check" in sys.argv:
        names = stale()
        sys.exit(f"draw them again with python -m tools.pictures: {names}" if names else 0)
    main(write_file)
