"""The budget that pays for a call, and the note in the audit log of the prices in use."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from zae_limiter.exceptions import RateLimiterUnavailable, ZAELimiterError
from zae_limiter.llm.priced_calls import budget_among
from zae_limiter.runtime.bounded import BoundedDict
from zae_limiter.runtime.locks import SignalSafeLock

if TYPE_CHECKING:
    from zae_limiter._async.acquire import Acquire
    from zae_limiter._async.repository import Repository
    from zae_limiter.llm.prices import ModelPrice, PriceFile

MAX_NOTED = 100  # versions of price files in one process


async def found_budget(
    acquire: Acquire, price: ModelPrice, wanted: str | None, resource: str | None
) -> str:
    """Return the budget among the limits in force, and note the price file in the audit log.

    ``resource`` is the one that has the budget; None stands for that of the call.

    In an outage the name is a guess: the acquire itself decides whether the call is let through.
    """
    call, currency = acquire._call, price.file.currency  # noqa: SLF001 - for us alone
    if resource is not None:
        call = call.about(call.entity_id, resource, {})
    try:
        scope = await call.resolve()
    except RateLimiterUnavailable:
        return wanted or currency.lower()
    limits = [limit for _, in_force in scope.buckets for limit in in_force.limits]
    name = budget_among(limits, currency, wanted, call.resource)
    assert call.repository is not None, "the scope was read from it"
    await _note(call.repository, price.file)
    return name


_noted: WeakKeyDictionary[Repository, BoundedDict[str, bool]] = WeakKeyDictionary()
_noted_guard = SignalSafeLock()


async def _note(repository: Repository, file: PriceFile) -> None:
    """Write an audit event for each version of the prices, once per process and repository."""
    with _noted_guard:
        noted = _noted.setdefault(repository, BoundedDict(MAX_NOTED))
        if noted.get(file.version):
            return
        noted.put(file.version, True)
    details = file._asdict()
    try:
        await repository._log_prices(details)  # noqa: SLF001 - for us alone
    except BaseException as error:
        noted.pop(file.version, None)  # the next call tries again
        if not isinstance(error, ZAELimiterError):
            raise
        # Not before it is needed: `import zae_limiter` does without logging.
        from zae_limiter.quiet_logging import quiet_logger

        quiet_logger(__name__).warning(
            "the prices %s of %s are not in the audit log: %s", file.version, file.source, error
        )
