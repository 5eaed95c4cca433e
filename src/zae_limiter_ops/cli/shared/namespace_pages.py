"""Listings of one namespace or of all of them, and hints to other namespaces."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

import click
from click.core import ParameterSource

from zae_limiter.exceptions import NamespaceNotFoundError, PermissionDenied
from zae_limiter_ops.cli.shared.listing import Pages
from zae_limiter_ops.cli.shared.tables import print_hint
from zae_limiter_ops.views.columns import Column, of_part

if TYPE_CHECKING:
    from zae_limiter._sync.repository import SyncRepository
    from zae_limiter_ops.cli.shared.store import StoreLocation

T = TypeVar("T")
Fetch = Callable[["SyncRepository", int, str | None], tuple[list[T], str | None]]

DELIMITER = "#"  # between namespace and cursor: no namespace contains it
MAX_SEARCHED = 10  # namespaces: a hint must be cheap in a store with very many

all_namespaces_option = click.option(
    "--all-namespaces",
    "-A",
    is_flag=True,
    help="Read all namespaces of the store, one after the other; not with --namespace.",
)


class InNamespace(NamedTuple, Generic[T]):
    """A found item, and the namespace that holds it."""

    namespace: str
    item: T


def _item_of(found: InNamespace[T]) -> T:
    return found.item


class Namespaces:
    """The namespaces that a command reads: the namespace of its options, or all of them."""

    def __init__(self, repository: SyncRepository, *, are_all: bool) -> None:
        self.repository = repository
        self.are_all = are_all
        self._repositories = {repository.namespace_name: repository}

    def columns(self, columns: Sequence[Column[T]]) -> list[Column[InNamespace[T]]]:
        """Return the columns of found items, with their namespaces first.

        Tables and CSV name the namespaces only if the command reads all of them.
        """
        name = "namespace" if self.are_all else None
        namespace: Column[InNamespace[T]] = Column(
            title=name, key="namespace", csv=name, value=lambda found: found.namespace
        )
        return [namespace, *of_part(columns, _item_of)]

    def __iter__(self) -> Iterator[SyncRepository]:
        """Yield a repository for each namespace, sorted by name."""
        if not self.are_all:
            yield self.repository
            return
        for namespace in self.repository.list_namespaces():
            repository = self._open(namespace.name)
            if repository is not None:
                yield repository

    def page(
        self, fetch: Fetch[T], size: int, cursor: str | None
    ) -> tuple[list[InNamespace[T]], str | None]:
        """Return at most ``size`` items and the next cursor, None at the end.

        The cursor of all namespaces names the namespace in which the next page starts. If that
        namespace was deleted meanwhile, the page starts in the namespace after it.
        """
        first, position = self._start(cursor)
        found: list[InNamespace[T]] = []
        for repository in self:
            name = repository.namespace_name
            if self.are_all and name < first:
                continue
            if len(found) == size:
                # A cursor must lead to an item: the page of an empty namespace would be empty.
                if fetch(repository, 1, None)[0]:
                    return found, f"{name}{DELIMITER}"
                continue
            after = position if name == first or not self.are_all else None
            items, after = fetch(repository, size - len(found), after)
            found += [InNamespace(name, item) for item in items]
            if after is not None:
                return found, f"{name}{DELIMITER}{after}" if self.are_all else after
        return found, None

    def pages(
        self, fetch: Fetch[T], limit: int | None, cursor: str | None
    ) -> Pages[InNamespace[T]]:
        """Return the pages of a listing from ``cursor`` on."""
        return Pages(lambda size, after: self.page(fetch, size, after), limit, cursor)

    def hint(self, output: str, fetch: Fetch[T], *, with_all: bool = True) -> None:
        """Print a hint if the namespace holds nothing and another namespace does.

        ``with_all`` says whether the command has the option ``--all-namespaces``.
        """
        if self.are_all or output == "json":
            return
        holders = self.holders(fetch)
        if not holders:
            return
        if len(holders) == 1:
            advice = f"namespace {holders[0]!r} has matches: use --namespace {holders[0]}"
            print_hint(output, advice + (", or --all-namespaces" if with_all else ""))
            return
        names = f"{', '.join(map(repr, holders[:-1]))} and {holders[-1]!r}"
        option = "--all-namespaces" if with_all else "--namespace NAME"
        print_hint(output, f"namespaces {names} have matches: use {option}")

    def holders(self, fetch: Fetch[T]) -> list[str]:
        """Return the names of other namespaces that hold something, among the first few.

        A caller who may read only one namespace gets no hint: the command itself has succeeded.
        """
        holders = []
        try:
            for namespace in self.repository.list_namespaces()[:MAX_SEARCHED]:
                repository = self._open(namespace.name)
                if repository not in (None, self.repository) and fetch(repository, 1, None)[0]:
                    holders.append(namespace.name)
        except PermissionDenied:
            pass
        return holders

    def _start(self, cursor: str | None) -> tuple[str, str | None]:
        if cursor is None or not self.are_all:
            return "", cursor
        name, delimiter, position = cursor.partition(DELIMITER)
        if not delimiter:
            raise click.UsageError(
                f"{cursor!r} is not a cursor; give the cursor that the previous page returned"
            )
        return name, position or None

    def _open(self, name: str) -> SyncRepository | None:
        """Return the repository of a namespace; None if the namespace was deleted."""
        if name not in self._repositories:
            try:
                self._repositories[name] = self.repository.namespace(name)
            except NamespaceNotFoundError:
                return None
        return self._repositories[name]


@contextmanager
def open_namespaces(store: StoreLocation, all_namespaces: bool) -> Iterator[Namespaces]:
    """Open the store for the namespace that the options name, or for all."""
    if not all_namespaces:
        with store.open() as repository:
            yield Namespaces(repository, are_all=False)
        return
    source = click.get_current_context().get_parameter_source("namespace")
    if source is ParameterSource.COMMANDLINE:
        raise click.UsageError("--all-namespaces reads all namespaces; leave out --namespace")
    with store.registry() as repository:
        yield Namespaces(repository, are_all=True)
