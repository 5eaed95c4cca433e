import copy
import inspect
import json
import math
import pickle
import socket

import pytest

from zae_limiter import Limit, LimitStatus, exceptions
from zae_limiter.exceptions import (
    EntityError,
    EntityExistsError,
    EntityNotFoundError,
    ForeignTableError,
    IncompatibleSchemaError,
    InfrastructureError,
    InfrastructureNotFoundError,
    InvalidIdentifierError,
    InvalidNameError,
    LeaseExpiredError,
    LimitsChangedError,
    NamespaceNotFoundError,
    NamespaceStateError,
    PermissionDenied,
    RateLimitError,
    RateLimiterUnavailable,
    RateLimitExceeded,
    StackAlreadyExistsError,
    StackCreationError,
    StackOperationError,
    ValidationError,
    VersionError,
    VersionMismatchError,
    ZAELimiterError,
)


def status(name="rpm", *, available=0, requested=1, retry=1.5, entity="user-1", exceeded=True):
    return LimitStatus(
        entity, "gpt-4", name, Limit(name, 10, 5, 60), available, requested, exceeded, retry
    )


ONE_OF_EACH = [
    ZAELimiterError("x"),
    RateLimitError("x"),
    RateLimitExceeded([status(), status("tpm", exceeded=False, retry=0.0)]),
    LeaseExpiredError("adjust"),
    InfrastructureError("x"),
    RateLimiterUnavailable(
        "x", cause=OSError(5, "y"), stack_name="s", entity_id="user-1", resource="gpt-4"
    ),
    PermissionDenied("x", cause=OSError(13, "y")),
    StackOperationError("s", "r"),
    StackAlreadyExistsError("s", "r"),
    InfrastructureNotFoundError("s", "hint"),
    ForeignTableError("t", "its keys are others", "composite"),
    NamespaceNotFoundError("n"),
    NamespaceStateError("n", "r"),
    EntityError("user-1", "m"),
    EntityNotFoundError("user-1"),
    EntityExistsError("user-1"),
    LimitsChangedError(("rpm:10/min",)),
    VersionError("x"),
    VersionMismatchError("1", "2", "update"),
    IncompatibleSchemaError(2, 1, "update"),
    ValidationError("field", {"a": object()}, "reason"),
    InvalidIdentifierError("field", None, "reason"),
    InvalidNameError("field", math.nan, "reason"),
]


def test_the_list_above_is_complete():
    defined = {
        each
        for each in vars(exceptions).values()
        if inspect.isclass(each) and issubclass(each, BaseException)
    }
    assert defined == {type(error) for error in ONE_OF_EACH}


@pytest.mark.parametrize(
    ("child", "parent"),
    [
        (RateLimitError, ZAELimiterError),
        (RateLimitExceeded, RateLimitError),
        (LeaseExpiredError, RateLimitError),
        (InfrastructureError, ZAELimiterError),
        (RateLimiterUnavailable, InfrastructureError),
        (PermissionDenied, InfrastructureError),
        (StackOperationError, InfrastructureError),
        (StackAlreadyExistsError, InfrastructureError),
        (InfrastructureNotFoundError, InfrastructureError),
        (NamespaceNotFoundError, InfrastructureError),
        (NamespaceStateError, InfrastructureError),
        (EntityError, ZAELimiterError),
        (EntityNotFoundError, EntityError),
        (EntityExistsError, EntityError),
        (VersionError, ZAELimiterError),
        (VersionMismatchError, VersionError),
        (IncompatibleSchemaError, VersionError),
        (ValidationError, ZAELimiterError),
        (ValidationError, ValueError),
        (InvalidIdentifierError, ValidationError),
        (InvalidNameError, ValidationError),
    ],
)
def test_the_tree(child, parent):
    assert issubclass(child, parent)


def test_the_old_name_of_the_stack_error_is_the_same_class():
    assert StackCreationError is StackOperationError


def test_a_refusal_is_no_outage():
    assert not issubclass(PermissionDenied, RateLimiterUnavailable)
    assert not issubclass(ValidationError, InfrastructureError)


# --- across processes


@pytest.mark.parametrize("error", ONE_OF_EACH, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("protocol", [2, pickle.HIGHEST_PROTOCOL])
def test_every_error_pickles_with_its_data(error, protocol):
    back = pickle.loads(pickle.dumps(error, protocol))
    assert type(back) is type(error)
    assert str(back) == str(error)
    assert back.args == error.args
    data, expected = dict(vars(back)), dict(vars(error))
    cause = data.pop("cause", None)
    expected_cause = expected.pop("cause", None)
    assert repr(data) == repr(expected)
    assert (cause is None) == (expected_cause is None)
    if expected_cause is not None:
        assert type(expected_cause).__name__ in str(cause)
        assert str(expected_cause) in str(cause)


def test_a_cause_that_cannot_be_pickled_survives_as_text():
    with socket.socket() as holder:
        cause = OSError("lost")
        cause.holder = holder
        error = RateLimiterUnavailable("down", cause=cause, stack_name="s")
        back = pickle.loads(pickle.dumps(error))
    assert "OSError: lost" in str(back.cause)
    assert back.stack_name == "s"
    assert error.cause is cause


def test_an_error_can_be_copied():
    error = RateLimitExceeded([status()])
    assert copy.copy(error).statuses == error.statuses
    assert copy.deepcopy(error).statuses == error.statuses


@pytest.mark.parametrize("same", [lambda error: error, copy.copy, RateLimitExceeded.copy])
def test_the_message_of_a_rejection_is_its_argument_like_that_of_any_error(same):
    error = same(RateLimitExceeded([status()]))
    assert "rate limit exceeded for" in str(error)
    assert error.args == (str(error),)
    assert repr(error) == f"RateLimitExceeded({str(error)!r})"


def test_notes_survive_a_process_boundary():
    error = ValidationError("field", 1, "reason")
    error.add_note("in the import of limits.yaml")
    assert pickle.loads(pickle.dumps(error)).__notes__ == error.__notes__


# --- rate limits


def test_violations_and_the_rest_are_told_apart():
    over, fine = status(), status("tpm", exceeded=False, retry=0.0)
    error = RateLimitExceeded((over, fine))
    assert error.statuses == [over, fine]
    assert error.violations == [over]
    assert error.passed == [fine]
    assert error.primary_violation == over


def test_the_primary_violation_takes_longest_to_clear():
    slow = status("rpd", retry=100.0)
    error = RateLimitExceeded(
        [status(retry=1.0), slow, status("tpm", exceeded=False, retry=0.0), status(retry=99.0)]
    )
    assert error.primary_violation is slow
    assert error.retry_after_seconds == 100.0


@pytest.mark.parametrize(
    ("seconds", "header"),
    [(0.001, "1"), (1.0, "1"), (1.001, "2"), (59.999, "60"), (86_400.0, "86400"), (0.0, "0")],
)
def test_the_header_is_in_whole_seconds_rounded_up(seconds, header):
    assert RateLimitExceeded([status(retry=seconds)]).retry_after_header == header


def test_the_header_is_a_day_where_waiting_cannot_help():
    error = RateLimitExceeded([status(retry=math.inf, requested=11)])
    assert error.retry_after_seconds == math.inf
    assert error.retry_after_header == "86400"
    assert "never" in str(error)


def test_without_statuses_there_is_no_primary_violation():
    error = RateLimitExceeded([])
    assert error.primary_violation is None
    assert error.retry_after_seconds == 0.0
    assert str(error)


@pytest.mark.parametrize("retry", [1.5, math.inf])
def test_as_dict_is_strict_json(retry):
    error = RateLimitExceeded(
        [status(retry=retry), status("tpm", exceeded=False, retry=0.0, entity="日本")]
    )
    data = json.loads(json.dumps(error.as_dict(), allow_nan=False))
    assert data == error.as_dict()
    assert data["error"] == "rate_limit_exceeded"
    assert data["message"] == str(error)
    assert data["retry_after_seconds"] == (None if retry == math.inf else retry)
    first, second = data["limits"]
    assert first == {
        "entity_id": "user-1",
        "resource": "gpt-4",
        "limit_name": "rpm",
        "capacity": 10,
        "refill_amount": 5,
        "refill_period_seconds": 60,
        "available": 0,
        "requested": 1,
        "exceeded": True,
        "can_ever_fit": retry != math.inf,
        "retry_after_seconds": None if retry == math.inf else retry,
    }
    assert (second["entity_id"], second["exceeded"]) == ("日本", False)


def test_the_message_names_entity_limit_and_wait():
    text = str(RateLimitExceeded([status(available=3, requested=5, retry=24.5)]))
    for part in ("user-1", "gpt-4", "rpm", "5", "3", "24.5 s"):
        assert part in text


# --- input


@pytest.mark.parametrize("value", ["x", 5, 0.5, True, None])
def test_simple_values_are_kept(value):
    assert ValidationError("field", value, "reason").value == value


def test_other_values_are_kept_as_text_and_shown_in_short():
    error = ValidationError("field", ["x" * 1000], "reason")
    assert error.value == repr(["x" * 1000])
    assert len(str(error)) < 150
    assert (error.field, error.reason) == ("field", "reason")


def test_messages_say_what_to_do_next():
    assert "create_entity()" in str(EntityNotFoundError("user-1"))
    assert "register_namespace()" in str(NamespaceNotFoundError("n"))
    assert "acquire" in str(LeaseExpiredError("consume"))
    assert "hint" in str(InfrastructureNotFoundError("s", "hint"))
