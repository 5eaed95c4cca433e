"""The time that the processes of a machine share, without the file."""

import pytest

from zae_limiter.clock import SharedClock, SharedTime

SECOND_NS = 1_000_000_000
BOOT_NS = 10**15
OFFSET_NS = 1_800_000_000 * SECOND_NS


class Host:
    """A boot clock and a wall clock; ``clock`` follows what is stored, re-read once a second."""

    def __init__(self):
        self.boot_ns, self.offset_ns = BOOT_NS, OFFSET_NS
        self.clock = self.new_clock()
        self.stored = self.clock.first_time(None, is_this_boot=True)

    def new_clock(self):
        return SharedClock(lambda: self.boot_ns + self.offset_ns, lambda: self.boot_ns)

    def live(self, seconds):
        for _ in range(seconds):
            before_ms = self.clock()
            self.boot_ns += SECOND_NS
            self.clock.set(self.stored)
            self.stored = self.clock.correction(self.stored) or self.stored
            assert self.clock() >= before_ms

    def off_s(self):
        """How far the clock is from the time that the host showed at the start."""
        return (self.clock() * 1_000_000 - self.boot_ns - OFFSET_NS) / SECOND_NS


@pytest.fixture
def host():
    return Host()


@pytest.mark.parametrize("step_s", [1.9, -1.9])
def test_a_small_step_of_the_host_s_clock_changes_nothing(host, step_s):
    host.offset_ns += round(step_s * SECOND_NS)
    host.live(30)
    assert host.off_s() == 0


def test_a_step_that_is_taken_back_is_not_stored(host):
    for step_s in (100, -100, 3, -3600):
        host.offset_ns = OFFSET_NS + step_s * SECOND_NS
        host.live(5)
        host.offset_ns = OFFSET_NS
        host.live(2)
    assert host.stored == SharedTime.at_offset(OFFSET_NS)


def test_a_correction_begins_later_than_every_process_has_read_it(host):
    host.offset_ns += 3600 * SECOND_NS
    host.live(6)
    assert host.stored.next_since_ns == host.boot_ns + 3 * SECOND_NS
    host.live(2)
    assert host.off_s() == 0
    host.live(1)
    assert host.off_s() == 3600


def test_a_host_that_was_set_back_is_waited_for_at_half_speed(host):
    host.offset_ns -= 10 * SECOND_NS
    host.live(6 + 3 + 10)
    assert host.off_s() == -5
    host.live(10)
    assert host.off_s() == -10


def test_a_correction_is_corrected_while_it_is_under_way(host):
    host.offset_ns -= 3600 * SECOND_NS
    host.live(6 + 3 + 10)
    assert host.off_s() == -5
    host.offset_ns = OFFSET_NS
    host.live(6 + 3)
    assert host.off_s() == 0


def test_a_process_that_starts_during_a_correction_shows_the_same_time(host):
    host.offset_ns -= 10 * SECOND_NS
    for _ in range(40):
        host.live(1)
        another = host.new_clock()
        another.set(another.first_time(host.stored, is_this_boot=True))
        assert another() == host.clock()


@pytest.mark.parametrize("off_s", [0, 9, -9])
def test_without_a_boot_id_an_offset_that_is_close_is_believed(host, off_s):
    stored = SharedTime.at_offset(OFFSET_NS + off_s * SECOND_NS)
    assert host.clock.first_time(stored, is_this_boot=False) is stored


@pytest.mark.parametrize("off_s", [11, -11])
def test_without_a_boot_id_an_offset_that_is_far_off_is_of_an_earlier_boot(host, off_s):
    stored = SharedTime.at_offset(OFFSET_NS + off_s * SECOND_NS)
    own = SharedTime.at_offset(OFFSET_NS)
    assert host.clock.first_time(stored, is_this_boot=False) == own
    assert host.clock.first_time(stored, is_this_boot=True) is stored
