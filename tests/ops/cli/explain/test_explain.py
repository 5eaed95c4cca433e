"""explain predicts the answer to the next acquire."""

import random

import pytest

from tests.ops.cli.stores import on_both_engines
from zae_limiter import Limit, RateLimitExceeded, SyncRateLimiter, SyncRepository, ValidationError
from zae_limiter.testing import FakeClock
from zae_limiter_ops.cli.explain.explanation import explain_acquire

ENTITIES = ("key-1", "key-2", "project", "stranger")
RESOURCES = ("gpt-4", "gpt-5")
NAMES = ("rpm", "tpm", "rpd")
STATES, MANY_STATES = 60, 300


class Scene:
    """A store that random operations are done on."""

    def __init__(self, rng, repository, clock):
        self.rng = rng
        self.repository = repository
        self.clock = clock
        self.limiter = SyncRateLimiter(repository, clock=clock)

    def limits(self):
        names = self.rng.sample(NAMES, self.rng.randint(1, 3))
        return [
            Limit.custom(
                name,
                self.rng.randint(1, 40),
                self.rng.randint(1, 40),
                self.rng.choice((1, 7, 60, 3600)),
            )
            for name in names
        ]

    def amounts(self, entity_id, resource):
        """Return random amounts, mostly of existing limits."""
        limits, _, _ = self.repository.resolve_limits(entity_id, resource)
        names = [limit.name for limit in limits or ()]
        if not names or self.rng.random() < 0.1:
            names = self.rng.sample(NAMES, self.rng.randint(1, 3))
        return {name: self.rng.choice((0, 1, 2, 5, 20, 50)) for name in names}

    def step(self):
        rng, repository = self.rng, self.repository
        entity_id, resource = rng.choice(ENTITIES), rng.choice(RESOURCES)
        action = rng.randrange(16)
        if action == 0:
            repository.set_limits(entity_id, self.limits(), rng.choice((resource, "_default_")))
        elif action == 1:
            repository.delete_limits(entity_id, rng.choice((resource, "_default_")))
        elif action == 2:
            repository.set_resource_defaults(resource, self.limits())
        elif action == 3 and rng.random() < 0.3:
            repository.delete_resource_defaults(resource)
        elif action == 4:
            if rng.random() < 0.8:
                repository.set_system_defaults(self.limits())
            else:
                repository.delete_system_defaults()
        elif action == 5 and repository.get_buckets(entity_id, resource):
            repository.reset_bucket(entity_id, resource)
        elif action == 6:
            self.move_child()
        else:
            self.use(entity_id, resource)
        self.clock.advance(ms=rng.choice((0, 0, 1, 250, 999, 5000, 60_000)))

    def move_child(self):
        self.repository.delete_entity("key-1")
        parent = self.rng.choice((None, "project", "ghost"))
        cascade = parent is not None and self.rng.random() < 0.7
        self.repository.create_entity("key-1", parent_id=parent, cascade=cascade)

    def use(self, entity_id, resource):
        try:
            with self.limiter.acquire(
                entity_id, resource, self.amounts(entity_id, resource)
            ) as lease:
                for name in lease.consumed:
                    lease.adjust(**{name: self.rng.randint(-5, 60)})
        except (RateLimitExceeded, ValidationError):
            pass


def acquired(limiter, entity_id, resource, consume):
    """Return the answer to an acquire, with its statuses and waiting time."""
    try:
        with limiter.acquire(entity_id, resource, consume):
            return "admitted", None, None
    except RateLimitExceeded as error:
        return "limited", error.statuses, error.retry_after_seconds
    except ValidationError:
        return "error", None, None


@pytest.mark.parametrize(
    ("seed", "states"),
    [
        (0, STATES),
        *(pytest.param(seed, MANY_STATES, marks=pytest.mark.slow) for seed in range(3)),
    ],
)
@on_both_engines
def test_it_agrees_with_the_next_acquire_in_random_states(empty_url, seed, states):
    """To the last status and to the millisecond."""
    rng, clock = random.Random(seed), FakeClock()
    seen = dict.fromkeys(("admitted", "limited", "error", "cascade", "both refuse", "debt"), 0)
    with SyncRepository.open(url=empty_url, clock=clock) as repository:
        scene = Scene(rng, repository, clock)
        for _ in range(states):
            for _ in range(rng.randint(1, 4)):
                scene.step()
            entity_id, resource = rng.choice(ENTITIES), rng.choice(RESOURCES)
            consume = scene.amounts(entity_id, resource) if rng.random() < 0.8 else None
            found = explain_acquire(scene.limiter, entity_id, resource, consume)
            answer, statuses, retry = acquired(scene.limiter, entity_id, resource, found.consume)
            assert found.answer == answer
            if answer == "limited":
                assert list(found.availability.statuses) == statuses
                assert found.availability.retry_after_seconds == retry
                refusing = {status.entity_id for status in statuses if status.exceeded}
                seen["both refuse"] += len(refusing) > 1
                seen["debt"] += any(status.available < 0 for status in statuses)
            limits, _, source = repository.resolve_limits(entity_id, resource)
            assert found.resolutions[0].source == source
            wins = [level for level in found.resolutions[0].levels if level.wins]
            assert [list(level.limits) for level in wins] == ([limits] if limits else [])
            seen[answer] += 1
            seen["cascade"] += len(found.resolutions) > 1
    assert min(seen.values()) >= states // 100, seen


@on_both_engines
def test_the_command_agrees_with_a_limiter_on_the_same_file(cli, opened):
    assert cli("explain", "key-7", "gpt-4", "--output", "json").json["answer"] == "limited"
    assert acquired(SyncRateLimiter(opened), "key-7", "gpt-4", {"rpm": 1})[0] == "limited"
    opened.reset_bucket("key-7", "gpt-4")
    assert cli("explain", "key-7", "gpt-4", "--output", "json").json["answer"] == "admitted"
    assert acquired(SyncRateLimiter(opened), "key-7", "gpt-4", {"rpm": 1})[0] == "admitted"


@on_both_engines
def test_it_takes_nothing(cli, opened):
    before = opened.get_buckets("project-1"), opened.get_audit_events("key-7")
    cli("explain", "key-7", "gpt-4")
    after = opened.get_buckets("project-1"), opened.get_audit_events("key-7")
    assert [state.total_consumed_milli for state in before[0]] == [
        state.total_consumed_milli for state in after[0]
    ]
    assert before[1] == after[1]


@on_both_engines
def test_it_walks_through_payers_levels_buckets_and_answer(cli):
    text = cli("explain", "key-7", "gpt-4", "-c", "rpm=1").out
    assert "key-7 and its parent project-1 (cascade): both must have enough" in text
    assert "entity, this resource  rpm 10/min, tpm 1,000/min (burst 2,000)  in force" in text
    assert "tpm of key-7 is in debt (" in text
    assert "which stops every call on gpt-4 until it is repaid" in text


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["stranger", "gpt-4"], "ADMITTED: every limit has enough"),
        (["stranger", "gpt-4", "-c", "tpm=2001"], "LIMITED for ever: 2,001 is more than the capa"),
        (["stranger", "gpt-4", "-c", "foo=1"], "'foo' is not a limit of 'gpt-4'; its limits are"),
        (["stranger", "gpt-4"], "never created, so it has no parent"),
    ],
)
def test_every_kind_of_answer_says_why(cli, args, words):
    found = cli("explain", *args)
    assert found.code == 0
    assert words in found.out


def test_without_limits_it_says_what_to_store(cli, opened):
    opened.delete_system_defaults()
    found = cli("explain", "stranger", "gpt-9").out
    assert "no limits are stored for 'stranger' on 'gpt-9'; store some: zae-limiter" in found


@on_both_engines
@pytest.mark.parametrize(
    ("args", "shown"),
    [
        (["kez-7", "gpt-4"], "'kez-7' was never created, has no limits of its own and no buckets"),
        (["kez-7", "gpt-4"], "did you mean 'key-7'?"),
        (["key-7", "gpt4"], "resource 'gpt4' has no limits and no buckets (did you mean 'gpt-4'?)"),
    ],
)
def test_a_name_that_the_store_does_not_know_is_pointed_out(cli, args, shown):
    found = cli("explain", *args)
    assert found.code == 0
    assert shown in found.err
    data = cli("explain", *args, "--output", "json").json
    assert (data["entity_known"], data["resource_known"]) == ("kez-7" not in args, "gpt-4" in args)


@on_both_engines
def test_names_that_are_known_need_no_hint(cli, opened):
    opened.set_limits("own-limits", [Limit.per_minute("rpm", 1)], "elsewhere")
    with SyncRateLimiter(opened).acquire("in-use", "anything", {"rpm": 1}):
        pass
    for args in (("key-7", "gpt-4"), ("own-limits", "elsewhere"), ("in-use", "anything")):
        assert cli("explain", *args).err == ""


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["project-1", "gpt-4"], 0),
        (["key-7", "gpt-4"], 3),
        (["project-1", "gpt-4", "-c", "rpm=1000"], 3),
        (["project-1", "gpt-4", "-c", "other=1"], 1),
    ],
)
def test_the_exit_code_tells_the_answer_if_asked_for(cli, args, code):
    assert cli("explain", *args).code == 0
    assert cli("explain", *args, "--exit-code").code == code
