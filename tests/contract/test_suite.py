"""The suite itself: groups may be combined in one class only if no name hides another."""

import os
import subprocess
import sys
import textwrap
from collections import Counter

import pytest
import zae_limiter_contract as contract
from zae_limiter_contract import EngineContract, EngineSpec, SyncEngineContract
from zae_limiter_contract._async.engine import LineContract
from zae_limiter_contract._sync.engine import LineContract as SyncLineContract
from zae_limiter_contract.cancellation import CancellationContract
from zae_limiter_contract.cancelled_waiting import CancelledWaitingContract
from zae_limiter_contract.interrupted_changes import InterruptedChangeContract
from zae_limiter_contract.interrupted_waiting import InterruptedWaitingContract
from zae_limiter_contract.interrupts import InterruptContract

from tests.contract._async import test_split_buckets as split
from tests.contract._sync import test_split_buckets as sync_split


@pytest.mark.parametrize("suite", [EngineContract, SyncEngineContract])
def test_no_group_hides_a_test_or_fixture_of_another(suite):
    groups = [each for each in suite.__mro__[1:] if each is not object]
    names = Counter(name for each in groups for name in vars(each) if not name.startswith("__"))
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize(
    ("suite", "lines", "groups"),
    [
        (
            EngineContract,
            LineContract,
            (
                split.TestSplitBuckets,
                split.TestCallersOfSplitBuckets,
                split.TestRulesOfSplitBuckets,
                split.TestAroundSplitBuckets,
            ),
        ),
        (
            SyncEngineContract,
            SyncLineContract,
            (
                sync_split.TestSplitBuckets,
                sync_split.TestCallersOfSplitBuckets,
                sync_split.TestRulesOfSplitBuckets,
                sync_split.TestAroundSplitBuckets,
            ),
        ),
    ],
    ids=["async", "sync"],
)
def test_no_group_is_left_out_with_split_buckets_but_reservations(suite, lines, groups):
    """A split bucket has no order of service: large amounts wait until they fit (ADR 027)."""
    assert _tests(suite) - _tests(lines) == set().union(*map(_tests, groups))


def test_both_trees_have_the_same_tests_but_for_what_only_one_can_do():
    only_async = _tests(EngineContract) - _tests(SyncEngineContract)
    only_sync = _tests(SyncEngineContract) - _tests(EngineContract)
    assert only_async == _tests(CancellationContract) | _tests(CancelledWaitingContract)
    interrupts = (InterruptContract, InterruptedChangeContract, InterruptedWaitingContract)
    assert only_sync == set().union(*map(_tests, interrupts))


def test_everything_that_is_exported_can_be_imported():
    assert all(getattr(contract, name) for name in contract.__all__)
    with pytest.raises(AttributeError):
        _ = contract.no_such_name


def test_a_spec_without_an_outage_has_none():
    assert EngineSpec("memory://", capabilities=None).outage() is None


ENGINE = """
from zae_limiter._async.engines.memory import open_memory
from zae_limiter.settings import Settings
from zae_limiter.store_url import parse_url


def MyEngine(path, request_timeout):
    return open_memory(parse_url("memory://" + path.split("/")[-2]), Settings())


"""


def test_the_module_shown_to_others_works_as_it_stands(tmp_path):
    shown = textwrap.dedent(contract.__doc__.split("::\n\n")[1].partition("\n\n``Sync")[0])
    assert "MyEngine(" in shown
    module = tmp_path / "test_mine.py"
    module.write_text(ENGINE + shown)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-o",
            "asyncio_mode=auto",
            "-k",
            "a_new_bucket_holds",
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 passed" in done.stdout, done.stdout


def _tests(suite):
    return {name for name in dir(suite) if name.startswith("test_")}
