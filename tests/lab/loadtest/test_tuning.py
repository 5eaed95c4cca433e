import pytest

from zae_limiter_lab.loadtest.tuning import TuneStep, UserSearch


def searched(latency_ms, most=1000, **options):
    """Search where ``latency_ms`` says how long an acquire of so many users takes."""
    search = UserSearch(most, **options)
    while (users := search.next_users()) is not None:
        took = latency_ms(users)
        search.record(TuneStep(users, users / took * 1000, took, took))
        assert len(search.steps) < 30
    return search


@pytest.mark.parametrize("capacity", [1, 3, 7, 10, 64, 100, 333])
def test_it_finds_where_latency_doubles(capacity):
    """A server that serves so many at once: then each further user waits."""
    search = searched(lambda users: 10.0 * max(1.0, users / capacity))
    assert 0.85 * 2 * capacity <= search.best_users <= 2 * capacity
    assert len(search.steps) <= 16


def test_it_stops_at_the_most_users_if_these_are_still_fast():
    search = searched(lambda users: 5.0, most=50)
    assert search.best_users == 50
    assert [step.users for step in search.steps] == [1, 2, 4, 8, 16, 32, 50]


def test_a_given_latency_counts_instead():
    assert searched(float, max_latency_ms=20).best_users in (19, 20)


def test_not_even_one_user_is_fast_enough():
    search = searched(lambda users: 50.0, max_latency_ms=20)
    assert search.best_users == 0
    assert len(search.steps) == 1


def test_a_step_with_failures_is_not_good():
    search = UserSearch(8)
    search.record(TuneStep(1, 100, 5, 5))
    assert not search.record(TuneStep(2, 100, 5, 5, failures=1)).good
    assert search.next_users() is None


def test_the_json_says_it_all():
    search = searched(lambda users: 10.0 * max(1.0, users / 4))
    assert search.as_dict()["best_users"] == search.best_users
    assert search.as_dict()["per_second"] == pytest.approx(400, rel=0.1)
