"""Engines with one fault each, made by wrapping the buckets of a correct engine."""

from dataclasses import replace

from zae_limiter import Repository
from zae_limiter.admission.request import Grant, Rejection


class Buckets:
    """Forwards every call to the correct buckets."""

    def __init__(self, correct):
        self.correct = correct

    def __getattr__(self, name):
        return getattr(self.correct, name)


class AdmitsSomeRejected(Buckets):
    """Every fifth rejection becomes a grant, uncharged."""

    rejections = 0

    async def charge(self, namespace_id, request, receipt):
        outcome = await self.correct.charge(namespace_id, request, receipt)
        if type(outcome) is Rejection:
            self.rejections += 1
            if self.rejections % 5 == 0:
                outcome = receipt.outcome = Grant(request.charges)
        return outcome


class ChargesHalf(Buckets):
    async def charge(self, namespace_id, request, receipt):
        charges = tuple(
            replace(
                each, amounts_milli={key: milli // 2 for key, milli in each.amounts_milli.items()}
            )
            for each in request.charges
        )
        return await self.correct.charge(namespace_id, replace(request, charges=charges), receipt)


class ForgetsTheParent(Buckets):
    async def charge(self, namespace_id, request, receipt):
        child = request.charges[:1]
        return await self.correct.charge(namespace_id, replace(request, charges=child), receipt)


class RefillsTwiceAsFast(Buckets):
    started_ms = None

    async def charge(self, namespace_id, request, receipt):
        self.started_ms = self.started_ms or request.clock()
        fast = replace(request, clock=lambda: 2 * request.clock() - self.started_ms)
        return await self.correct.charge(namespace_id, fast, receipt)


class CreditsTwice(Buckets):
    async def settle(self, namespace_id, settlements, *rest):
        await self.correct.settle(namespace_id, _times(settlements, credit=2), *rest)


class DropsDebts(Buckets):
    async def settle(self, namespace_id, settlements, *rest):
        await self.correct.settle(namespace_id, _times(settlements, debt=0), *rest)


def _times(settlements, debt=1, credit=1):
    return tuple(
        each._replace(
            amounts_milli={
                key: milli * (debt if milli > 0 else credit)
                for key, milli in each.amounts_milli.items()
            },
        )
        for each in settlements
    )


BROKEN = (
    AdmitsSomeRejected,
    ChargesHalf,
    ForgetsTheParent,
    RefillsTwiceAsFast,
    CreditsTwice,
    DropsDebts,
)


class Engine:
    """An engine whose buckets are replaced."""

    def __init__(self, correct, buckets):
        self.correct = correct
        self.buckets = buckets

    def __getattr__(self, name):
        return getattr(self.correct, name)


async def open_broken(buckets: type[Buckets]) -> Repository:
    """Open a repository in memory with faulty buckets."""
    repository = await Repository.open(url="memory://")
    context = repository._context  # noqa: SLF001 - engines are composed here
    engine = Engine(context.engine, buckets(context.engine.buckets))
    return Repository(replace(context, engine=engine))
