"""Run the command line with ``python -m zae_limiter``."""

from __future__ import annotations

import sys

from zae_limiter_ops.cli import main

if __name__ == "__main__":
    sys.exit(main())
