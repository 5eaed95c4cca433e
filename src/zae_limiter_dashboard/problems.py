"""Errors of the store as messages: what happened, and what to do next."""

from __future__ import annotations

from dataclasses import dataclass

from zae_limiter import exceptions
from zae_limiter_ops.cli.shared.errors import GivenOptions, in_shell_terms


@dataclass(frozen=True, slots=True)
class PageProblem:
    """A message for people, with the status of the answer."""

    status: int
    title: str
    message: str
    advice: str


def problem_of(error: Exception, given: GivenOptions) -> PageProblem:
    """Return the message for an error of the library."""
    message = in_shell_terms(error, given)
    if isinstance(error, exceptions.NamespaceNotFoundError):
        return PageProblem(
            404,
            "This namespace does not exist",
            message,
            "Choose another namespace. The page comes back by itself once it is registered.",
        )
    if isinstance(error, exceptions.LimitsChangedError):
        return PageProblem(409, "Somebody else was faster", message, "Open the form again.")
    if isinstance(error, exceptions.ValidationError):
        return PageProblem(400, "This does not work", message, "Go back and correct the value.")
    if isinstance(error, exceptions.EntityError):
        return PageProblem(404, "There is no such entity", message, "Check the id.")
    if isinstance(error, exceptions.PermissionDenied):
        return PageProblem(
            503,
            "The store denies access",
            message,
            "Renew the credentials, or grant the missing permission. The page tries again every "
            "few seconds and comes back by itself.",
        )
    return PageProblem(
        503,
        "The store does not answer",
        message,
        "Check that the store is running and that credentials are valid. The page tries again "
        "every few seconds and comes back by itself.",
    )
