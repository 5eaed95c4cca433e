"""The message of each kind of error says what happened."""

import pytest

from zae_limiter import (
    ForeignTableError,
    IncompatibleSchemaError,
    InfrastructureNotFoundError,
    LimitsChangedError,
    NamespaceNotFoundError,
    RateLimiterUnavailable,
    ValidationError,
)
from zae_limiter.exceptions import EntityNotFoundError, PermissionDenied, VersionMismatchError
from zae_limiter.store_errors import NoAnswer
from zae_limiter.transport.errors import Refused
from zae_limiter_dashboard.problems import problem_of
from zae_limiter_ops.views.advice import GivenOptions


@pytest.mark.parametrize(
    ("error", "status", "title"),
    [
        (RateLimiterUnavailable("the file is locked"), 503, "The store does not answer"),
        (NoAnswer("the connection was closed"), 503, "The store does not answer"),
        (PermissionDenied("no right to Query"), 503, "The store denies access"),
        (IncompatibleSchemaError(9, 1, "update"), 503, "This version cannot read what is stored"),
        (VersionMismatchError("1", "2", "update"), 503, "This version cannot read what is stored"),
        (InfrastructureNotFoundError("my-app"), 503, "The store cannot be used"),
        (ForeignTableError("orders", "it has other keys"), 503, "The store cannot be used"),
        (Refused("too large", code="ValidationException"), 503, "The store cannot be used"),
        (NamespaceNotFoundError("tenant"), 404, "This namespace does not exist"),
        (EntityNotFoundError("key-7"), 404, "There is no such entity"),
        (LimitsChangedError(()), 409, "Somebody else was faster"),
        (ValidationError("seconds", -1, "must not be negative"), 400, "This does not work"),
    ],
)
def test_a_message_names_what_happened(error, status, title):
    problem = problem_of(error, GivenOptions())
    assert (problem.status, problem.title) == (status, title)
    assert problem.message
    assert problem.advice
