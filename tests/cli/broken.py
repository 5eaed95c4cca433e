"""Engines with one thing wrong: something stands between the limiter and a right engine."""

from dataclasses import replace

from zae_limiter import Repository
from zae_limiter.admission.request import Grant, Rejection


class Buckets:
    """Passes everything on."""

    def __init__(self, right):
        self.right = right

    def __getattr__(self, name):
        return getattr(self.right, name)


class AdmitsSomeRejected(Buckets):
    """Every fifth rejection becomes a grant, uncharged."""

    rejections = 0

    async def charge(self, namespace_id, request, receipt):
        outcome = await self.right.charge(namespace_id, request, receipt)
        if type(outcome) is Rejection:
            self.rejections += 1
            if self.rejections % 5 == 0:
                outcome = receipt[-1] = Grant(request.charges)
        return outcome


class ChargesHalf(Buckets):
    async def charge(self, namespace_id, request, receipt):
        charges = tuple(
            each._replace(amounts_milli=tuple(milli // 2 for milli in each.amounts_milli))
            for each in request.charges
        )
        return await self.right.charge(namespace_id, request._replace(charges=charges), receipt)


class ForgetsTheParent(Buckets):
    async def charge(self, namespace_id, request, receipt):
        child = request.charges[:1]
        return await self.right.charge(namespace_id, request._replace(charges=child), receipt)


class RefillsTwiceAsFast(Buckets):
    started_ms = None

    async def charge(self, namespace_id, request, receipt):
        self.started_ms = self.started_ms or request.clock()
        fast = request._replace(clock=lambda: 2 * request.clock() - self.started_ms)
        return await self.right.charge(namespace_id, fast, receipt)


class CreditsTwice(Buckets):
    async def settle(self, namespace_id, settlements, *rest):
        await self.right.settle(namespace_id, _times(settlements, credit=2), *rest)


class DropsDebts(Buckets):
    async def settle(self, namespace_id, settlements, *rest):
        await self.right.settle(namespace_id, _times(settlements, debt=0), *rest)


def _times(settlements, debt=1, credit=1):
    return tuple(
        each._replace(
            amounts_milli={
                key: milli * (debt if milli > 0 else credit)
                for key, milli in each.amounts_milli.items()
            }
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
    """An engine with other buckets."""

    def __init__(self, right, buckets):
        self.right = right
        self.buckets = buckets

    def __getattr__(self, name):
        return getattr(self.right, name)


async def open_broken(buckets: type[Buckets]) -> Repository:
    """A repository in memory that goes wrong."""
    right = await Repository.open(url="memory://")
    context = right._context  # noqa: SLF001 - engines are composed here
    engine = Engine(context.engine, buckets(context.engine.buckets))
    return Repository(replace(context, engine=engine))
