"""What the host's clock is allowed to do."""

import pytest

from zae_limiter.clock import HostClock

SECOND_NS = 1_000_000_000
START_NS = 1_800_000_000 * SECOND_NS


class Host:
    """Time since boot, and a wall clock that can be set."""

    def __init__(self):
        self.boot_ns = 1000 * SECOND_NS
        self.off_ns = 0
        self.clock = HostClock(self.wall_ns, lambda: self.boot_ns)

    def wall_ns(self):
        return START_NS + self.boot_ns + self.off_ns

    def pass_seconds(self, seconds):
        """Let time pass with a reading every tenth of a second; how far off the last one is."""
        for _ in range(round(seconds * 10)):
            self.boot_ns += SECOND_NS // 10
            self.clock()
        return self.off_seconds()

    def off_seconds(self):
        return (self.clock() * 1_000_000 - START_NS - self.boot_ns) / SECOND_NS


@pytest.mark.parametrize("step", [3, 3600, 86_400])
def test_a_host_clock_that_stays_ahead_is_adopted_after_five_seconds(step):
    host = Host()
    host.pass_seconds(3)
    host.off_ns = step * SECOND_NS
    assert host.pass_seconds(4.5) == 0
    assert host.pass_seconds(3) == step


@pytest.mark.parametrize("step", [-3, -60])
def test_a_host_clock_that_stays_behind_is_agreed_with_in_the_end(step):
    host = Host()
    host.pass_seconds(3)
    host.off_ns = step * SECOND_NS
    assert host.pass_seconds(4.5) == 0
    assert abs(host.pass_seconds(10 - 3 * step) - step) <= 2


@pytest.mark.parametrize("step", [3, -3600])
def test_a_step_of_the_host_clock_that_is_taken_back_is_never_seen(step):
    host = Host()
    for _ in range(5):
        host.off_ns = step * SECOND_NS
        assert host.pass_seconds(4) == 0
        host.off_ns = 0
        assert host.pass_seconds(2) == 0


def test_a_small_drift_of_the_host_clock_is_ignored():
    host = Host()
    for off in (1.9, -1.9, 2.0, 0.5):
        host.off_ns = round(off * SECOND_NS)
        assert host.pass_seconds(8) == 0


def test_a_drift_that_grows_is_followed_once_it_is_large():
    host = Host()
    for _ in range(600):
        host.off_ns += SECOND_NS // 100
        host.pass_seconds(1)
        assert abs(host.off_seconds() - host.off_ns / SECOND_NS) < 2.1
    assert host.off_seconds() > 3


def test_the_host_clock_never_goes_back_by_a_step_that_is_taken_back():
    host = Host()
    readings = []
    for off in (0, -10, 0, -10, 0):
        host.off_ns = off * SECOND_NS
        host.pass_seconds(3)
        readings.append(host.clock())
    assert readings == sorted(readings)
