"""The policy of a call, without a server."""

import time

import pytest

from zae_limiter.clock import Deadline
from zae_limiter.store_errors import NoAnswer, NotSent, ServerFault, Throttled
from zae_limiter.transport.calls import Retries

NOT_SENT, NO_ANSWER = NotSent("no connection"), NoAnswer("no answer")
FAULT, BUSY = ServerFault("500"), Throttled("slow down")


def keep_failing(retries, error):
    while True:
        time.sleep(retries.pause_after(error))


def test_half_of_the_time_is_kept_back_for_a_second_connection():
    total, connect = Retries(Deadline(1), repeatable=False).timeouts()
    assert total == pytest.approx(1, abs=0.01)
    assert connect == pytest.approx(0.5, abs=0.01)
    _, connect = Retries(Deadline(60), repeatable=False).timeouts()
    assert connect == 1


def test_what_may_be_repeated_has_half_of_the_time_first_and_then_the_rest():
    retries = Retries(Deadline(1), repeatable=True)
    assert retries.timeouts()[0] == pytest.approx(0.5, abs=0.01)
    assert retries.pause_after(NO_ANSWER) == 0
    assert retries.timeouts()[0] == pytest.approx(1, abs=0.01)


def test_a_connection_is_tried_twice():
    for repeatable in (True, False):
        retries = Retries(Deadline(1), repeatable)
        assert retries.pause_after(NOT_SENT) == 0
        with pytest.raises(NotSent):
            retries.pause_after(NOT_SENT)


@pytest.mark.parametrize("error", [NO_ANSWER, FAULT])
def test_a_write_in_doubt_is_not_repeated(error):
    with pytest.raises(type(error)):
        Retries(Deadline(1), repeatable=False).pause_after(error)


def test_throttling_is_waited_out_longer_and_longer_at_random():
    pauses = []
    for _ in range(200):
        retries = Retries(Deadline(60), repeatable=False)
        pauses.append([retries.pause_after(BUSY) for _ in range(8)])
    longest = [max(column) for column in zip(*pauses, strict=True)]
    assert longest == sorted(longest) or longest[-1] <= 0.4
    assert 0.02 < longest[0] <= 0.025
    assert 0.35 < longest[-1] <= 0.4
    assert len({pause for row in pauses for pause in row}) > 1000


def test_a_pause_that_would_pass_the_deadline_is_not_begun():
    with pytest.raises(Throttled):
        Retries(Deadline(0.001), repeatable=False).pause_after(BUSY)


@pytest.mark.parametrize("last", [NOT_SENT, BUSY])
@pytest.mark.parametrize("doubt", [NO_ANSWER, FAULT])
def test_a_doubt_outlasts_certainties(doubt, last):
    """The first attempt may have been carried out, whatever became of the second."""
    retries = Retries(Deadline(0.3), repeatable=True)
    retries.pause_after(doubt)
    with pytest.raises(type(doubt)):
        keep_failing(retries, last)


def test_a_transaction_that_is_under_way_is_a_doubt():
    busy = Throttled("in progress", code="TransactionInProgressException")
    retries = Retries(Deadline(0.001), repeatable=True)
    with pytest.raises(NoAnswer, match="in progress"):
        retries.pause_after(busy)


def test_without_time_there_is_no_attempt():
    with pytest.raises(NotSent, match="no time left"):
        Retries(Deadline(-1), repeatable=True).timeouts()
