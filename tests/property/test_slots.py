"""Slots under everything that can happen to their holders: never more of them than the limit.

Clients share one bucket as they share an item of DynamoDB: each plans a write from what it has
last seen, and the store refuses it unless the conditions of the write hold. Messages are delayed,
answers get lost, clients crash, stop and go on, and their clocks differ by up to 0.45 s.

``DEFECTS`` are stores and clients that ignore one guard: the histories must find each of them.
"""

from random import Random
from typing import NamedTuple

import pytest

from sim.schedule import Process, Schedule
from tests.support.changes import SlotPlan
from zae_limiter.admission.image import BucketImage, LimitState, Rate
from zae_limiter.admission.slots import (
    MARGIN_MS,
    SlotHold,
    expiry_ms,
    is_lost,
    renewal_ms,
)

KEY, START_MS = "parallel", 1_800_000_000_000
HORIZON_MS = 120_000
SEEDS = 40
MAX_SKEW_MS = 450  # below half of the margin before a lease is lost


class Write(NamedTuple):
    """A conditional write on its way to the store.

    ``life`` is that of the bucket it was planned on; a write that removes slots requires it.
    """

    move: object
    slots: object
    life: str


class Store:
    """The item: free slots and, by the moment that they expire, those that are held."""

    def __init__(self, slots):
        self.slots, self.free, self.held, self.writes = slots, slots * 1000, {}, 0
        self.lives = 0

    @property
    def life(self):
        return str(self.lives)

    def create_again(self):
        """Delete the bucket; the next write finds one that is full."""
        self.free, self.held, self.lives = self.slots * 1000, {}, self.lives + 1

    def image(self, rate):
        limits = {KEY: LimitState(self.free, rate)}
        holds = {KEY: dict(self.held)}
        return BucketImage(limits, 0, None, 0, writes=self.writes, holds=holds, life=self.life)

    def apply(self, write):
        """Write if all conditions hold; return whether it was written."""
        move, slots, _ = write
        if not (self.is_of_this_life(write) and self.has_free(move)):
            return False
        if not all(self.is_unswept(each) and self.is_held(each) for each in slots):
            return False
        self.free += move.add
        self.writes += 1
        for each in slots:
            for at in each.expired:
                self.held.pop(at, None)
            for at, removed in each.removed.items():
                self.held[at] = self.held.get(at, 0) - removed
            for at, added in each.added.items():
                self.held[at] = self.held.get(at, 0) + added
        assert self.free + 1000 * sum(self.held.values()) == self.slots * 1000
        assert all(held >= 0 for held in self.held.values()), "more slots are released than in use"
        assert len(self.held) <= 9
        return True

    # --- the guards

    def is_of_this_life(self, write):
        return write.life == self.life or not any(each.removed for each in write.slots)

    def has_free(self, move):
        return move.low is None or self.free >= move.low

    def is_unswept(self, slots):
        return all(self.held.get(at) == seen for at, seen in slots.expired.items())

    def is_held(self, slots):
        return all(self.held.get(at, 0) >= least for at, least in slots.removed.items())


class Held:
    """One lease; ``unsure`` once the outcome of a renewal is unknown."""

    def __init__(self, hold, ends_ms):
        self.hold, self.ends_ms, self.unsure, self.busy = hold, ends_ms, False, False


class Client(Process):
    """One process: takes slots for a while, renews and releases them."""

    def __init__(self, world, number):
        super().__init__(world)
        self.world, self.random = world, world.random
        self.skew_ms = self.random.randint(-MAX_SKEW_MS, MAX_SKEW_MS)
        self.seen, self.leases = None, []
        world.after(self.random.randint(0, 3000), self.ask)

    def clock(self):
        return self.world.now_ms + self.skew_ms

    def active(self):
        """Return the leases with which it runs calls right now; a stopped process runs none."""
        if not self.is_alive or self.world.now_ms < self.stopped_until_ms:
            return []
        return [lease for lease in self.leases if not self.has_lost(lease)]

    def later(self, delay_ms, call):
        def step():
            self.forget_lost()
            call()

        self.after(delay_ms, step)

    def forget_lost(self):
        self.leases = [each for each in self.leases if each.busy or not self.has_lost(each)]

    def has_lost(self, lease):
        """Whether a lease may have expired for others."""
        return is_lost(lease.hold.expires_ms, self.clock())

    def hold_of(self, lease, image):
        """Return the hold of a lease for a write that is planned on this image."""
        return lease.hold

    def sweep_ms(self):
        """Return the moment up to which expired slots are swept."""
        return self.clock()

    def send(self, plan, done, *, tries=4):
        """Plan on what was seen, send, and learn; ``done`` gets the plan, or None if unknown."""
        image = self.world.store.image(self.world.rate) if self.seen is None else self.seen
        ledger = SlotPlan(image, self.sweep_ms())
        planned = plan(ledger, image)
        if planned is None:
            if tries and self.seen is not None:  # read, and decide on that
                self.seen = None
                self.later(self.world.latency(), lambda: self.send(plan, done, tries=0))
            else:
                done(False)
            return
        write = Write(ledger.move(KEY), ledger.writes(), image.life)

        def arrive():
            applied = self.world.store.apply(write)
            image_after = self.world.store.image(self.world.rate)
            if self.random.random() < self.world.loss:
                self.later(2000, lambda: done(None))  # no answer
                return
            self.later(self.world.latency(), lambda: answer(applied, image_after))

        def answer(applied, image_after):
            self.seen = image_after
            if applied:
                done(True)
            elif tries:
                self.send(plan, done, tries=tries - 1)
            else:
                done(False)

        self.world.after(self.world.latency(), arrive)

    def ask(self):
        if not self.is_alive:
            return
        self.later(self.random.randint(10, 1500), self.ask)
        taken = self.random.choice((1, 1, 1, 2))
        holds = []

        def plan(ledger, image):
            if ledger.applied().limits[KEY].balance_milli < taken * 1000:
                return None
            holds.append(SlotHold(KEY, taken, ledger.take(KEY, taken)))  # the life is not known yet
            return "take"

        def done(applied):
            if not applied:
                return
            lasts = self.random.choice((50, 500, 5000, 40_000))
            hold = holds[-1]._replace(life=self.seen.life)  # as the answer shows it
            lease = Held(hold, self.world.now_ms + lasts)
            if self.has_lost(lease):
                return  # it took too long: the caller gets no lease
            self.leases.append(lease)
            self.later(lasts, lambda: self.release(lease))
            self.plan_renewal(lease)

        self.send(plan, done)

    def plan_renewal(self, lease):
        now_ms = self.clock()
        due = renewal_ms(lease.hold.expires_ms, now_ms) - now_ms
        self.later(due, lambda: self.renew(lease))

    def renew(self, lease):
        if lease not in self.leases or lease.unsure or lease.busy:
            return
        lease.busy, moments = True, []

        def plan(ledger, image):
            if self.has_lost(lease):
                return None
            moments.append(ledger.renew(self.hold_of(lease, image)))
            return None if moments[-1] is None else "renew"

        def done(applied):
            lease.busy = False
            if applied:
                lease.hold = lease.hold._replace(expires_ms=moments[-1])
                self.plan_renewal(lease)
            elif applied is None:
                lease.unsure = True

        self.send(plan, done)

    def release(self, lease):
        if lease not in self.leases:
            return
        if lease.busy:
            self.later(20, lambda: self.release(lease))
            return
        self.leases.remove(lease)
        if lease.unsure or self.has_lost(lease):
            return  # it expires by itself

        def plan(ledger, image):
            return "release" if ledger.release(self.hold_of(lease, image)) else None

        self.send(plan, lambda applied: None)


class World(Schedule):
    """Clients, the store and the time between them."""

    def __init__(self, seed, *, slots, lease_ttl, clients=5, loss=0.05, store=Store, client=Client):
        super().__init__(START_MS)
        self.random, self.loss, self._client = Random(seed), loss, client
        self.rate = Rate(slots * 1000, 0, lease_ttl * 1000)
        self.store, self.most = store(slots), 0
        self.clients = [client(self, number) for number in range(clients)]

    def latency(self):
        return self.random.choice((1, 2, 5, 30, 30, 800))

    def disturb(self):
        self.after(self.random.randint(1000, 6000), self.disturb)
        client = self.random.choice(self.clients)
        if self.random.random() < 0.3:
            client.is_alive = False
            self.clients.remove(client)
            self.clients.append(self._client(self, 0))
        else:
            client.stopped_until_ms = self.now_ms + self.random.choice((500, 3000, 20_000))

    def after_each_call(self):
        held = sum(
            lease.hold.slots
            for client in self.clients
            for lease in client.active()
            if lease.hold.life == self.store.life
        )
        self.most = max(self.most, held)
        assert held <= self.store.slots, f"{held} of {self.store.slots} slots are in use"


def run_world(seed, *, deletes=False, **parts):
    """Run a history; ``deletes``: the bucket is deleted and created again now and then."""
    slots, lease_ttl = ((1, 3), (3, 5), (7, 12), (4, 60))[seed % 4]
    world = World(seed, slots=slots, lease_ttl=lease_ttl, **parts)

    def create_again():
        world.store.create_again()
        world.after(world.random.randint(500, 8000), create_again)

    if deletes:
        world.after(3000, create_again)
    world.after(2000, world.disturb)
    world.run_until(START_MS + HORIZON_MS)
    assert world.most >= (slots + 1) // 2, "there was hardly a holder"


@pytest.mark.parametrize("seed", range(SEEDS))
def test_there_are_never_more_holders_than_slots(seed):
    run_world(seed)


@pytest.mark.parametrize("seed", range(SEEDS // 2))
def test_calls_of_a_deleted_bucket_change_no_slots(seed):
    run_world(seed, deletes=True)


def release_after_a_sweep(store):
    """Release a slot that another client has swept, and taken, since the release was planned."""
    rate = Rate(1000, 0, 5000)
    image = store.image(rate)
    ledger = SlotPlan(image, START_MS)
    hold = SlotHold(KEY, 1, ledger.take(KEY, 1), life=store.life)
    assert store.apply(Write(ledger.move(KEY), ledger.writes(), store.life))
    image = store.image(rate)
    late = SlotPlan(image, START_MS + 10)
    assert late.release(hold)
    other = SlotPlan(image, hold.expires_ms + 10)
    other.take(KEY, 1)
    assert store.apply(Write(other.move(KEY), other.writes(), store.life))
    return store.apply(Write(late.move(KEY), late.writes(), store.life))


def test_a_slot_that_was_swept_is_not_released():
    assert not release_after_a_sweep(Store(1))


class TakesWhatIsNotFree(Store):
    def has_free(self, move):
        return True


class SweepsTwice(Store):
    def is_unswept(self, slots):
        return True


class ReleasesSlotsOfOthers(Store):
    def is_held(self, slots):
        return True


class ForgetsLives(Store):
    def is_of_this_life(self, write):
        return True


class SweepsEarly(Client):
    def sweep_ms(self):
        return self.clock() + 1000


class KeepsLeasesToTheEnd(Client):
    def has_lost(self, lease):
        return self.clock() >= lease.hold.expires_ms


class CarriesHoldsOver(Client):
    def hold_of(self, lease, image):
        return lease.hold._replace(life=image.life)


DEFECTS = [
    {"store": TakesWhatIsNotFree},
    {"store": SweepsTwice},
    {"store": ForgetsLives, "deletes": True},
    {"client": SweepsEarly},
    {"client": KeepsLeasesToTheEnd},
    {"client": CarriesHoldsOver, "deletes": True},
]


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: next(iter(defect.values())).__name__)
def test_a_planted_defect_is_found(defect):
    with pytest.raises(AssertionError, match=r"in use|=="):
        run_worlds(**defect)


def test_a_store_that_releases_slots_of_others_is_found():
    with pytest.raises(AssertionError, match="more slots are released than in use"):
        release_after_a_sweep(ReleasesSlotsOfOthers(1))


def run_worlds(**parts):
    for seed in range(SEEDS):
        run_world(seed, **parts)


@pytest.mark.parametrize("seed", range(10))
def test_slots_of_crashed_holders_are_free_after_their_leases(seed):
    world = World(seed, slots=5, lease_ttl=12, loss=0)
    world.run_until(START_MS + 15_000)
    for client in world.clients:
        client.is_alive = False
    world.run_until(world.now_ms + 5000)  # what was sent before arrives
    later_ms = world.now_ms - 5000 + 800 + 12_000 + MAX_SKEW_MS
    image = SlotPlan(world.store.image(world.rate), later_ms).applied()
    assert image.limits[KEY].balance_milli == 5000


@pytest.mark.parametrize("lease_ttl", [3, 4, 5, 7, 11, 12, 60, 61, 3600, 86_400])
def test_a_lease_lives_for_most_of_its_ttl_and_no_longer(lease_ttl):
    moments = set()
    for now_ms in range(START_MS, START_MS + lease_ttl * 1000, max(1, lease_ttl * 7)):
        expires_ms = expiry_ms(lease_ttl * 1000, now_ms)
        assert expires_ms % 1000 == 0
        assert now_ms + lease_ttl * 1000 * 2 // 3 - 500 <= expires_ms <= now_ms + lease_ttl * 1000
        assert now_ms < renewal_ms(expires_ms, now_ms) < expires_ms - MARGIN_MS
        moments.add(expires_ms)
    assert len(moments) <= 8
