"""Applies a manifest in a process that the test kills: ``URL MANIFEST.json``."""

import json
import sys
from pathlib import Path

from zae_limiter import SyncRepository
from zae_limiter_ops._sync.provisioner import SyncProvisioner
from zae_limiter_ops.manifest.declarations import LimitsManifest

LEASE_S = 0.2  # the next apply waits for the end of a killed apply's lease


def main():
    url, path = sys.argv[1:]
    manifest = LimitsManifest.from_dict(json.loads(Path(path).read_text(encoding="utf-8")))
    repository = SyncRepository.builder().url(url).request_timeout(30).build()
    provisioner = SyncProvisioner(
        repository._context,  # noqa: SLF001 - a lease of another length
        "child",
        lease_seconds=LEASE_S,
    )
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    provisioner.apply(manifest)
    sys.stdout.write("done\n")
    repository.close()


if __name__ == "__main__":
    main()
