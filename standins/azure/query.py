"""The part of Resource Graph's query language that is understood here; everything else is refused, never guessed.
A query becomes conditions on things, columns, an order and a limit."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

from standins.azure.resources import TYPES
from standins.azure.shapes import document
from standins.azure.thing import Thing

Path = tuple[str, ...]
Getter = Callable[[Thing], Any]
Condition = Callable[[Thing], bool]
_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<text>'[^']*'|"[^"]*")|(?P<name>[A-Za-z_][\w$]*~?)|(?P<number>\d+)|(?P<sign>==|=~|!=|!~|[|=,.()\[\]]))"""
)
_TESTS: Final = {"isnotempty": True, "isempty": False}


class NotUnderstood(Exception):
    """It may be fine with Azure; here nobody knows what it means."""


@dataclass(frozen=True, slots=True)
class Query:
    """No columns means the whole row. `types` are the conditions that are the same for all of one kind."""

    types: tuple[Condition, ...] = ()
    conditions: tuple[Condition, ...] = ()
    columns: tuple[tuple[str, Getter], ...] = ()
    order: Literal["id", "name"] = "id"
    descending: bool = False
    limit: int | None = None


def getter(path: Path) -> Getter:
    """What a path leads to. Rows have types and groups in small letters."""
    match path:
        case ("type",):
            return lambda thing: TYPES[thing.kind].lower()
        case ("name",):
            return lambda thing: thing.made.name
        case ("id",):
            return lambda thing: thing.id
        case ("resourceGroup",):
            return lambda thing: thing.made.group.lower()
        case ("subscriptionId",):
            return lambda thing: thing.made.subscription
        case ("location",):
            return lambda thing: thing.made.region
        case ("tags",):
            return lambda thing: thing.made.tags
        case ("tags", key):
            return lambda thing: thing.made.tags.get(key)
        case ("managedBy",):
            return lambda thing: thing.holder if thing.kind == "disk" else ""
    return lambda thing: _inside(thing, path)


def _inside(thing: Thing, path: Path) -> Any:
    found: Any = document(thing)
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    return found


def parse(text: str) -> Query:
    return _Parser(_tokens(text)).query()


def _tokens(text: str) -> list[tuple[str, str]]:
    found, at, text = [], 0, text.strip()
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None or token.lastgroup is None:
            raise NotUnderstood(f"at {text[at : at + 20]!r}")
        said = token[token.lastgroup]
        found.append((token.lastgroup, said[1:-1] if token.lastgroup == "text" else said))
        at = token.end()
    return found


class _Parser:
    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self._tokens, self._at = tokens, 0

    def query(self) -> Query:
        if self._name().lower() != "resources":
            raise NotUnderstood("only Resources can be asked")
        conditions: list[tuple[Path, Condition]] = []
        columns: tuple[tuple[str, Getter], ...] = ()
        order: Literal["id", "name"] = "id"
        descending, limit = False, None
        while self._at < len(self._tokens):
            self._expect("|")
            match self._name().lower():
                # What follows a limit or a projection would mean something else there.
                case "where" if limit is None and not columns:
                    conditions += self._conditions()
                case "project" if not columns:
                    columns = self._columns()
                case "order" | "sort" if limit is None:
                    order, descending = self._order()
                case "limit" | "take" if limit is None:
                    limit = int(self._take("number"))
                case other:
                    raise NotUnderstood(f"{other!r} in this place")
        types = tuple(one for path, one in conditions if path == ("type",))
        others = tuple(one for path, one in conditions if path != ("type",))
        return Query(types, others, columns, order, descending, limit)

    # ---- stages

    def _conditions(self) -> list[tuple[Path, Condition]]:
        found = [self._condition()]
        while self._peek() == ("name", "and"):
            self._at += 1
            found.append(self._condition())
        return found

    def _condition(self) -> tuple[Path, Condition]:
        kind, said = self._peek()
        if kind == "name" and said in _TESTS:
            self._at += 1
            self._expect("(")
            path = self._path()
            self._expect(")")
            get, wanted = getter(path), _TESTS[said]
            return path, lambda thing: bool(get(thing)) == wanted
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
        raise NotUnderstood(f"{sign!r}")

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
            raise NotUnderstood("an order without by")
        by = self._name()
        if by not in ("id", "name"):
            raise NotUnderstood(f"an order by {by!r}")
        # As in Kusto, the order is a descending one unless it is said.
        descending = True
        if self._peek() in (("name", "asc"), ("name", "desc")):
            descending = self._next()[1] == "desc"
        return "id" if by == "id" else "name", descending

    # ---- words

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
        found, said = self._next()
        if found != kind:
            raise NotUnderstood(f"{said!r} where a {kind} is wanted")
        return said

    def _name(self) -> str:
        return self._take("name")

    def _expect(self, sign: str) -> None:
        if self._next() != ("sign", sign):
            raise NotUnderstood(f"no {sign!r} where one is wanted")


def _compare(path: Path, wanted: tuple[str, ...], *, fold: bool, negate: bool) -> Condition:
    get = getter(path)
    if fold:
        folded = frozenset(one.lower() for one in wanted)
        return lambda thing: (str(get(thing) or "").lower() in folded) != negate
    exact = frozenset(wanted)
    return lambda thing: (str(get(thing) or "") in exact) != negate
