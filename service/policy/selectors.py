"""Label selectors of a source's settings: `a=b, c!=d, e in (f, g), h notin (i), j, !k`.

Semantics are those of the API server: an absent label satisfies `!=` and `notin`, an empty selector matches everything.
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


class InvalidSelector(ValueError):
    """The message names the setting and the error."""


class Requirement(NamedTuple):
    """The label is in `values`, or with `negated` not in them; without values, the label exists or not."""

    key: str
    negated: bool
    values: frozenset[str] | None

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        if self.values is None:
            return (value is None) == self.negated
        return (value in self.values) != self.negated


class LabelSelector(NamedTuple):
    text: str
    requirements: tuple[Requirement, ...]

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(requirement.matches(labels) for requirement in self.requirements)


@lru_cache(maxsize=1024)
def parse_selector(text: str, setting: str = "selector") -> LabelSelector:
    """Raises InvalidSelector."""
    if not text.strip():
        return LabelSelector(text, ())
    try:
        return LabelSelector(text, tuple(_requirement(part.strip()) for part in _parts(text)))
    except ValueError as error:
        raise InvalidSelector(f"{setting}: {text!r} is no label selector: {error}") from None


def _parts(text: str) -> Iterator[str]:
    """The parts between commas that are not inside parentheses."""
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
