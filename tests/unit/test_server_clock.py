"""A clock that a server's Date headers set: the rules of docs/contributing/clocks.md."""

import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from zae_limiter.clock import ServerClock
from zae_limiter.clock.bounds import Interval, OffsetBounds

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


FAR_OFF = [3.5, 600, 86_400, -3.5, -600, -86_400]


@pytest.mark.parametrize("off", FAR_OFF)
def test_a_process_that_starts_with_a_wrong_clock_is_right_after_two_answers(off):
    world = World(off)
    world.hear()
    world.hear()
    assert abs(world.off_s()) < 0.6


@pytest.mark.parametrize("off", FAR_OFF)
def test_a_first_date_that_is_far_off_is_not_believed_alone(off):
    world = World(off)
    world.hear()
    assert world.off_s() == pytest.approx(off, abs=0.01)


@pytest.mark.parametrize("wrong", [7200, -7200])
def test_one_wrong_date_among_right_ones_changes_nothing(wrong):
    for right_before in (0, 1, 5):
        world = World()
        for _ in range(right_before):
            world.hear()
        world.server_off_ns = wrong * SECOND_NS
        world.hear()
        world.server_off_ns = 0
        world.hear()
        assert abs(world.off_s()) < 0.01
        world.live(30)
        assert abs(world.off_s()) < 0.01


def test_a_clock_that_is_right_is_left_alone():
    world = World()
    world.live(60)
    assert world.off_s() == pytest.approx(0, abs=0.001)


@pytest.mark.parametrize("off", [0.1, -0.1, 0.4, -0.4, 1.4, -1.4])
def test_a_clock_that_is_less_than_two_seconds_off_is_corrected_slowly(off):
    world = World(off)
    world.pass_seconds(0.1)  # a reading: from now on it must not jump
    for _ in range(60):
        before_s = world.off_s()
        world.live(1, every_s=0.1)
        assert abs(world.off_s() - before_s) <= 0.125
    assert abs(world.off_s()) < 0.03


def test_until_its_first_reading_the_clock_may_jump():
    world = World(1.9)
    for _ in range(150):
        world.boot_ns += 93 * SECOND_NS // 1000
        world.hear()
    assert abs(world.off_s()) < 0.03


@pytest.mark.parametrize("fraction", [0.0, 0.25, 0.5, 0.999])
def test_the_part_of_a_second_that_a_date_does_not_tell_is_not_taken_for_a_contradiction(fraction):
    for off in (1.95, -1.95):
        world = World(off)
        world.boot_ns += round(fraction * SECOND_NS)
        world.hear(there_ms=0, back_ms=0)
        assert abs(world.off_s()) <= 1.0


def test_a_slow_answer_is_not_taken_for_an_error():
    """The date may have been read when it was sent or when it arrived."""
    for there_ms, back_ms in ((4000, 10), (10, 4000)):
        world = World()
        world.hear()
        world.live(30, there_ms=there_ms, back_ms=back_ms)
        assert abs(world.off_s()) < 0.01


@pytest.mark.parametrize("step", [3, 3600, -3, -3600])
def test_steps_of_the_hosts_clock_hardly_matter_once_the_server_was_heard(step):
    world = World()
    world.live(30, every_s=0.1)
    world.wall_off_ns = step * SECOND_NS
    world.live(30, every_s=0.1)
    assert abs(world.off_s()) < 0.03
    world.pass_seconds(3600)
    assert abs(world.off_s()) < 0.03


def test_until_the_server_is_heard_the_host_counts():
    world = World(10)
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
    world.live(behind + 30)
    assert world.off_s() == pytest.approx(-behind, abs=0.1)


@pytest.mark.parametrize("step", [4, -3600])
def test_a_server_that_is_wrong_for_a_moment_is_not_followed(step):
    world = World()
    world.live(3)
    for _ in range(5):
        world.server_off_ns = step * SECOND_NS
        world.live(2)
        world.server_off_ns = 0
        world.live(4)
        assert abs(world.off_s()) < 0.01


def test_a_server_that_is_wrong_for_a_moment_is_not_followed_by_a_host_that_is_wrong():
    world = World()
    world.live(3)
    world.wall_off_ns = 300 * SECOND_NS
    for _ in range(5):
        world.server_off_ns = 100 * SECOND_NS
        world.live(2)
        world.server_off_ns = 0
        world.live(4)
        assert abs(world.off_s()) < 1


def test_a_front_end_that_is_wrong_for_good_is_outvoted():
    world = World()
    for answer in range(200):
        world.server_off_ns = 5 * SECOND_NS if answer % 3 == 0 else 0
        world.live(0.5)
    assert abs(world.off_s()) < 0.01


@pytest.mark.parametrize(("host_off", "answers"), [(0, 8), (300, 3)])
def test_a_host_that_agrees_with_the_bounds_makes_them_harder_to_replace(host_off, answers):
    world = World()
    world.live(3)
    world.wall_off_ns = host_off * SECOND_NS
    world.server_off_ns = 100 * SECOND_NS
    for answer in range(1, answers + 1):
        assert abs(world.off_s()) < 1, answer
        world.live(60, every_s=60)
    assert world.off_s() == pytest.approx(100, abs=0.6)


def test_front_ends_that_differ_a_little_are_averaged():
    world = World(-1)
    for answer in range(900):
        world.server_off_ns = 15_000_000 * (1 if answer % 2 else -1)
        world.live(0.1, every_s=0.1, there_ms=1, back_ms=1)
    assert abs(world.off_s()) < 0.02


def test_bounds_that_contradict_each_other_a_little_are_replaced_by_their_middle():
    bounds = OffsetBounds()
    for low_ms, high_ms in ((0, 1000), (10, 1000), (-900, 4)):
        bounds.take(Interval(low_ms * 1_000_000, high_ms * 1_000_000), 0, 0)
    assert bounds.interval(0) == Interval(7_000_000, 7_000_000)


def test_front_ends_that_converge_are_followed():
    """Bounds that are a minute old no longer count."""
    world = World(-1)
    world.server_off_ns = 18_000_000
    world.live(60, every_s=0.1, there_ms=1, back_ms=1)
    world.server_off_ns = 0
    world.live(65, every_s=0.1, there_ms=1, back_ms=1)
    assert abs(world.off_s()) < 0.004


def test_a_client_that_idles_for_hours_allows_for_drift():
    """What another quartz drifts meanwhile is not taken for a contradiction."""
    world = World(-1)
    world.live(60, every_s=0.1)
    world.boot_ns += 3600 * SECOND_NS
    world.server_off_ns = 3600 * 50_000  # 50 ppm
    world.live(3, every_s=0.1)
    assert world.off_s() == pytest.approx(world.server_off_ns / SECOND_NS, abs=0.12)


def test_a_reading_that_a_change_of_course_overtakes_is_not_before_earlier_ones():
    """A thread reads the boot clock and is suspended; meanwhile the course changes."""
    world = World(-0.4)
    clock = world.clock
    early_ns = world.boot_ns
    before_ms = clock()
    world.boot_ns += SECOND_NS
    world.live(3)
    world.boot_ns, now_ns = early_ns, world.boot_ns
    assert clock() >= before_ms
    world.boot_ns = now_ns
    assert clock() >= before_ms


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_reading_during_a_change_of_course_is_not_after_later_ones(at):
    """Another thread reads while the changing one is suspended after a reading of its own."""
    readings, threads, left = [], [], [0]

    def boot_ns():
        value_ns = world.boot_ns
        if threading.current_thread() is threading.main_thread():
            left[0] -= 1
            if left[0] == 0:
                world.boot_ns += 50_000_000
                threads.append(threading.Thread(target=lambda: readings.append(clock())))
                threads[-1].start()
                threads[-1].join(0.02)  # or it waits for the change to end
        return value_ns

    world = World(600)
    clock = world.clock = ServerClock(world.wall_ns, boot_ns)
    before_ms = clock()
    world.hear()
    left[0] = at
    world.hear()  # it agrees with the first one: the course changes
    threads[0].join()
    assert before_ms <= readings[0] <= clock()


def test_a_clock_that_drifts_is_kept_right():
    world = World(-1)
    world.live(60, every_s=0.1)
    for _ in range(20):
        world.server_off_ns += 100_000 * 6  # 60 ppm of 10 s
        world.live(10, every_s=0.1)
    assert world.off_s() == pytest.approx(world.server_off_ns / SECOND_NS, abs=0.03)


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
    world.live(20)
    assert world.off_s() == pytest.approx(60, abs=0.6)


def test_a_real_clock_starts_at_the_hosts_time():
    assert abs(ServerClock()() - time.time() * 1000) < 50


@pytest.mark.parametrize("starts", [300, pytest.param(9000, marks=pytest.mark.slow)])
def test_no_stamp_goes_back_however_many_threads_read_first(starts):
    """An answer that sets the clock back arrives while threads read it for the first time."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(READERS + 1) as threads:
            for _ in range(starts):
                start_at_once(threads)
    finally:
        sys.setswitchinterval(interval)


READERS = 3


def start_at_once(threads):
    host_ahead_ns = 1_900_000_000
    clock = ServerClock(wall_ns=lambda: time.time_ns() + host_ahead_ns)
    latest, lock, begin = [0], threading.Lock(), threading.Barrier(READERS + 1)

    def read():
        begin.wait()
        for _ in range(20):
            before_ms = latest[0]
            now_ms = clock()
            assert now_ms >= before_ms
            with lock:
                latest[0] = max(latest[0], now_ms)

    def hear():
        begin.wait()
        for _ in range(3):
            sent_ns = clock.boot_ns()
            clock.observe(int(time.time()) * 1000, sent_ns, clock.boot_ns())

    for future in [*(threads.submit(read) for _ in range(READERS)), threads.submit(hear)]:
        future.result()


def test_a_child_that_was_forked_while_the_course_changed_reads_on():
    """The fork happens where the clock is changing course: in a reading of the boot clock."""
    forked = []

    def boot_ns():
        if forking and not forked:
            forked.append(os.fork())
            if not forked[0]:
                os._exit(0 if clock() >= before_ms else 1)
        return world.boot_ns

    forking = False
    world = World(1)
    clock = world.clock = ServerClock(world.wall_ns, boot_ns)
    before_ms = clock()
    world.live(1)
    forking = True
    world.hear()
    assert os.waitpid(forked[0], 0)[1] == 0
