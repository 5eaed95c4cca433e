"""The record of a local server; an unreadable record counts as none."""

import pytest

from zae_limiter_ops.local.records import MAX_RECORD_BYTES, RecordFile


@pytest.mark.parametrize(
    "text",
    [
        "[" * 25_000,
        '{"stacks":' * 25_000 + "1" + "}" * 25_000,
        '{"stacks": [' + '"a",' * MAX_RECORD_BYTES + '"a"]}',
        "null",
        "",
    ],
)
def test_a_record_that_no_command_wrote_is_none(tmp_path, text):
    path = tmp_path / "server.json"
    path.write_text(text)
    assert RecordFile(path).read() is None
