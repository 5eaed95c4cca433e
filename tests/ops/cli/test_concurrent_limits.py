"""Limits on calls in flight, as the commands take and show them."""

from zae_limiter import SyncRateLimiter, SyncRepository


def test_calls_in_flight_are_set_shown_and_explained(shell):
    shell("system", "set-defaults", "-l", "parallel:2/concurrent:90s", "-l", "rpm:60")
    assert "in flight, 90s" in shell("system", "get-defaults").out
    limits = shell("system", "get-defaults", "--output", "json").json["limits"]
    assert limits[0] == {"name": "parallel", "concurrent": 2, "lease_ttl": 90}
    assert "ADMITTED" in shell("explain", "user", "api").out
    with SyncRepository.open(url=shell.url) as repository:
        limiter = SyncRateLimiter(repository)
        with limiter.acquire("user", "api", {}), limiter.acquire("user", "api", {"rpm": 1}):
            explained = shell("explain", "user", "api").out
            assert "0 of 2 slots free" in explained
            shown = shell("bucket", "show", "user", "--output", "json").json["buckets"][0]
            assert (shown["limit_name"], shown["level_milli"], shown["capacity"]) == (
                "parallel",
                0,
                2,
            )
            assert (shown["retry_after_seconds"], shown["full_after_seconds"]) == (1, 90)
            assert "parallel" in shell("bucket", "list", "--near", "100").out
    assert "ADMITTED" in shell("explain", "user", "api").out


def test_a_wrong_lease_is_refused_with_the_right_form(shell):
    ran = shell.run("system", "set-defaults", "-l", "parallel:2/concurrent:1s")
    assert ran.code == 2
    assert "lease_ttl" in ran.err
    assert "from 3 to 86400" in ran.err
