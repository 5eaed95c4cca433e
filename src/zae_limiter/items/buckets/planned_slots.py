"""The slots of a group of changes in one write: swept, released, renewed and taken together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from zae_limiter.admission.image import BucketImage, is_slots
from zae_limiter.admission.moves import Move, Wanted
from zae_limiter.admission.slots import SlotLedger, SlotWrite
from zae_limiter.items.buckets.changes import BucketChange
from zae_limiter.models.timestamps import MILLI

Moments = tuple[int | None, ...]


class PlannedSlots:
    """Plans the slots on the bucket as it was seen; the conditions of the write check that.

    ``image`` is the bucket before charges take slots. ``is_doubtful`` says that slots which are to
    be released or renewed were not seen there: they have expired, or the image is outdated.
    ``moments`` are those at which the slots of each change expire from now on, by its position:
    for a charge in the order of its limits, for a renewal in the order of its holds.
    """

    def __init__(self, image: BucketImage, changes: Sequence[BucketChange], now_ms: int) -> None:
        self._ledger = ledger = SlotLedger(image, now_ms)
        self._keys = [key for key, state in image.limits.items() if is_slots(state.rate)]
        self.moments: dict[int, Moments] = {}
        self.is_doubtful = self.gives = False
        for position, change in enumerate(changes):
            if change.renewed:
                moments = tuple([ledger.renew(hold) for hold in change.renewed])
                self.moments[position] = moments
                self.is_doubtful = self.is_doubtful or None in moments
                self.gives = True
            if change.released:
                freed = [ledger.release(hold) for hold in change.released]
                self.is_doubtful = self.is_doubtful or not all(freed)
                self.gives = True
        self.image = ledger.applied()

    def take(self, changes: Sequence[BucketChange], positions: Iterable[int]) -> None:
        """Take the slots of the charges that go into the write."""
        for position in positions:
            change = changes[position]
            if change.is_charge:
                amounts = change.amounts_milli
                self.moments[position] = tuple(
                    [
                        self._ledger.take(key, amounts[key] // MILLI) if amounts[key] else None
                        for key in change.in_force.slot_keys
                    ]
                )

    def moves(self, wanted: Mapping[str, Wanted]) -> list[Move]:
        """Return the moves of limits with slots; a sweep moves those that no change names."""
        moves = []
        for key in self._keys:
            move = self._ledger.move(key, asked=key in wanted and wanted[key].asked)
            if key in wanted or move.add:
                moves.append(move)
        return moves

    def writes(self) -> list[SlotWrite]:
        """Return the changes of held slots, which the write makes besides the moves."""
        return self._ledger.writes()

    def is_slots(self, key: str) -> bool:
        """Tell whether a limit has slots, by its stored name."""
        return key in self._keys
