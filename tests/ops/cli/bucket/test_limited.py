"""bucket list --limited and explain tell what has rejected callers lately, on every engine."""

import pytest

from tests.ops.cli.stores import dynamodb_first
from zae_limiter import Limit, RateLimitExceeded, SyncRateLimiter, SyncRepository

TPM = Limit.per_day("tpm", 1000)  # slow, so that levels hardly change during a test
REJECTED = 7


def reject(limiter, entity_id, amount, times=1, resource="gpt-5"):
    for _ in range(times):
        with (
            pytest.raises(RateLimitExceeded),
            limiter.acquire(entity_id, resource, {"tpm": amount}),
        ):
            pass


@pytest.fixture
def store(shell):
    """Fill the store with a function of a limiter, and close it: counts are stored then."""

    def fill(use):
        with SyncRepository.open(url=shell.url) as repository:
            repository.set_resource_defaults("gpt-5", [TPM])
            use(SyncRateLimiter(repository))

    return fill


def limited(shell, *args):
    return shell("bucket", "list", "--limited", *args, "--output", "json").json["buckets"]


@dynamodb_first
def test_a_bucket_with_tokens_left_that_rejects_its_callers_is_limited(shell, store):
    def use(limiter):
        with limiter.acquire("key-1", "gpt-5", {"tpm": 887}):
            pass
        reject(limiter, "key-1", 200)
        reject(limiter, "key-1", 300, REJECTED - 1)
        with limiter.acquire("key-2", "gpt-5", {"tpm": 1000}):  # empty, and nobody was rejected
            pass

    store(use)
    (bucket,) = limited(shell)
    (limit,) = bucket["limits"]
    assert (bucket["entity_id"], bucket["rejected"]) == ("key-1", REJECTED)
    assert bucket["refused_by"] == ["key-1"]
    assert (limit["limit_name"], limit["asked"]) == ("tpm", 300)
    assert 113_000 <= limit["level_milli"] < 200_000
    assert 0 < limit["asked_after_seconds"] <= 86_400 * 0.187
    found = shell("bucket", "list", "--limited")
    assert "1 bucket has rejected callers in this hour or the last" in found.err
    (line,) = (line for line in found.out.splitlines() if line.startswith("key-1"))
    assert " 300 " in line
    assert f" {REJECTED} " in line


@dynamodb_first
def test_explain_asks_for_what_was_rejected_lately(shell, store):
    def use(limiter):
        with limiter.acquire("key-1", "gpt-5", {"tpm": 887}):
            pass
        reject(limiter, "key-1", 300)

    store(use)
    found = shell("explain", "key-1", "gpt-5")
    assert "acquire key-1 on gpt-5: tpm=300" in found.out
    assert "the largest amounts that were rejected in this hour or the last" in found.out
    assert "LIMITED" in found.out
    answer = shell("explain", "key-1", "gpt-5", "--output", "json").json
    assert (answer["consume"], answer["consume_source"]) == ({"tpm": 300}, "rejected")
    answer = shell("explain", "key-1", "gpt-5", "-c", "tpm=1", "--output", "json").json
    assert (answer["answer"], answer["consume_source"]) == ("admitted", "given")
    answer = shell("explain", "key-2", "gpt-5", "--output", "json").json
    assert (answer["consume"], answer["consume_source"]) == ({"tpm": 1}, "default")


@dynamodb_first
def test_the_child_that_asked_and_the_parent_that_refused_are_shown(shell, store):
    def use(limiter):
        repository = limiter.repository
        repository.create_entity("team")
        for child in ("key-1", "key-2", "key-3"):
            repository.create_entity(child, parent_id="team", cascade=True)
        with limiter.acquire("team", "gpt-5", {"tpm": 900}):
            pass
        reject(limiter, "key-1", 400, 2)
        reject(limiter, "key-2", 300, 1)

    store(use)
    found = {bucket["entity_id"]: bucket for bucket in limited(shell)}
    assert {name: bucket["rejected"] for name, bucket in found.items()} == {
        "key-1": 2,
        "key-2": 1,
        "team": 3,
    }
    assert found["key-1"]["refused_by"] == ["team"]
    assert found["team"]["refused_by"] == ["team"]
    asked = {name: bucket["limits"][0]["asked"] for name, bucket in found.items()}
    assert asked == {"key-1": 400, "key-2": 300, "team": 400}
    names = [bucket["entity_id"] for bucket in limited(shell, "--entity", "key-2")]
    assert sorted(names) == ["key-2", "team"]
    answer = shell("explain", "key-2", "gpt-5", "--output", "json").json
    assert (answer["answer"], answer["consume"]) == ("limited", {"tpm": 300})


@dynamodb_first
def test_an_amount_above_the_capacity_never_fits(shell, store):
    store(lambda limiter: reject(limiter, "key-1", 1001))
    (bucket,) = limited(shell)
    (limit,) = bucket["limits"]
    assert (limit["asked"], limit["asked_after_seconds"]) == (1001, None)
    assert limit["level_milli"] == 1_000_000
    assert "never" in shell("bucket", "list", "--limited").out


@dynamodb_first
def test_a_paused_bucket_says_so(shell, store):
    def use(limiter):
        with limiter.acquire("key-1", "gpt-5", {"tpm": 1}):
            pass
        limiter.pause("key-1", "gpt-5", 300)
        reject(limiter, "key-1", 5)

    store(use)
    for args in ((), ("--limited",)):
        found = shell("bucket", "list", *args).out
        (line,) = (line for line in found.splitlines() if line.startswith("key-1"))
        assert "paused, in 4 min" in line or "paused, in 5 min" in line


@pytest.fixture
def family(store):
    """A team with few tokens; keys with room of their own, with other limits, and without room."""

    def use(limiter):
        repository = limiter.repository
        repository.create_entity("team")
        for child in ("roomy", "other", "greedy"):
            repository.create_entity(child, parent_id="team", cascade=True)
        repository.set_limits("other", [Limit.per_day("rpm", 100)], "gpt-5")
        with limiter.acquire("team", "gpt-5", {"tpm": 900}):
            pass
        reject(limiter, "roomy", 400)
        reject(limiter, "other", 300)
        repository.set_limits("greedy", [Limit.per_day("tpm", 60)], "gpt-5")
        with limiter.acquire("greedy", "gpt-5", {"tpm": 50}):
            pass
        reject(limiter, "greedy", 40)

    store(use)


@dynamodb_first
def test_a_child_that_its_parent_has_stopped_fits_when_its_parent_does(shell, family):
    found = {bucket["entity_id"]: bucket for bucket in limited(shell)}
    (own,), (of_team,) = found["roomy"]["limits"], found["team"]["limits"]
    assert own["asked"] == of_team["asked"] == 400
    assert own["asked_after_seconds"] == pytest.approx(of_team["asked_after_seconds"], abs=60)
    lines = shell("bucket", "list", "--limited").out.splitlines()
    (line,) = (line for line in lines if line.startswith("roomy"))
    assert " now " not in line


@dynamodb_first
def test_a_limit_that_only_the_parent_has_is_shown_with_its_amount(shell, family):
    found = {bucket["entity_id"]: bucket for bucket in limited(shell)}
    assert (found["other"]["asked"], found["other"]["refused_by"]) == ({"tpm": 300}, ["team"])
    lines = shell("bucket", "list", "--limited").out.splitlines()
    (line,) = (line for line in lines if line.startswith("other"))
    assert " tpm " in line
    assert " 300 " in line
    assert " in " in line


@dynamodb_first
def test_a_parent_that_holds_enough_has_not_refused_a_child(shell, family):
    found = {bucket["entity_id"]: bucket for bucket in limited(shell)}
    assert found["greedy"]["refused_by"] == ["greedy"]
    assert found["team"]["rejected"] == 2


@dynamodb_first
def test_limits_of_calls_that_reject_from_the_first_one_on_are_listed(shell, store):
    def use(limiter):
        for _ in range(3):
            with (
                pytest.raises(RateLimitExceeded),
                limiter.acquire("key-1", "own", {"x": 300}, limits=[Limit.per_day("x", 100)]),
            ):
                pass

    store(use)
    (bucket,) = limited(shell)
    assert (bucket["entity_id"], bucket["resource"]) == ("key-1", "own")
    assert (bucket["rejected"], bucket["asked"]) == (3, {"x": 300})
    lines = shell("bucket", "list", "--limited").out.splitlines()
    (line,) = (line for line in lines if line.startswith("key-1"))
    assert " 300 " in line


@dynamodb_first
def test_explain_says_so_if_it_asks_for_one_of_each_limit(shell, store):
    """The limit that has rejected callers is no longer in force."""

    def use(limiter):
        reject(limiter, "key-1", 1001)
        limiter.repository.set_limits("key-1", [Limit.per_day("rpm", 5)], "gpt-5")

    store(use)
    answer = shell("explain", "key-1", "gpt-5", "--output", "json").json
    assert (answer["consume"], answer["consume_source"]) == ({"rpm": 1}, "default")
