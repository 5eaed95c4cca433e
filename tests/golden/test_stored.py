"""What an earlier commit has stored is read, and used, as that commit did."""

import os
import shutil
from pathlib import Path

from tests.golden.stored import OWN, SQLITE, load_items, read_told, tell
from tests.support.dynamodb import shared_endpoint
from tests.support.dynamodb.tables import store_url, temporary_table

FOLDER = Path(os.environ.get("ZAEL_STORED", OWN))


async def test_a_kept_file_tells_what_it_did(tmp_path):
    shutil.copy(FOLDER / SQLITE, tmp_path / SQLITE)
    await _check(f"sqlite:///{tmp_path / SQLITE}", "sqlite")


async def test_kept_items_tell_what_they_did():
    with temporary_table() as table:
        load_items(table, FOLDER)
        await _check(store_url(table, shared_endpoint()), "dynamodb")


async def _check(url, engine):
    moments = []
    async for moment, seen in tell(url):
        moments.append(moment)
        expected = read_told(FOLDER, engine, moment)
        for topic, content in expected.items():
            assert seen[topic] == content, f"{moment}: {topic}"
    assert moments == ["told", "later"]
