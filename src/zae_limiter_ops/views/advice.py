"""Advice for people at a shell: commands on the same store, similar names, and errors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from zae_limiter import exceptions
from zae_limiter.shell_words import command_line, quoted

WITHOUT_DYNAMODB = "or work without DynamoDB: --url sqlite:///limits.db (or ZAEL_URL)"
RIGHT_ADDRESS = "check --region, --url or --endpoint-url, and that the server is running"
# The library's advice names Python arguments; these phrases name the options of commands instead.
SHELL_PHRASES = {
    "; pass url='sqlite:///limits.db' or 'memory://' to work without DynamoDB": (
        f"; {WITHOUT_DYNAMODB}"
    ),
    "a profile or a role, or region=": "a profile or a role, or give --region",
    "pass region=, or set": "give --region, or set",
    "check endpoint_url": "check --endpoint-url",
}
# Commands that do not take --namespace.
STACK_COMMANDS = ("check", "delete", "deploy", "list", "status", "upgrade")
ALL_NAMESPACES = ("loadtest", "namespace", "version", *STACK_COMMANDS)


class GivenOptions:
    """The options of the command line that name the store, for the commands that hints suggest.

    A suggested command without them would work on another store.
    """

    def __init__(self) -> None:
        self.store: tuple[str, ...] = ()
        self.region: tuple[str, ...] = ()
        self.namespace: tuple[str, ...] = ()

    @property
    def place(self) -> tuple[str, ...]:
        """The options that name the region and the endpoint, for a command on another table."""
        return self.store if "--url" in self.store else self.region

    def command(self, *words: str, options: Sequence[str] = ()) -> str:
        """Return a command line that works on the same store and namespace."""
        namespace = () if words[0] in ALL_NAMESPACES else self.namespace
        store = self.region if words[0] == "list" else self.store
        return command_line(*words, options=(*options, *store, *namespace))


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """Return ``" (did you mean 'demo'?)"``, or an empty text if no candidate is similar."""
    from difflib import get_close_matches

    others = [candidate for candidate in candidates if candidate != name]
    matches = " or ".join(map(quoted, get_close_matches(name, others)))
    return f" (did you mean {matches}?)" if matches else ""


def in_shell_terms(error: Exception, given: GivenOptions) -> str:
    """Return the message of a library error with commands and options as advice."""
    if isinstance(error, exceptions.NamespaceNotFoundError):
        return (
            f"namespace {error.namespace!r} is not registered; list the registered namespaces: "
            f"{given.command('namespace', 'list')}; list the deleted namespaces: "
            f"{given.command('namespace', 'orphans')}; register it: "
            f"{given.command('namespace', 'register', error.namespace)}"
        )
    if isinstance(error, exceptions.EntityExistsError):
        return (
            f"entity {error.entity_id!r} exists already; show it: "
            f"{given.command('entity', 'show', error.entity_id)}; change its parent: "
            f"{given.command('entity', 'set-parent', error.entity_id)}"
        )
    if isinstance(error, exceptions.InfrastructureNotFoundError):
        if error.hint.startswith("the folder"):
            return f"no store at {error.stack_name!r}: {error.hint}, or check --url (or ZAEL_URL)"
        return f"no store named {error.stack_name!r}: {with_shell_phrases(error.hint, given)}"
    if isinstance(error, exceptions.ForeignTableError):
        return error.advice(given.place)
    message = with_shell_phrases(str(error), given)
    if _is_connection_error(error):
        no_credentials = "credentials" in str(error)
        return f"{message}; {WITHOUT_DYNAMODB if no_credentials else RIGHT_ADDRESS}"
    return message


def _is_connection_error(error: Exception) -> bool:
    from zae_limiter.store_errors import NoAnswer, NotSent

    return isinstance(error, NoAnswer | NotSent)


def with_shell_phrases(text: str, given: GivenOptions) -> str:
    create = given.command("namespace", "register", "default", options=("--create-table",))
    phrases = {
        **SHELL_PHRASES,
        "there is no such table, and provision='table' creates it": (
            "there is no such table; check --name, --region and --endpoint-url, or deploy it: "
            f"{given.command('deploy')}; or create the table alone: {create}"
        ),
        "delete_namespace() it before a purge": (
            f"delete it first: {given.command('namespace', 'delete', 'NAME')}"
        ),
    }
    for in_code, in_shell in phrases.items():
        text = text.replace(in_code, in_shell)
    return text
