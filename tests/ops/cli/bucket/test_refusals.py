"""The commands say what has refused the calls of a key, also if it is on another resource."""

import pytest

from tests.ops.cli.stores import dynamodb_first
from zae_limiter import Limit, RateLimitExceeded, SyncRateLimiter, SyncRepository

KEY, TEAM, MODEL, ALL = "initech/web", "initech", "gpt-4", "all-models"
BY_BUDGET = [TEAM, ALL, "usd"]
REFUSED = 5


def call(limiter, usd="1.00"):
    with limiter.acquire(KEY, MODEL, {"rpm": 1}, also={ALL: {"usd": usd}}):
        pass


def refuse(limiter, times=REFUSED):
    for _ in range(times):
        with pytest.raises(RateLimitExceeded):
            call(limiter)


@pytest.fixture
def office(shell):
    """Open a store in which a key calls a model, and pays from a budget of its team."""

    def office(use):
        with SyncRepository.open(url=shell.url) as repository:
            repository.set_resource_defaults(MODEL, [Limit.per_day("rpm", 1000)])
            repository.set_resource_defaults(ALL, [Limit.per_day("tpm", 1000)])
            repository.set_limits(TEAM, [Limit.budget("usd", "5.00", per="month")], ALL)
            repository.create_entity(TEAM)
            repository.create_entity(KEY, parent_id=TEAM, cascade=True)
            limiter = SyncRateLimiter(repository)
            call(limiter)
            use(limiter)

    return office


def spend(limiter):
    call(limiter, "4.00")
    refuse(limiter)


@dynamodb_first
def test_explain_without_the_further_resource_names_what_refused_the_last_call(shell, office):
    office(spend)
    found = shell("explain", KEY, MODEL)
    assert "Last rejection of initech/web on gpt-4: " in found.out
    assert "by usd of initech on all-models" in found.out
    assert "ADMITTED: every limit has enough, but" in found.out
    assert "--also all-models usd=AMOUNT" in found.out
    answer = shell("explain", KEY, MODEL, "--output", "json").json
    assert (answer["answer"], answer["limited_by"]) == ("admitted", None)
    assert answer["last_limited_by"] == BY_BUDGET
    assert answer["last_rejected_at"].endswith("Z")
    wanted = ("--also-of", TEAM, ALL, "usd=1", "-c", "rpm=1")
    answer = shell("explain", KEY, MODEL, *wanted, "--output", "json").json
    assert (answer["answer"], answer["limited_by"]) == ("limited", BY_BUDGET)


@dynamodb_first
def test_explain_of_a_key_that_nothing_has_refused_names_nothing(shell, office):
    office(lambda _: None)
    assert "Last rejection" not in shell("explain", KEY, MODEL).out
    answer = shell("explain", KEY, MODEL, "--output", "json").json
    assert (answer["limited_by"], answer["last_limited_by"]) == (None, None)
    assert answer["last_rejected_at"] is None


@dynamodb_first
def test_a_limited_bucket_is_listed_with_what_refused_its_calls(shell, office):
    office(spend)
    found = shell("bucket", "list", "--limited", "--output", "json").json["buckets"]
    by_bucket = {(each["entity_id"], each["resource"]): each for each in found}
    asked = by_bucket[KEY, MODEL]
    assert (asked["rejected"], asked["limited_by"]) == (REFUSED, BY_BUDGET)
    assert (asked["last_limited_by"], asked["refused_by"]) == (BY_BUDGET, [TEAM])
    assert asked["fits_after_seconds"] > 0, "the call does not fit before the budget does"
    assert by_bucket[TEAM, ALL]["limited_by"] == BY_BUDGET
    lines = shell("bucket", "list", "--limited").out.splitlines()
    (line,) = (line for line in lines if line.startswith(f"{KEY}  {MODEL}"))
    assert "usd of initech" in line
    assert " now " not in line


@dynamodb_first
def test_one_key_is_listed_with_what_refused_it_elsewhere(shell, office):
    office(spend)
    options = ("--entity", KEY, "--resource", MODEL, "--output", "json")
    (asked,) = shell("bucket", "list", "--limited", *options).json["buckets"]
    assert asked["limited_by"] == BY_BUDGET
    assert asked["fits_after_seconds"] > 0


@dynamodb_first
def test_a_call_that_fits_again_is_listed_as_such(shell, office):
    def use(limiter):
        spend(limiter)
        limits = [Limit.budget("usd", "50.00", per="month")]
        limiter.repository.set_limits(TEAM, limits, ALL)
        call(limiter)

    office(use)
    options = ("--entity", KEY, "--resource", MODEL, "--output", "json")
    (asked,) = shell("bucket", "list", "--limited", *options).json["buckets"]
    assert asked["last_limited_by"] == BY_BUDGET
    assert asked["fits_after_seconds"] == 0


@dynamodb_first
def test_usage_counts_each_call_once_and_names_what_refused(shell, office):
    office(spend)
    windows = shell("usage", "list", "--output", "json").json["snapshots"]
    counts = ("calls", "total_events", "rejected_calls", "rejected")
    counted = {
        (each["entity_id"], each["resource"]): tuple(each[name] for name in counts)
        for each in windows
    }
    assert counted == {
        (KEY, MODEL): (2, 2, REFUSED, REFUSED),
        (KEY, ALL): (0, 2, 0, REFUSED),
        (TEAM, MODEL): (0, 2, 0, 0),
        (TEAM, ALL): (0, 2, 0, REFUSED),
    }
    named = [each["limited_by"] for each in windows if each["rejected"]]
    assert named == [BY_BUDGET] * 3
    summary = shell("usage", "summary", "--output", "json").json
    assert (summary["calls"], summary["rejected"]) == (2, REFUSED)
    assert summary["limited_by"] == BY_BUDGET
    text = shell("usage", "summary").out
    assert "2 calls admitted" in text
    assert f"{REFUSED} calls rejected" in text
    (consumer,) = shell("usage", "top", "--output", "json").json["consumers"]
    assert (consumer["entity_id"], consumer["calls"], consumer["rejected_calls"]) == (
        KEY,
        2,
        REFUSED,
    )
