"""The Node client of the documentation drives leases of a real service."""

import json
import os
import shutil
import subprocess

import pytest

from tests.docs.pages import DOCS, blocks

NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="Node is not installed")
PROGRAM = """
import { acquire, limited, rollBack, settle } from "./limited.mjs";
const found = {};
const lease = await acquire("user-1", "gpt-4", { rpd: 1, tpd: 400 });
found.acquired = lease.status;
const settled = await Promise.all([1, 2, 3].map(() => settle(lease.body.id, { tpd: 150 })));
found.settled = settled.map((each) => each.status);
found.same = new Set(settled.map((each) => JSON.stringify(each.body))).size;
found.other = (await settle(lease.body.id, { tpd: 151 })).status;
const second = await acquire("user-1", "gpt-4", { tpd: 1000 });
found.rolledBack = [];
for (let turn = 0; turn < 2; turn++) found.rolledBack.push((await rollBack(second.body.id)).status);
const work = async () => ({ result: "text", cost: { tpd: 50 } });
found.result = await limited("user-1", "gpt-4", { tpd: 500 }, work);
try {
  await limited("user-1", "gpt-4", { tpd: 500 }, async () => { throw new Error("provider"); });
} catch (error) {
  found.error = error.message;
}
try {
  await limited("user-1", "gpt-4", { tpd: 20000 }, async () => ({}));
} catch (error) {
  found.rejected = [error.status, error.rejection.error];
}
console.log(JSON.stringify(found));
"""


def test_fetch_acquires_settles_and_rolls_back(serve, limiter, tokens, tmp_path):
    service = serve(no_auth=False, tokens=tokens)
    [client] = blocks(DOCS / "operations/service.md", "javascript")
    (tmp_path / "limited.mjs").write_text(client, encoding="utf-8")
    (tmp_path / "program.mjs").write_text(PROGRAM, encoding="utf-8")
    done = subprocess.run(
        [NODE, "program.mjs"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={
            **os.environ,
            "LIMITER": f"http://127.0.0.1:{service.port}",
            "LIMITER_TOKEN": "secret-gateway",
        },
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "acquired": 201,
        "settled": [200, 200, 200],
        "same": 1,
        "other": 409,
        "rolledBack": [204, 204],
        "result": "text",
        "error": "provider",
        "rejected": [429, "rate_limit_exceeded"],
    }
    assert limiter.available("user-1", "gpt-4") == {"rpd": 99, "tpd": 10_000 - 150 - 50}
