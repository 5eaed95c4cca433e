"""A clock that a server's Date headers set."""

import pytest

from zae_limiter.clock import ServerClock

SECOND_NS = 1_000_000_000
START_NS = 1_800_000_000 * SECOND_NS


class World:
    """True time is the server's; the host's wall clock is off by what it was set to."""

    def __init__(self, off_s=0.0):
        self.boot_ns = 1000 * SECOND_NS
        self.wall_off_ns = round(off_s * SECOND_NS)
        self.server_off_ns = 0
        self.clock = ServerClock(self.wall_ns, lambda: self.boot_ns)

    def true_ns(self):
        return START_NS + self.boot_ns

    def wall_ns(self):
        return self.true_ns() + self.wall_off_ns

    def pass_seconds(self, seconds):
        """Let time pass with readings; they must never go back."""
        before = self.clock()
        for _ in range(round(seconds * 10)):
            self.boot_ns += SECOND_NS // 10
            assert self.clock() >= before
            before = self.clock()

    def hear(self, there_ms=10, back_ms=10):
        """One answer of the server."""
        sent_ns = self.boot_ns
        self.boot_ns += there_ms * 1_000_000
        date_ms = (self.true_ns() + self.server_off_ns) // SECOND_NS * 1000
        self.boot_ns += back_ms * 1_000_000
        self.clock.observe(date_ms, sent_ns, self.boot_ns)

    def live(self, seconds, every_s=0.5, **answers):
        for _ in range(round(seconds / every_s)):
            self.pass_seconds(every_s)
            self.hear(**answers)

    def off_s(self):
        """How far the clock is from true time."""
        return (self.clock() * 1_000_000 - self.true_ns()) / SECOND_NS


@pytest.mark.parametrize("off", [3.5, 600, 86_400, -3.5, -600, -86_400])
def test_a_process_that_starts_with_a_wrong_clock_is_right_after_one_answer(off):
    world = World(off)
    assert world.off_s() == pytest.approx(off, abs=0.01)
    world.hear()
    assert abs(world.off_s()) < 0.6


@pytest.mark.parametrize("off", [0, 0.4, -0.4, 1.9, -1.9])
def test_a_clock_that_is_about_right_is_left_alone(off):
    world = World(off)
    world.hear()
    assert world.off_s() == pytest.approx(off, abs=0.01)
    world.live(60)
    assert world.off_s() == pytest.approx(off, abs=0.01)


@pytest.mark.parametrize("fraction", [0.0, 0.25, 0.5, 0.999])
def test_the_part_of_a_second_that_a_date_does_not_tell_is_not_taken_for_an_error(fraction):
    for off in (1.95, -1.95):
        world = World(off)
        world.boot_ns += round(fraction * SECOND_NS)
        world.hear(there_ms=0, back_ms=0)
        assert world.off_s() == pytest.approx(off, abs=0.01)


def test_a_slow_answer_is_not_taken_for_an_error():
    """The date may have been read when it was sent or when it arrived."""
    for there_ms, back_ms in ((4000, 10), (10, 4000)):
        world = World()
        world.hear()
        world.live(30, there_ms=there_ms, back_ms=back_ms)
        assert abs(world.off_s()) < 0.01


@pytest.mark.parametrize("step", [3, 3600, -3, -3600])
def test_steps_of_the_hosts_clock_do_not_matter_once_the_server_was_heard(step):
    world = World()
    world.hear()
    world.wall_off_ns = step * SECOND_NS
    world.live(30)
    assert abs(world.off_s()) < 0.01
    world.pass_seconds(3600)
    assert abs(world.off_s()) < 0.01


def test_until_the_server_is_heard_the_host_counts():
    world = World()
    world.wall_off_ns = 10 * SECOND_NS
    world.pass_seconds(4)
    assert abs(world.off_s()) < 0.01
    world.pass_seconds(4)
    assert world.off_s() == pytest.approx(10, abs=0.01)


@pytest.mark.parametrize("ahead", [4, 3600])
def test_a_server_that_stays_ahead_is_followed_after_five_seconds(ahead):
    world = World()
    world.live(3)
    world.server_off_ns = ahead * SECOND_NS
    world.live(4.5)
    assert abs(world.off_s()) < 0.01
    world.live(2)
    assert world.off_s() == pytest.approx(ahead, abs=0.6)


@pytest.mark.parametrize("behind", [4, 60])
def test_a_server_that_stays_behind_is_waited_for_at_half_speed(behind):
    world = World()
    world.live(3)
    world.server_off_ns = -behind * SECOND_NS
    world.live(4.5)
    assert abs(world.off_s()) < 0.01
    world.live(1.5 + behind)
    assert -behind < world.off_s() < -behind / 4
    world.live(behind + 10)
    assert world.off_s() == pytest.approx(-behind, abs=2.1)
    there = world.off_s()
    world.live(30)
    assert world.off_s() == pytest.approx(there, abs=0.01)


@pytest.mark.parametrize("step", [4, -3600])
def test_a_server_that_is_wrong_for_a_moment_is_not_followed(step):
    world = World()
    world.hear()
    for _ in range(5):
        world.server_off_ns = step * SECOND_NS
        world.live(4)
        world.server_off_ns = 0
        world.live(2)
        assert abs(world.off_s()) < 0.01


def test_rare_answers_count_as_much():
    world = World()
    world.hear()
    world.server_off_ns = 100 * SECOND_NS
    world.live(120, every_s=60)
    assert world.off_s() == pytest.approx(100, abs=0.6)


def test_answers_that_overtake_each_other_do_no_harm():
    world = World()
    world.hear()
    sent_ns = world.boot_ns
    date_ms = world.true_ns() // SECOND_NS * 1000
    world.live(10)
    for _ in range(3):
        world.clock.observe(date_ms, sent_ns, world.boot_ns)
        world.live(3)
    assert abs(world.off_s()) < 0.01


def test_a_correction_is_corrected():
    world = World()
    world.hear()
    world.server_off_ns = -60 * SECOND_NS
    world.live(20)
    world.server_off_ns = 60 * SECOND_NS
    world.live(10)
    assert world.off_s() == pytest.approx(60, abs=0.6)


def test_a_real_clock_starts_at_the_hosts_time():
    import time

    assert abs(ServerClock()() - time.time() * 1000) < 50
