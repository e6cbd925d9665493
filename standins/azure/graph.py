"""Resource Graph: queries over all subscriptions, of a world that it knows later than it happens.
A query's rows are settled when its first page is asked for; later pages show what has become of them."""

import uuid
from functools import partial
from hashlib import md5
from itertools import islice
from typing import Any, Final

import msgspec

from standins.azure.answers import Answer, answered, failed
from standins.azure.behaviour import Behaviour
from standins.azure.query import NotUnderstood, Query, parse
from standins.azure.resources import Kind
from standins.azure.shapes import document
from standins.azure.shelf import Shelf
from standins.azure.thing import Thing
from standins.azure.world import TENANT
from standins.clock import Clock

_LARGEST_PAGE: Final = 1000
_RESULTS_KEPT: Final = 64


class _Options(msgspec.Struct, frozen=True, rename="camel"):
    top: int | None = msgspec.field(default=None, name="$top")
    skip: int | None = msgspec.field(default=None, name="$skip")
    skip_token: str | None = msgspec.field(default=None, name="$skipToken")
    result_format: str | None = None


class _Asked(msgspec.Struct, frozen=True):
    query: str
    subscriptions: list[str] | None = None
    options: _Options | None = None


class _Result(msgspec.Struct, frozen=True):
    asked: tuple[str, frozenset[str]]
    query: Query
    things: list[Thing]


class Graph:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._shelves: dict[tuple[str, Kind], Shelf] = {}
        self._gone: dict[str, int] = {}
        self._results: dict[str, _Result] = {}

    def changed(self, thing: Thing, gone: bool, lag: float) -> None:
        if lag > 0:
            self._clock.after(lag, partial(self._learn, thing, gone))
        else:
            self._learn(thing, gone, 0.0)

    def _learn(self, thing: Thing, gone: bool, _at: float) -> None:
        at = (thing.made.subscription.lower(), thing.kind)
        if (shelf := self._shelves.get(at)) is None:
            shelf = self._shelves[at] = Shelf()
        known = shelf.get(thing.key)
        newest = max(known.version if known is not None else 0, self._gone.get(thing.key, 0))
        # A lag that was shortened meanwhile lets news overtake what is older.
        if thing.version < newest:
            return
        if gone:
            shelf.remove(thing.key)
            self._gone[thing.key] = thing.version
        else:
            shelf.put(thing)

    def answer(self, body: bytes, behaviour: Behaviour) -> Answer:
        try:
            asked = msgspec.json.decode(body, type=_Asked)
            options = asked.options or _Options()
            within = frozenset(one.lower() for one in asked.subscriptions or ())
            result, start = self._result(asked.query, within, options, behaviour)
        except msgspec.MsgspecError as error:
            return _refused("InvalidPayload", str(error))
        except NotUnderstood as error:
            return _refused("InvalidQuery", f"Query is invalid: {error}")
        if result is None:
            return _refused("InvalidSkipToken", "The skip token is not one of this query.")
        if options.result_format not in (None, "objectArray"):
            return _refused("InvalidResultFormat", "Only objectArray is served.")
        size = min(options.top or _LARGEST_PAGE, _LARGEST_PAGE)
        settled = result.things[start : start + size]
        found = [now for thing in settled if (now := self._now(thing)) is not None]
        page: dict[str, Any] = {
            "totalRecords": len(result.things),
            "count": len(found),
            "resultTruncated": "false",
            "data": [_row(thing, result.query, behaviour) for thing in found],
            "facets": [],
        }
        if start + size < len(result.things):
            page["$skipToken"] = self._keep(result, start + size)
        return answered(page)

    def _now(self, thing: Thing) -> Thing | None:
        """What it has become since."""
        return self._shelves[thing.made.subscription.lower(), thing.kind].get(thing.key)

    def _result(
        self, text: str, within: frozenset[str], options: _Options, behaviour: Behaviour
    ) -> tuple[_Result | None, int]:
        if options.skip_token:
            identity, _, start = options.skip_token.partition(".")
            found = self._results.get(identity)
            if found is None or found.asked != (text, within) or not start.isdigit():
                return None, 0
            return found, int(start)
        query = parse(text)
        return _Result((text, within), query, self._things(query, within, behaviour)), options.skip or 0

    def _things(self, query: Query, within: frozenset[str], behaviour: Behaviour) -> list[Thing]:
        omitted = frozenset(one.lower() for one in behaviour.graph_omits)
        found: list[Thing] = []
        for (subscription, _), shelf in sorted(self._shelves.items(), key=lambda one: one[0]):
            if not within or subscription in within:
                found += _filtered(shelf, query)
        if omitted:
            found = [thing for thing in found if thing.made.name.lower() not in omitted]
        if query.order == "name":
            found.sort(key=lambda thing: thing.made.name, reverse=query.descending)
        elif query.descending:
            found.sort(key=lambda thing: thing.key, reverse=True)
        return found[: query.limit]

    def _keep(self, result: _Result, start: int) -> str:
        for identity, one in self._results.items():
            if one is result:
                return f"{identity}.{start}"
        identity = uuid.uuid4().hex
        self._results[identity] = result
        for old in list(islice(self._results, max(0, len(self._results) - _RESULTS_KEPT))):
            del self._results[old]
        return f"{identity}.{start}"


def _filtered(shelf: Shelf, query: Query) -> list[Thing]:
    """Condition by condition, and one look for what is the same for all."""
    first = next(iter(shelf), None)
    if first is None or not all(condition(first) for condition in query.types):
        return []
    things = list(shelf)
    for condition in query.conditions:
        things = [thing for thing in things if condition(thing)]
        if not things:
            break
    return things


def _row(thing: Thing, query: Query, behaviour: Behaviour) -> dict[str, Any]:
    case = _case(thing) if behaviour.graph_cases else 0
    if query.columns:
        row = {name: _spelt(get(thing), case) for name, get in query.columns}
        if thing.made.name in behaviour.graph_without_guid:
            row["guid"] = None
        return row
    whole = document(thing)
    made = thing.made
    row = {
        **whole,
        "type": whole["type"].lower(),
        "tenantId": TENANT,
        "kind": "",
        "resourceGroup": made.group.lower(),
        "subscriptionId": made.subscription,
        "managedBy": thing.holder if thing.kind == "disk" else "",
    }
    return {name: _spelt(one, case) for name, one in row.items()}


def _case(thing: Thing) -> int:
    return md5(thing.key.encode(), usedforsecurity=False).digest()[0] % 3


def _spelt(found: Any, case: int) -> Any:
    """Ids in the case that a row happens to have: Azure's own, small letters, or groups in capitals."""
    if case == 0:
        return found
    if isinstance(found, str) and found.startswith("/subscriptions/"):
        if case == 1:
            return found.lower()
        parts = found.split("/")
        parts[4] = parts[4].upper()
        return "/".join(parts)
    if isinstance(found, dict):
        return {name: _spelt(one, case) for name, one in found.items()}
    if isinstance(found, list):
        return [_spelt(one, case) for one in found]
    return found


def _refused(code: str, words: str) -> Answer:
    details = [{"code": code, "message": words}]
    return failed(400, "BadRequest", f"Please provide below info when asking for support: {words}", details=details)
