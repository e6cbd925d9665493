"""Label and field selectors: parsed once per request, then matched with every object.
The grammar is that of Kubernetes: equality, sets, existence, joined by commas."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from standins.kubernetes_api import statuses
from standins.kubernetes_api.api_resources import ApiResource
from standins.kubernetes_api.documents import Document, decode, labels

Test: TypeAlias = Callable[[dict[str, str]], bool]

_KEY: Final = r"(?:[A-Za-z0-9.-]+/)?[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_VALUE: Final = r"[A-Za-z0-9._-]*"
_SET = re.compile(rf"^({_KEY})\s+(in|notin)\s*\(([^()]*)\)$")
_EQUAL = re.compile(rf"^({_KEY})\s*(==|=|!=)\s*({_VALUE})$")
_EXISTS = re.compile(rf"^(!?)\s*({_KEY})$")
_COMMAS = re.compile(r",(?![^()]*\))")


@dataclass(frozen=True, slots=True)
class ListSelector:
    tests: tuple[Test, ...]
    fields: tuple[tuple[tuple[str, ...], bool, str], ...]

    @property
    def everything(self) -> bool:
        return not self.tests and not self.fields

    def matches(self, raw: bytes) -> bool:
        if self.tests:
            found = labels(raw)
            if not all(test(found) for test in self.tests):
                return False
        if not self.fields:
            return True
        document = decode(raw)
        return all((_text(document, path) == value) is wanted for path, wanted, value in self.fields)


def parse(resource: ApiResource, label_selector: str, field_selector: str) -> ListSelector:
    """Raises StatusError for an invalid selector or an unsupported field."""
    parts = [part.strip() for part in _COMMAS.split(label_selector)] if label_selector.strip() else []
    return ListSelector(tuple(_label(part) for part in parts), tuple(_fields(resource, field_selector)))


def _label(text: str) -> Test:
    if found := _SET.match(text):
        key, word, values = found.groups()
        among = frozenset(value.strip() for value in values.split(","))
        if word == "in":
            return lambda have: key in have and have[key] in among
        return lambda have: key not in have or have[key] not in among
    if found := _EQUAL.match(text):
        key, sign, value = found.groups()
        if sign == "!=":
            return lambda have: have.get(key) != value
        return lambda have: have.get(key) == value
    if found := _EXISTS.match(text):
        negated, key = found.groups()
        return lambda have: (key in have) is not bool(negated)
    raise statuses.bad_request(f"unable to parse requirement: found '{text}', expected a selector")


def _fields(resource: ApiResource, text: str) -> list[tuple[tuple[str, ...], bool, str]]:
    parts = []
    for part in filter(None, text.split(",")):
        found = re.match(r"^([^=!]+)(==|=|!=)(.*)$", part)
        if found is None:
            raise statuses.bad_request(f"invalid selector: '{part}'; can't understand '{part}'")
        path, sign, value = found.groups()
        if path not in ("metadata.name", "metadata.namespace", *resource.fields):
            raise statuses.bad_request(f"field label not supported: {path}")
        parts.append((tuple(path.split(".")), sign != "!=", value))
    return parts


def _text(document: Document, path: tuple[str, ...]) -> str:
    found: object = document
    for step in path:
        if not isinstance(found, dict):
            return ""
        found = found.get(step)
    if isinstance(found, bool):
        return "true" if found else "false"
    return "" if found is None else str(found)
