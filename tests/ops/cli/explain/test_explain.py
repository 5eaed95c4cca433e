"""explain predicts the answer to the next acquire."""

import json
import random

import pytest

from tests.ops.cli.stores import on_both_engines, sqlite_first
from zae_limiter import Limit, RateLimitExceeded, SyncRateLimiter, SyncRepository, ValidationError
from zae_limiter.testing import FakeClock
from zae_limiter_ops.views.advice import GivenOptions
from zae_limiter_ops.views.explanation import explain_acquire

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
        elif action == 7:
            self.set_mode(entity_id, resource)
        else:
            self.use(entity_id, resource)
        self.clock.advance(ms=rng.choice((0, 0, 1, 250, 999, 5000, 60_000)))

    def set_mode(self, entity_id, resource):
        rng = self.rng
        place = rng.choice(((resource, None), (None, entity_id), (resource, entity_id)))
        mode = rng.choice((None, None, "enforce", "shadow", "bypass", "deny"))
        ends = mode is not None and (mode != "enforce" or place[1])
        until = self.clock() / 1000 + 30 if ends and rng.random() < 0.7 else None
        self.repository.set_mode(*place, mode, until)

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
                for name, held in lease.consumed.items():
                    lease.adjust(**{name: self.rng.randint(-min(5, held), 60)})
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
    kinds = ("admitted", "limited", "error", "cascade", "both refuse", "debt", "denied")
    seen = dict.fromkeys(kinds, 0)
    with SyncRepository.open(url=empty_url, clock=clock) as repository:
        scene = Scene(rng, repository, clock)
        for _ in range(states):
            for _ in range(rng.randint(1, 4)):
                scene.step()
            entity_id, resource = rng.choice(ENTITIES), rng.choice(RESOURCES)
            consume = scene.amounts(entity_id, resource) if rng.random() < 0.8 else None
            found = explain_acquire(
                scene.limiter, entity_id, resource, consume, given=GivenOptions()
            )
            answer, statuses, retry = acquired(scene.limiter, entity_id, resource, found.consume)
            assert found.answer == answer
            is_denied = statuses and any(status.mode == "deny" for status in statuses)
            seen["denied"] += bool(is_denied)
            if answer == "limited" and not is_denied:  # a denied call reads no bucket
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


@sqlite_first
def test_the_command_agrees_with_a_limiter_on_the_same_file(cli, opened):
    assert cli("explain", "key-7", "gpt-4", "--output", "json").json["answer"] == "limited"
    assert acquired(SyncRateLimiter(opened), "key-7", "gpt-4", {"rpm": 1})[0] == "limited"
    opened.reset_bucket("key-7", "gpt-4")
    assert cli("explain", "key-7", "gpt-4", "--output", "json").json["answer"] == "admitted"
    assert acquired(SyncRateLimiter(opened), "key-7", "gpt-4", {"rpm": 1})[0] == "admitted"


@sqlite_first
def test_it_names_the_mode_and_the_command_that_ends_a_denial(cli, opened):
    opened.set_mode("gpt-4", mode="deny")
    answer = cli("explain", "key-7", "gpt-4").out.splitlines()[-1]
    assert answer.endswith("is denied; to end it: zae-limiter resource set-mode gpt-4 enforce")
    opened.set_mode("gpt-4", mode="enforce")
    opened.set_mode("gpt-4", "key-7", "deny", until=4_000_000_000)
    out = cli("explain", "key-7", "gpt-4").out
    assert "mode: deny until 2096-10-02T07:06:40Z (entity, this resource)" in out
    assert out.rstrip().endswith("zae-limiter entity set-mode key-7 inherit -r gpt-4")
    opened.set_mode("gpt-4", "key-7", "bypass")
    opened.set_mode(entity_id="project-1", mode="shadow")
    found = cli("explain", "key-7", "gpt-4", "--output", "json").json
    assert found["answer"] == "admitted"
    modes = [(each["mode"], each["mode_source"]) for each in found["resolution"]]
    assert modes == [("bypass", "entity"), ("shadow", "entity_default")]


@sqlite_first
def test_it_takes_nothing(cli, opened):
    before = opened.get_buckets("project-1"), opened.get_audit_events("key-7")
    cli("explain", "key-7", "gpt-4")
    after = opened.get_buckets("project-1"), opened.get_audit_events("key-7")
    assert [state.total_consumed_milli for state in before[0]] == [
        state.total_consumed_milli for state in after[0]
    ]
    assert before[1] == after[1]


@sqlite_first
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
        (["stranger", "gpt-4"], "never created, so it has no parent"),
    ],
)
def test_every_kind_of_answer_says_why(cli, args, words):
    found = cli("explain", *args)
    assert found.code == 0
    assert words in found.out


@pytest.mark.parametrize("amounts", [["-c", "foo=1"], ["-c", "rpm=1", "--also", "gpt-4", "foo=1"]])
def test_an_unknown_limit_is_an_error(cli, amounts):
    found = cli("explain", "stranger", "gpt-4", *amounts)
    assert found.code == 1
    assert "is not a limit of 'gpt-4'; its limits are" in found.out
    shown = cli("explain", "stranger", "gpt-4", *amounts, "--output", "json")
    assert (shown.code, json.loads(shown.out)["answer"]) == (1, "error")


def test_without_limits_it_says_what_to_store(cli, opened):
    opened.delete_system_defaults()
    found = cli("explain", "stranger", "gpt-9").out
    assert "no limits are stored for 'stranger' on 'gpt-9'; store some: zae-limiter" in found


@pytest.mark.each_value_once
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


@sqlite_first
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
    assert cli("explain", *args).code == (1 if "other=1" in args else 0)
    assert cli("explain", *args, "--exit-code").code == code


@sqlite_first
def test_it_names_the_resource_that_refuses(cli, opened):
    opened.set_resource_defaults("all-models", [Limit.budget("usd", "10.00", per="month")])
    opened.reset_bucket("key-7", "gpt-4")
    asked = ("explain", "key-7", "gpt-4", "-c", "rpm=1", "--also", "all-models")
    assert "ADMITTED" in cli(*asked, "usd=9.5").out
    out = cli(*asked, "usd=10.5").out
    assert "   and key-7 on all-models: usd=10.5" in out
    assert "LIMITED for ever: 10.50 is more than the amount of usd of key-7 on all-models" in out
    with SyncRateLimiter(opened).acquire("key-7", "all-models", {"usd": 9}):
        answer = cli(*asked, "usd=2").out.splitlines()[-1]
        assert "of key-7 on all-models, usd: 1" in answer
        found = cli(*asked, "usd=2", "--output", "json").json
    assert found["also"] == [
        {"entity_id": "key-7", "resource": "all-models", "consume": {"usd": 2}}
    ]
    assert ("key-7", "all-models") in [
        (each["entity_id"], each["resource"]) for each in found["resolution"]
    ]
    refused = [each["resource"] for each in found["limits"] if each["exceeded"]]
    assert set(refused) == {"all-models"}


def test_it_asks_for_resources_of_another_entity(cli, opened):
    opened.reset_bucket("key-7", "gpt-4")
    out = cli("explain", "key-7", "gpt-4", "-c", "rpm=1", "--also-of", "boss", "gpt-4", "rpm=1").out
    assert "   and boss on gpt-4: rpm=1" in out
    assert "Limits of boss on gpt-4" in out


def test_too_many_further_resources_are_refused(cli):
    further = [word for at in range(4) for word in ("--also", f"model-{at}", "rpm=1")]
    assert "at most 3 further resources" in cli("explain", "key-7", "gpt-4", *further).out
