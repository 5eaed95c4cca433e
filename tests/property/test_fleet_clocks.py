"""How far the clocks of many clients are apart: simulated.

The rules: docs/contributing/clocks.md.
"""

import pytest

from tests.property.fleet import Setting, pairs_ms, worst_pair_ms

ROUND_TRIPS_S = (0.001, 0.005, 0.03, 0.1)
SEEDS = (1, 2)
TEN_SECONDS = 10  # so many pairs


@pytest.mark.parametrize("round_trip_s", ROUND_TRIPS_S)
@pytest.mark.parametrize("seed", SEEDS)
def test_hosts_that_are_seconds_apart_agree_within_a_round_trip(round_trip_s, seed):
    assert worst_pair_ms(Setting(round_trip_s), seed) <= round_trip_s * 1000 + 20


@pytest.mark.parametrize(("round_trip_s", "seed"), [(0.001, 8), (0.001, 9), (0.1, 1)])
def test_hosts_on_ntp_keep_their_own_time(round_trip_s, seed):
    on_ntp = Setting(round_trip_s, host_off_s=0.002, drift_ppm=0)
    assert worst_pair_ms(on_ntp, seed) <= 5


def test_single_dates_that_are_hours_off_move_no_clock():
    setting = Setting(0.005, odd_dates=0.02, clients=20)
    assert worst_pair_ms(setting) <= 25


def test_front_ends_that_differ_give_one_time():
    assert worst_pair_ms(Setting(0.005, front_end_s=0.01)) <= 25


def test_a_client_that_calls_once_a_second_is_within_two_tenths():
    assert worst_pair_ms(Setting(0.005, calls_per_s=1, clients=20)) <= 200


@pytest.mark.slow
@pytest.mark.parametrize("round_trip_s", ROUND_TRIPS_S)
def test_many_fleets_agree_within_a_round_trip(round_trip_s):
    """Chance decides how close to the end of a second a call is made: of 30 ends, or of more."""
    setting, allowed_ms = Setting(round_trip_s, lasting_s=120), round_trip_s * 1000 + 20
    fleets = [pairs_ms(setting, seed) for seed in range(10)]
    *usual, worst = sorted(max(pairs) for pairs in fleets)
    assert max(usual) <= allowed_ms
    assert worst <= allowed_ms + 5
    assert max(max(pairs[TEN_SECONDS:]) for pairs in fleets) <= allowed_ms


@pytest.mark.slow
@pytest.mark.parametrize("round_trip_s", [0.001, 0.1])
def test_many_fleets_on_ntp_keep_their_own_time(round_trip_s):
    on_ntp = Setting(round_trip_s, host_off_s=0.002, drift_ppm=0, lasting_s=120)
    assert max(worst_pair_ms(on_ntp, seed) for seed in range(10)) <= 5
