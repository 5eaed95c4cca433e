"""A pytest plugin: what is imported is the copy that ``ZAEL_MUTANT_SOURCE`` names."""

import os
from pathlib import Path

import pytest

WRONG_SOURCE = 77


def pytest_configure() -> None:
    import zae_limiter

    found, wanted = Path(zae_limiter.__file__), Path(os.environ["ZAEL_MUTANT_SOURCE"])
    if not found.is_relative_to(wanted):
        pytest.exit(f"{found} was imported, not {wanted}", returncode=WRONG_SOURCE)
