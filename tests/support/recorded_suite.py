"""A plugin of pytest: every test's requests are checked, wherever the test is.

Where a folder's own fixture of this name does so anyway, that one is used.
"""

from collections.abc import Iterator

import pytest

from tests.support.roles import within_policies


@pytest.fixture(autouse=True)
def _requests_stay_within_the_policies() -> Iterator[None]:
    with within_policies():
        yield
