"""Actions of a state machine: methods with drawn arguments, chosen by weight.

Hypothesis picks among rules uniformly; weights let the actions that make progress come more often."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from hypothesis import strategies as st

F = TypeVar("F", bound=Callable[..., None])


class Action(NamedTuple):
    """A method by its name, and what it is called with."""

    name: str
    words: dict[str, Any]

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(f'{word}={value!r}' for word, value in self.words.items())})"

    def do(self, machine: object) -> None:
        getattr(machine, self.name)(**self.words)


def action(weight: int = 1, **draws: st.SearchStrategy[Any]) -> Callable[[F], F]:
    """Marks a method of a machine as something that may happen."""

    def mark(method: F) -> F:
        method.action = (weight, draws)  # type: ignore[attr-defined]  # where `actions_of` finds it
        return method

    return mark


def actions_of(machine: type, only: tuple[str, ...] = ()) -> st.SearchStrategy[Action]:
    """Everything that is marked, or only what is named, by weight."""
    marked = {name: method.action for name in dir(machine) if hasattr(method := getattr(machine, name), "action")}
    assert set(only) <= set(marked), f"no such actions: {set(only) - set(marked)}"
    marked = {name: found for name, found in marked.items() if name in only or not only}
    names = [name for name, (weight, _) in sorted(marked.items()) for _ in range(weight)]

    @st.composite
    def drawn(draw: st.DrawFn) -> Action:
        name = draw(st.sampled_from(names))
        return Action(name, {word: draw(strategy) for word, strategy in marked[name][1].items()})

    return drawn()
