"""Parser for a part of the query language of Resource Graph; everything else is refused.
A query becomes conditions on resources, columns, an order and a limit."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

from standins.azure.documents import document
from standins.azure.resources import TYPES
from standins.azure.stored_resources import StoredResource

Path = tuple[str, ...]
Getter = Callable[[StoredResource], Any]
Condition = Callable[[StoredResource], bool]
_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<text>'[^']*'|"[^"]*")|(?P<name>[A-Za-z_][\w$]*~?)|(?P<number>\d+)|(?P<sign>==|=~|!=|!~|[|=,.()\[\]]))"""
)
_TESTS: Final = {"isnotempty": True, "isempty": False}


class UnsupportedQuery(Exception):
    """The query uses something that the stand-in does not implement."""


@dataclass(frozen=True, slots=True)
class GraphQuery:
    """Without columns, rows are whole. `types` are the conditions on the type, evaluated once per kind."""

    types: tuple[Condition, ...] = ()
    conditions: tuple[Condition, ...] = ()
    columns: tuple[tuple[str, Getter], ...] = ()
    order: Literal["id", "name"] = "id"
    descending: bool = False
    limit: int | None = None


def getter(path: Path) -> Getter:
    """Reads the value at a path. Types and resource groups are in lower case in rows."""
    match path:
        case ("type",):
            return lambda resource: TYPES[resource.kind].lower()
        case ("name",):
            return lambda resource: resource.spec.name
        case ("id",):
            return lambda resource: resource.id
        case ("resourceGroup",):
            return lambda resource: resource.spec.group.lower()
        case ("subscriptionId",):
            return lambda resource: resource.spec.subscription
        case ("location",):
            return lambda resource: resource.spec.region
        case ("tags",):
            return lambda resource: resource.spec.tags
        case ("tags", key):
            return lambda resource: resource.spec.tags.get(key)
        case ("managedBy",):
            return lambda resource: resource.holder if resource.kind == "disk" else ""
    return lambda resource: _inside(resource, path)


def _inside(resource: StoredResource, path: Path) -> Any:
    found: Any = document(resource)
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    return found


def parse(text: str) -> GraphQuery:
    return _Parser(_tokens(text)).query()


def _tokens(text: str) -> list[tuple[str, str]]:
    found, at, text = [], 0, text.strip()
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None or token.lastgroup is None:
            raise UnsupportedQuery(f"at {text[at : at + 20]!r}")
        value = token[token.lastgroup]
        found.append((token.lastgroup, value[1:-1] if token.lastgroup == "text" else value))
        at = token.end()
    return found


class _Parser:
    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self._tokens, self._at = tokens, 0

    def query(self) -> GraphQuery:
        if self._name().lower() != "resources":
            raise UnsupportedQuery("only Resources can be asked")
        conditions: list[tuple[Path, Condition]] = []
        columns: tuple[tuple[str, Getter], ...] = ()
        order: Literal["id", "name"] = "id"
        descending, limit = False, None
        while self._at < len(self._tokens):
            self._expect("|")
            match self._name().lower():
                # After a limit or a projection these would have another meaning.
                case "where" if limit is None and not columns:
                    conditions += self._conditions()
                case "project" if not columns:
                    columns = self._columns()
                case "order" | "sort" if limit is None:
                    order, descending = self._order()
                case "limit" | "take" if limit is None:
                    limit = int(self._take("number"))
                case other:
                    raise UnsupportedQuery(f"{other!r} in this place")
        types = tuple(one for path, one in conditions if path == ("type",))
        others = tuple(one for path, one in conditions if path != ("type",))
        return GraphQuery(types, others, columns, order, descending, limit)

    # ---- stages

    def _conditions(self) -> list[tuple[Path, Condition]]:
        found = [self._condition()]
        while self._peek() == ("name", "and"):
            self._at += 1
            found.append(self._condition())
        return found

    def _condition(self) -> tuple[Path, Condition]:
        kind, text = self._peek()
        if kind == "name" and text in _TESTS:
            self._at += 1
            self._expect("(")
            path = self._path()
            self._expect(")")
            get, wanted = getter(path), _TESTS[text]
            return path, lambda resource: bool(get(resource)) == wanted
        path = self._path()
        kind, sign = self._next()
        match sign:
            case "==" | "!=" | "=~" | "!~":
                return path, _compare(path, (self._take("text"),), fold="~" in sign, negate=sign[0] == "!")
            case "in" | "in~":
                self._expect("(")
                values = [self._take("text")]
                while self._peek() == ("sign", ","):
                    self._at += 1
                    values.append(self._take("text"))
                self._expect(")")
                return path, _compare(path, tuple(values), fold=sign == "in~", negate=False)
        raise UnsupportedQuery(f"{sign!r}")

    def _columns(self) -> tuple[tuple[str, Getter], ...]:
        found = [self._column()]
        while self._peek() == ("sign", ","):
            self._at += 1
            found.append(self._column())
        return tuple(found)

    def _column(self) -> tuple[str, Getter]:
        start = self._at
        name = self._name()
        if self._peek() == ("sign", "="):
            self._at += 1
            return name, getter(self._path())
        self._at = start
        path = self._path()
        return "_".join(path), getter(path)

    def _order(self) -> tuple[Literal["id", "name"], bool]:
        if self._name().lower() != "by":
            raise UnsupportedQuery("an order without by")
        by = self._name()
        if by not in ("id", "name"):
            raise UnsupportedQuery(f"an order by {by!r}")
        # As in Kusto, the default order is descending.
        descending = True
        if self._peek() in (("name", "asc"), ("name", "desc")):
            descending = self._next()[1] == "desc"
        return "id" if by == "id" else "name", descending

    # ---- tokens

    def _path(self) -> Path:
        name = self._name()
        if name == "tostring" and self._peek() == ("sign", "("):
            self._at += 1
            path = self._path()
            self._expect(")")
            return path
        parts = [name]
        while True:
            match self._peek():
                case ("sign", "."):
                    self._at += 1
                    parts.append(self._name())
                case ("sign", "["):
                    self._at += 1
                    parts.append(self._take("text"))
                    self._expect("]")
                case _:
                    return tuple(parts)

    def _peek(self) -> tuple[str, str]:
        return self._tokens[self._at] if self._at < len(self._tokens) else ("", "")

    def _next(self) -> tuple[str, str]:
        found = self._peek()
        self._at += 1
        return found

    def _take(self, kind: str) -> str:
        found, text = self._next()
        if found != kind:
            raise UnsupportedQuery(f"{text!r} where a {kind} is wanted")
        return text

    def _name(self) -> str:
        return self._take("name")

    def _expect(self, sign: str) -> None:
        if self._next() != ("sign", sign):
            raise UnsupportedQuery(f"no {sign!r} where one is wanted")


def _compare(path: Path, wanted: tuple[str, ...], *, fold: bool, negate: bool) -> Condition:
    get = getter(path)
    if fold:
        folded = frozenset(one.lower() for one in wanted)
        return lambda resource: (str(get(resource) or "").lower() in folded) != negate
    exact = frozenset(wanted)
    return lambda resource: (str(get(resource) or "") in exact) != negate
