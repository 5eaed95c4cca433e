"""Every error survives the way to another process."""

import copy
import inspect
import pickle

import pytest

from zae_limiter import Limit, LimitStatus, exceptions

STATUS = LimitStatus("user", "api", "rpm", Limit.per_minute("rpm", 10), 3, 5, True, 1.5)
ERRORS = [
    exceptions.ZAELimiterError("text"),
    exceptions.RateLimitError("text"),
    exceptions.RateLimitExceeded([STATUS]),
    exceptions.LeaseExpiredError("adjust"),
    exceptions.InfrastructureError("text"),
    exceptions.RateLimiterUnavailable(
        "text", cause=OSError("no"), stack_name="s", entity_id="e", resource="r"
    ),
    exceptions.PermissionDenied("text", cause=OSError("no")),
    exceptions.StackOperationError("stack", "reason"),
    exceptions.StackAlreadyExistsError("stack", "reason"),
    exceptions.InfrastructureNotFoundError("stack", "hint"),
    exceptions.ForeignTableError("table", "it has no version record", "composite"),
    exceptions.NamespaceNotFoundError("red"),
    exceptions.NamespaceStateError("red", "is active"),
    exceptions.EntityError("user", "text"),
    exceptions.EntityNotFoundError("user"),
    exceptions.EntityExistsError("user"),
    exceptions.LimitsChangedError(("rpm:10/min",)),
    exceptions.VersionError("text"),
    exceptions.VersionMismatchError("1", "2", "update"),
    exceptions.IncompatibleSchemaError(1, 2, "update"),
    exceptions.ValidationError("field", object(), "reason"),
    exceptions.InvalidIdentifierError("field", "a#b", "reason"),
    exceptions.InvalidNameError("field", "a b", "reason"),
]


def test_no_error_is_missing_here():
    classes = {
        each
        for _, each in inspect.getmembers(exceptions, inspect.isclass)
        if issubclass(each, exceptions.ZAELimiterError)
    }
    assert {type(error) for error in ERRORS} == classes


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize(
    "way", [lambda e: pickle.loads(pickle.dumps(e)), copy.copy], ids=["p", "c"]
)
def test_an_error_keeps_its_type_text_and_data(error, way):
    found = way(error)
    assert type(found) is type(error)
    assert str(found) == str(error)
    assert _data(found) == _data(error)


def _data(error):
    data = dict(vars(error))
    if data.get("cause") is not None:
        data["cause"] = "no" in str(data["cause"])
    return data
