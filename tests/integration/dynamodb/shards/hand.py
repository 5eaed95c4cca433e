"""A client of one sharded bucket, as small as can be: what it knows may be out of date.

It writes what the package plans and spells, and tells what it is about to change and what became
of it, so that a test can add everything up afterwards.
"""

import random
import time
import uuid
from itertools import count

from zae_limiter import ConfigSource, Limit
from zae_limiter._sync.engines.dynamodb.client import DynamoClient
from zae_limiter.admission.in_force import InForce
from zae_limiter.admission.moves import Wanted
from zae_limiter.admission.shards.choice import draw
from zae_limiter.admission.shards.spreading import gather, place_credits, place_debts, taking
from zae_limiter.admission.shards.tree import contradicts, is_whole, live
from zae_limiter.dynamodb import writes
from zae_limiter.dynamodb.part import Part, choose
from zae_limiter.dynamodb.view import Read
from zae_limiter.dynamodb.writes import Terms
from zae_limiter.records.dynamodb import bucket_item, bucket_shards
from zae_limiter.records.dynamodb.bucket_item import Family
from zae_limiter.records.dynamodb.bucket_shards import Taken
from zae_limiter.transport.errors import ConditionFailed, TransactionCanceled

PLACE = ("ns", "user", "api")
PATIENCE = 8
NO_FAMILY = Family()
LIMITS = (
    Limit.custom("rpm", 1_000_000, 7, 3),  # never full, never empty in these tests
    Limit.custom("tpd", 3_000_000_000, 1, 86_400),
)


class Hand:
    """``tell`` gets what is tried, by number, and then whether it was made."""

    def __init__(self, table, endpoint, limits=LIMITS, seed=0, clock=None, tell=None):
        self.client = DynamoClient(table, endpoint_url=endpoint, request_timeout=10)
        self.in_force = InForce(tuple(limits), ConfigSource.ENTITY, 1)
        self.chance = random.Random(seed).random
        self.clock = clock or (lambda: int(time.time() * 1000))
        self.tell = tell or (lambda *what: None)
        self.items = {}
        self._numbers = count()

    def close(self):
        self.client.close()

    # --- what is known

    def terms(self, number=0):
        return Terms((*PLACE, number), self.clock(), uuid.uuid4().hex[:8])

    def read(self, number):
        body = {"Key": bucket_item.key(*PLACE, number), "ConsistentRead": True}
        return self.learn(number, self.client.call("GetItem", body).get("Item"))

    def learn(self, number, item):
        if item is None:
            self.items = {
                other: item
                for other, item in self.items.items()
                if number and not contradicts(bucket_item.decode(item).shard, number)
            }
        else:
            self.items[number] = item
        return item

    def known(self):
        """The live shards, as far as they can be told."""
        found = [bucket_item.decode(item) for item in self.items.values()]
        return live({each.shard: each.generation for each in found})

    def read_all(self):
        """All shards, read one by one until they fit together: the items by shard."""
        while True:
            items = {shard: self.read(shard.number) for shard in self.known()}
            found = {bucket_item.decode(item).shard: item for item in items.values() if item}
            if is_whole(found):
                return found

    def images(self):
        return {shard: bucket_item.decode(item).image for shard, item in self.read_all().items()}

    # --- writes to one shard

    def create(self, family=NO_FAMILY, **taken):
        """The bucket, whole; each limit less what is taken."""
        wanted = {key: Wanted(amount, asked=True) for key, amount in taken.items()}
        attempt = writes.first(self.in_force, wanted, 0, family, self.terms())
        self.client.call("UpdateItem", attempt.write.text(self.client.table))
        return self.read(0)

    def update(self, number, wanted, admitted=0):
        """One write as it is planned from what is known; the item after it."""
        bucket = bucket_item.decode(self.items[number])
        view = Read(bucket)
        attempt = writes.shared(view, bucket, wanted, admitted, self.in_force, self.terms(number))
        net = {key: each.returned_milli - each.taken_milli for key, each in wanted.items()}
        return self.make(net, lambda: self.send(number, attempt.write))

    def send(self, number, update):
        try:
            answer = self.client.call("UpdateItem", update.text(self.client.table))
        except ConditionFailed as failed:
            self.learn(number, failed.item)
            return None
        return self.learn(number, answer["Attributes"])

    def make(self, net, write):
        number = next(self._numbers)
        self.tell("try", number, net)
        made = write()
        self.tell("made" if made else "not", number, net)
        return made

    def charge(self, **amounts):
        """Ask one shard after the other; False if none holds that much."""
        part = Part(self.in_force, {**dict.fromkeys(self.in_force.keys, 0), **amounts}, True)
        wanted = {key: Wanted(amount, asked=True) for key, amount in part.amounts_milli.items()}
        refused = set()
        while left := [shard for shard in self.known() if shard.number not in refused]:
            number = draw(left, self.chance()).number
            if self._ask(number, part, wanted):
                return True
            refused.add(number)
        return False

    def _ask(self, number, part, wanted):
        """True if it was charged; what else there is becomes known on the way."""
        for _ in range(PATIENCE):
            if number not in self.items and self.read(number) is None:
                return False
            if self.update(number, wanted, 1):
                return True
            if number not in self.items:
                return False
            image = bucket_item.decode(self.items[number]).image
            if not choose([part], image, self.clock()).taken:
                return False
        return False

    # --- writes to several shards

    def gather(self, **amounts):
        """True if it was taken, whole; False if it is not there, or others were always faster."""
        wanted = {**dict.fromkeys(self.in_force.keys, 0), **amounts}
        net = {key: -amount for key, amount in amounts.items()}
        for _ in range(3):
            items, now_ms = self.read_all(), self.clock()
            found = {shard: bucket_item.decode(item) for shard, item in items.items()}
            images = {shard: each.image for shard, each in found.items()}
            spread = gather(images, wanted, now_ms)
            if spread is None:
                return False
            parts = [
                Taken(
                    bucket_item.key(*PLACE, shard.number),
                    found[shard],
                    taking(images[shard], mine, now_ms),
                )
                for shard, mine in spread.items()
            ]
            actions = bucket_shards.gather(parts, uuid.uuid4().hex[:8], 1)
            if self.make(net, lambda actions=actions: self.transact(actions)):
                return True
        return False

    def give_back(self, number, **amounts):
        """Planned anew until all of it is written."""
        left = dict(amounts)
        while any(left.values()):
            spread = place_credits(self.images(), number, left, self.clock())
            for shard, parts in spread.items():
                self._settle(shard, parts, left, lambda part: Wanted(returned_milli=part))

    def owe(self, **amounts):
        """Planned anew until all of it is written."""
        left = dict(amounts)
        while any(left.values()):
            planned = place_debts(self.images(), left, self.clock())
            for shard, parts in planned.covered.items():
                self._settle(shard, parts, left, lambda part: Wanted(part, asked=True))
            for shard, parts in planned.owed.items():
                self._settle(shard, parts, left, lambda part: Wanted(owed_milli=part))

    def _settle(self, shard, parts, left, wanted):
        if shard.number not in self.items:
            return  # merged since the plan was made
        if self.update(shard.number, {key: wanted(part) for key, part in parts.items()}):
            for key, part in parts.items():
                left[key] -= part

    def split(self, number):
        """True if it was this one who did it."""
        item = self.read(number)
        return item is not None and self.transact(self.planned_split(item))

    def planned_split(self, item):
        return bucket_shards.split(item, self.clock(), uuid.uuid4().hex[:8])

    def merge(self, number, expires_ms=None):
        """The same for a shard and its sibling; False also if they are no pair."""
        item = self.read(number)
        if item is None:
            return False
        kept = bucket_item.decode(item)
        if kept.shard.n == 1 or not kept.shard.survives:
            return False
        other = self.read(kept.shard.sibling.number)
        if other is None or not bucket_shards.can_merge(kept, bucket_item.decode(other)):
            return False
        mark = uuid.uuid4().hex[:8]
        return self.transact(bucket_shards.merge(item, other, self.clock(), mark, expires_ms))

    def transact(self, actions):
        table = {"TableName": self.client.table}
        body = {
            "TransactItems": [
                {kind: {**table, **action} for kind, action in each.items()} for each in actions
            ],
            "ClientRequestToken": str(uuid.uuid4()),
        }
        try:
            self.client.call("TransactWriteItems", body, repeatable=True)
        except TransactionCanceled:
            return False
        return True
