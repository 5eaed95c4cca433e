"""Errors of the store as messages: what happened, and what to do next."""

from __future__ import annotations

from typing import NamedTuple

from zae_limiter import exceptions
from zae_limiter_ops.views.advice import GivenOptions, in_shell_terms


class PageProblem(NamedTuple):
    """A message for people, with the status of the answer."""

    status: int
    title: str
    message: str
    advice: str


TRIES_AGAIN = "The page tries again every few seconds and comes back by itself."
# Status, title and advice by the kind of the error; the first kind that fits counts.
PROBLEMS: tuple[tuple[type[exceptions.ZAELimiterError], int, str, str], ...] = (
    (
        exceptions.NamespaceNotFoundError,
        404,
        "This namespace does not exist",
        "Choose another namespace. The page comes back by itself once it is registered.",
    ),
    (exceptions.LimitsChangedError, 409, "Somebody else was faster", "Open the form again."),
    (
        exceptions.ValidationError,
        400,
        "This does not work",
        "Go back and correct the value.",
    ),
    (exceptions.EntityError, 404, "There is no such entity", "Check the id."),
    (
        exceptions.PermissionDenied,
        503,
        "The store denies access",
        f"Renew the credentials, or grant the missing permission. {TRIES_AGAIN}",
    ),
    (exceptions.VersionError, 503, "This version cannot read what is stored", TRIES_AGAIN),
    (
        exceptions.RateLimiterUnavailable,
        503,
        "The store does not answer",
        f"Check that the store is running and that credentials are valid. {TRIES_AGAIN}",
    ),
    (
        exceptions.ZAELimiterError,
        503,
        "The store cannot be used",
        f"Check the address of the store. {TRIES_AGAIN}",
    ),
)


def problem_of(error: exceptions.ZAELimiterError, given: GivenOptions) -> PageProblem:
    """Return the message for an error of the library."""
    status, title, advice = next(
        (status, title, advice)
        for kind, status, title, advice in PROBLEMS
        if isinstance(error, kind)
    )
    return PageProblem(status, title, in_shell_terms(error, given), advice)
