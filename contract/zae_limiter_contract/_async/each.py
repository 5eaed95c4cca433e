"""Many values in one test, for calls that leave the store as it was: one store serves for all."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

Test = Callable[..., Any]


def for_each(names: str | tuple[str, ...], values: Iterable[Any]) -> Callable[[Test], Test]:
    """Run a test for all values, as ``pytest.mark.parametrize``, but in one test.

    A failure names its values.
    """
    given = list(values)

    def decorate(test: Test) -> Test:
        taken = (names,) if isinstance(names, str) else names

        @functools.wraps(test)
        async def run(self: object, **fixtures: Any) -> None:
            for each in given:
                arguments = dict(
                    zip(taken, (each,) if isinstance(names, str) else each, strict=True)
                )
                try:
                    await test(self, **fixtures, **arguments)
                except BaseException as error:
                    error.add_note(f"with {arguments!r}")
                    raise

        signature = inspect.signature(test)
        left = [each for name, each in signature.parameters.items() if name not in taken]
        vars(run)["__signature__"] = signature.replace(parameters=left)
        return run

    return decorate
