"""All errors of the package. Every error carries its data, can be pickled, and says what to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from zae_limiter.models.status import HeaderStyle, LimitStatus
    from zae_limiter.refusal import LimitedBy


def _rebuild(cls: type[ZAELimiterError], args: tuple[Any, ...], state: dict[str, Any]) -> Any:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class ZAELimiterError(Exception):
    """Base of all errors that this package raises on purpose."""

    def copy(self) -> Self:
        """Return a copy for another caller, since two tasks must not raise the same object."""
        twin = type(self).__new__(type(self), *self.args)
        twin.args = self.args
        twin.__dict__.update(self.__dict__)
        twin.__cause__ = self.__cause__
        return twin

    def __reduce__(self) -> tuple[Any, ...]:
        # A cause may hold sockets or frames, which cannot be pickled, so only its text is kept.
        state = dict(self.__dict__)
        cause = state.get("cause")
        if cause is not None:
            state["cause"] = ZAELimiterError(f"{type(cause).__name__}: {cause}")
        return _rebuild, (type(self), self.args, state)


# --- rate limiting ---------------------------------------------------------------------------


class RateLimitError(ZAELimiterError):
    """Base of the errors about limits and leases."""


class RateLimitExceeded(RateLimitError):
    """At least one limit has too few tokens. Nothing was charged.

    ``statuses`` lists every limit in force, of the entity and of its cascading parent. ``at_ms`` is
    the moment of the rejection, in epoch milliseconds.
    """

    def __init__(self, statuses: Sequence[LimitStatus], at_ms: int | None = None) -> None:
        self.statuses: list[LimitStatus] = list(statuses)
        self.at_ms = at_ms

    # The message is made only when it is read: it takes a tenth of a rejection from the cache.
    def __str__(self) -> str:
        from zae_limiter import rejection

        return rejection.description(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def _args(self) -> tuple[str]:
        """The message alone, as in other errors."""
        return (str(self),)

    def _keep_args(self, _: tuple[Any, ...]) -> None:
        """Ignore new args: they follow from the statuses."""

    args = property(_args, _keep_args)

    @property
    def violations(self) -> list[LimitStatus]:
        """The limits that held too few tokens."""
        return [s for s in self.statuses if s.exceeded]

    @property
    def passed(self) -> list[LimitStatus]:
        """The limits that held enough tokens."""
        return [s for s in self.statuses if not s.exceeded]

    @property
    def primary_violation(self) -> LimitStatus | None:
        """The violation with the longest wait."""
        from zae_limiter.refusal import longest_wait  # functions raise no rejections

        return longest_wait(self.statuses)

    @property
    def limited_by(self) -> LimitedBy | None:
        """The entity, the resource and the limit of the violation with the longest wait.

        In place of a limit there is ``"mode deny"`` or ``"a pause"`` if that has refused the call.
        None if nothing refuses it any more: a caller may wake up only after its deadline.
        """
        from zae_limiter.refusal import limited_by

        return limited_by(self.statuses)

    @property
    def retry_after_seconds(self) -> float:
        """The exact wait until the request fits if nothing else is charged; ``inf`` if never."""
        primary = self.primary_violation
        return primary.retry_after_seconds if primary else 0.0

    @property
    def retry_after_header(self) -> str:
        """The value of an HTTP ``Retry-After`` header; a day if the request can never fit."""
        from zae_limiter import rejection  # imported here, since functions raise no rejections

        return rejection.retry_after_header(self)

    def as_dict(self) -> dict[str, Any]:
        """Return values for the JSON response of an API; an infinite wait is None."""
        from zae_limiter import rejection

        return rejection.as_dict(self)

    def headers(self, style: HeaderStyle = "ietf") -> dict[str, str]:
        """Return HTTP headers for a 429: ``Retry-After``, and the limits in the given style.

        The styles are those of ``Lease.headers``.
        """
        from zae_limiter.headers import rate_limit_headers  # few programs need it

        headers = rate_limit_headers(self.statuses, style, now_ms=self.at_ms)
        return {**headers, "Retry-After": self.retry_after_header}


class LeaseExpiredError(RateLimitError):
    """The lease's block has ended; acquire again."""

    def __init__(self, operation: str) -> None:
        self.operation = operation
        super().__init__(
            f"lease.{operation}() was called after its block had ended; acquire a new lease"
        )


# --- infrastructure --------------------------------------------------------------------------


class InfrastructureError(ZAELimiterError):
    """Base of the errors of the store behind the limiter."""


class RateLimiterUnavailable(InfrastructureError):
    """The store did not answer, so it is unknown whether the request fits."""

    def __init__(
        self,
        message: str,
        *,
        cause: BaseException | None = None,
        stack_name: str | None = None,
        entity_id: str | None = None,
        resource: str | None = None,
    ) -> None:
        self.cause = cause
        self.stack_name = stack_name
        self.entity_id = entity_id
        self.resource = resource
        super().__init__(message)


class PermissionDenied(InfrastructureError):
    """The store refused access. This is never treated as an outage."""

    def __init__(self, message: str, *, cause: BaseException | None = None) -> None:
        self.cause = cause
        super().__init__(message)


class StackOperationError(InfrastructureError):
    """Creating, changing or deleting infrastructure failed."""

    def __init__(self, stack_name: str, reason: str) -> None:
        self.stack_name = stack_name
        self.reason = reason
        super().__init__(f"stack {stack_name!r}: {reason}")


StackCreationError = StackOperationError


class StackAlreadyExistsError(StackOperationError):
    """A stack of that name exists."""


class InfrastructureNotFoundError(InfrastructureError):
    """The table or stack is missing."""

    def __init__(self, stack_name: str, hint: str = "") -> None:
        self.stack_name = stack_name
        self.hint = hint
        super().__init__(f"no infrastructure named {stack_name!r}" + (f"; {hint}" if hint else ""))


class ForeignTableError(InfrastructureError):
    """The table was written by another program, or by another version. Nothing was changed.

    ``found`` says what shows it. ``form`` is the form as ``limits export --from-table`` names it;
    None for a table whose limits that command cannot read.
    """

    def __init__(self, table: str, found: str, form: str | None = None) -> None:
        self.table = table
        self.found = found
        self.form = form
        super().__init__(self.advice())

    def advice(self, place: Sequence[str] = ()) -> str:
        """Return the message; ``place`` are the options that name the region or the endpoint."""
        advice = (
            f"table {self.table!r} is not one of this version of zae-limiter: {self.found}; "
            "nothing was changed; choose another stack"
        )
        if self.form is None:
            return advice
        from zae_limiter.shell_words import command_line

        options = ("--from-table", self.table, "--form", self.form, *place)
        export = command_line("limits", "export", options=options)
        return f"{advice}, and copy limits and entities to it: {export}"


class NamespaceNotFoundError(InfrastructureError):
    """There is no namespace with that name or id."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        super().__init__(
            f"namespace {namespace!r} is not registered; register_namespace() creates it"
        )


class NamespaceStateError(InfrastructureError):
    """The namespace is in a state that does not allow the operation."""

    def __init__(self, namespace: str, reason: str) -> None:
        self.namespace = namespace
        self.reason = reason
        super().__init__(f"namespace {namespace!r}: {reason}")


# --- entities --------------------------------------------------------------------------------


class EntityError(ZAELimiterError):
    """Base of entity errors."""

    def __init__(self, entity_id: str, message: str) -> None:
        self.entity_id = entity_id
        super().__init__(message)


class EntityNotFoundError(EntityError):
    """There is no entity with that id."""

    def __init__(self, entity_id: str) -> None:
        super().__init__(
            entity_id, f"entity {entity_id!r} does not exist; create_entity() creates it"
        )


class EntityExistsError(EntityError):
    """An entity with that id exists already."""

    def __init__(self, entity_id: str) -> None:
        super().__init__(
            entity_id,
            f"entity {entity_id!r} exists already; set_parent() changes its parent",
        )


# --- limits ----------------------------------------------------------------------------------


class LimitsChangedError(ZAELimiterError):
    """The stored limits are no longer those that a change was meant to replace."""

    def __init__(self, stored: tuple[str, ...]) -> None:
        self.stored = stored
        shown = ", ".join(stored) or "none"
        super().__init__(
            f"the limits were changed meanwhile and are now: {shown}; look at them and decide again"
        )


# --- versions --------------------------------------------------------------------------------


class VersionError(ZAELimiterError):
    """Base of version errors."""


class VersionMismatchError(VersionError):
    """Client and infrastructure are of different versions."""

    def __init__(self, client_version: str, stored_version: str, advice: str) -> None:
        self.client_version = client_version
        self.stored_version = stored_version
        self.advice = advice
        super().__init__(f"client {client_version}, store {stored_version}: {advice}")


class IncompatibleSchemaError(VersionError):
    """The stored schema cannot be read by this version.

    ``buckets`` are the pairs of entity and resource that could not be read, if a list found them.
    """

    buckets: tuple[tuple[str, str], ...] = ()

    def __init__(self, found: int | str, supported: int | str, advice: str) -> None:
        self.found = found
        self.supported = supported
        self.advice = advice
        what = f"schema {found}" if isinstance(found, int) else found  # or what was found instead
        super().__init__(f"the store has {what}, this version reads {supported}; {advice}")


# --- input -----------------------------------------------------------------------------------


class ValidationError(ZAELimiterError, ValueError):
    """An argument was wrong. Nothing was charged or changed."""

    def __init__(self, field: str, value: object, reason: str) -> None:
        self.field = field
        shown = _notation(value)
        self.value = value if isinstance(value, str | int | float | bool | None) else shown
        self.reason = reason
        shown = shown if len(shown) <= 80 else shown[:77] + "..."
        super().__init__(f"{field}: {reason} (got {shown})")


def _notation(value: object) -> str:
    try:
        return repr(value)
    except RecursionError:
        return f"<{type(value).__name__} nested without end>"


class InvalidIdentifierError(ValidationError):
    """An entity id or namespace id is not usable."""


class InvalidNameError(ValidationError):
    """A resource, limit, namespace or stack name is not usable."""
