"""Depth-first search over all states of a model, and the history that breaks a rule of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Generic, TypeVar

S = TypeVar("S")  # a state: two states that are equal have the same future


class Broken(AssertionError):
    """A rule does not hold; the history that leads there is in ``steps``."""

    def __init__(self, rule: str, steps: list[str]) -> None:
        super().__init__("\n".join([rule, *steps]))
        self.rule, self.steps = rule, steps


class Search(ABC, Generic[S]):
    """A model: its first state, the steps from a state to others, and the rules for each state."""

    def __init__(self) -> None:
        self.states = self.transitions = 0

    @abstractmethod
    def first_state(self) -> S:
        """Return the state in which every history begins."""

    @abstractmethod
    def steps(self, state: S) -> Iterator[tuple[str, S]]:
        """Yield every step that is possible in a state: what happens, and the state after it."""

    @abstractmethod
    def broken_rule(self, state: S) -> str | None:
        """Return the rule that a state breaks, in words; None if it keeps them all."""

    def explore(self) -> None:
        """Visit every state; raises Broken with the history that breaks a rule."""
        first = self.first_state()
        seen, stack = {first}, [first]
        came: dict[S, tuple[S, str]] = {}
        while stack:
            state = stack.pop()
            self.states += 1
            for step, after in self.steps(state):
                self.transitions += 1
                if after in seen:
                    continue
                seen.add(after)
                came[after] = (state, step)
                rule = self.broken_rule(after)
                if rule is not None:
                    raise Broken(rule, _path(came, after))
                stack.append(after)


def _path(came: dict[S, tuple[S, str]], state: S) -> list[str]:
    steps = []
    while state in came:
        state, step = came[state]
        steps.append(step)
    return steps[::-1]
