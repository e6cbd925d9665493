"""Kubernetes label selectors, as a source's settings give them: `a=b, c!=d, e in (f, g), h notin (i), j, !k`.

They mean what they mean to the API server: an absent label satisfies `!=` and `notin`, no requirement means everything.
"""

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

_NAME: Final = r"[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?"
_PREFIX: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*")
_VALUE: Final = re.compile(_NAME)
_EQUAL: Final = re.compile(r"([^\s=!()]+)\s*(==|!=|=)\s*([^\s=!()]*)")
_IN_SET: Final = re.compile(r"([^\s=!()]+)\s+(in|notin)\s*\(([^()]*)\)")
_PRESENT: Final = re.compile(r"(!?)\s*([^\s=!()]+)")


class WrongSelector(ValueError):
    """The text is no label selector; the message names the setting and says what is wrong."""


class Requirement(NamedTuple):
    """Among `values`, or with `negated` not among them; without values, only whether the label is there."""

    key: str
    negated: bool
    values: frozenset[str] | None

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        if self.values is None:
            return (value is None) == self.negated
        return (value in self.values) != self.negated


class Selector(NamedTuple):
    text: str
    requirements: tuple[Requirement, ...]

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(requirement.matches(labels) for requirement in self.requirements)


@lru_cache(maxsize=1024)
def parse(text: str, setting: str = "selector") -> Selector:
    """Raises WrongSelector."""
    if not text.strip():
        return Selector(text, ())
    try:
        return Selector(text, tuple(_requirement(part.strip()) for part in _parts(text)))
    except ValueError as error:
        raise WrongSelector(f"{setting}: {text!r} is no label selector: {error}") from None


def _parts(text: str) -> Iterator[str]:
    """What stands between the commas, but for those in parentheses."""
    depth, begun = 0, 0
    for place, sign in enumerate(text):
        depth += (sign == "(") - (sign == ")")
        if depth not in (0, 1):
            raise ValueError("its parentheses don't match")
        if sign == "," and not depth:
            yield text[begun:place]
            begun = place + 1
    if depth:
        raise ValueError("its parentheses don't match")
    yield text[begun:]


def _requirement(part: str) -> Requirement:
    if not part:
        raise ValueError("there is nothing before or after a comma")
    if found := _IN_SET.fullmatch(part):
        if not found[3].strip():
            raise ValueError(f"{part!r} names no value")
        values = frozenset(_value(value.strip()) for value in found[3].split(","))
        return Requirement(_key(found[1]), found[2] == "notin", values)
    if found := _EQUAL.fullmatch(part):
        return Requirement(_key(found[1]), found[2] == "!=", frozenset({_value(found[3])}))
    if found := _PRESENT.fullmatch(part):
        return Requirement(_key(found[2]), bool(found[1]), None)
    raise ValueError(f"{part!r} is none of: a=b, a!=b, a in (b, c), a notin (b, c), a, !a")


def _key(text: str) -> str:
    prefix, slash, name = text.rpartition("/")
    fine = len(name) <= 63 and _VALUE.fullmatch(name)
    if not fine or (slash and not (len(prefix) <= 253 and _PREFIX.fullmatch(prefix))):
        raise ValueError(f"{text!r} can't be the name of a label")
    return text


def _value(text: str) -> str:
    if text and not (len(text) <= 63 and _VALUE.fullmatch(text)):
        raise ValueError(f"{text!r} can't be the value of a label")
    return text
