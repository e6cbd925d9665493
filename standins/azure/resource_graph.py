"""Resource Graph: queries over all subscriptions, on a state that is behind ARM by a lag.
The first page fixes the rows of a query; later pages show their present state."""

import uuid
from functools import partial
from hashlib import md5
from itertools import islice
from typing import Any, Final

import msgspec

from standins.azure.behaviour import AzureBehaviour
from standins.azure.documents import document
from standins.azure.graph_query import GraphQuery, UnsupportedQuery, parse
from standins.azure.resources import TENANT, ResourceKind
from standins.azure.responses import ArmResponse, answered, failed
from standins.azure.stored_resources import ResourceIndex, StoredResource
from standins.clock import Clock

_LARGEST_PAGE: Final = 1000
_RESULTS_KEPT: Final = 64


class _QueryOptions(msgspec.Struct, frozen=True, rename="camel"):
    top: int | None = msgspec.field(default=None, name="$top")
    skip: int | None = msgspec.field(default=None, name="$skip")
    skip_token: str | None = msgspec.field(default=None, name="$skipToken")
    result_format: str | None = None


class _QueryRequest(msgspec.Struct, frozen=True):
    query: str
    subscriptions: list[str] | None = None
    options: _QueryOptions | None = None


class _Result(msgspec.Struct, frozen=True):
    asked: tuple[str, frozenset[str]]
    query: GraphQuery
    resources: list[StoredResource]


class ResourceGraph:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._indexes: dict[tuple[str, ResourceKind], ResourceIndex] = {}
        self._gone: dict[str, int] = {}
        self._results: dict[str, _Result] = {}

    def changed(self, resource: StoredResource, gone: bool, lag: float) -> None:
        if lag > 0:
            self._clock.after(lag, partial(self._learn, resource, gone))
        else:
            self._learn(resource, gone, 0.0)

    def _learn(self, resource: StoredResource, gone: bool, _at: float) -> None:
        at = (resource.spec.subscription.lower(), resource.kind)
        if (index := self._indexes.get(at)) is None:
            index = self._indexes[at] = ResourceIndex()
        known = index.get(resource.key)
        newest = max(known.version if known is not None else 0, self._gone.get(resource.key, 0))
        # After the lag was shortened, a newer change can arrive before an older one.
        if resource.version < newest:
            return
        if gone:
            index.remove(resource.key)
            self._gone[resource.key] = resource.version
        else:
            index.put(resource)

    def answer(self, body: bytes, behaviour: AzureBehaviour) -> ArmResponse:
        try:
            asked = msgspec.json.decode(body, type=_QueryRequest)
            options = asked.options or _QueryOptions()
            within = frozenset(one.lower() for one in asked.subscriptions or ())
            result, start = self._result(asked.query, within, options, behaviour)
        except msgspec.MsgspecError as error:
            return _refused("InvalidPayload", str(error))
        except UnsupportedQuery as error:
            return _refused("InvalidQuery", f"Query is invalid: {error}")
        if result is None:
            return _refused("InvalidSkipToken", "The skip token is not one of this query.")
        if options.result_format not in (None, "objectArray"):
            return _refused("InvalidResultFormat", "Only objectArray is served.")
        size = min(options.top or _LARGEST_PAGE, _LARGEST_PAGE)
        settled = result.resources[start : start + size]
        found = [now for resource in settled if (now := self._now(resource)) is not None]
        page: dict[str, Any] = {
            "totalRecords": len(result.resources),
            "count": len(found),
            "resultTruncated": "false",
            "data": [_row(resource, result.query, behaviour) for resource in found],
            "facets": [],
        }
        if start + size < len(result.resources):
            page["$skipToken"] = self._keep(result, start + size)
        return answered(page)

    def _now(self, resource: StoredResource) -> StoredResource | None:
        """Its present version."""
        return self._indexes[resource.spec.subscription.lower(), resource.kind].get(resource.key)

    def _result(
        self, text: str, within: frozenset[str], options: _QueryOptions, behaviour: AzureBehaviour
    ) -> tuple[_Result | None, int]:
        if options.skip_token:
            identity, _, start = options.skip_token.partition(".")
            found = self._results.get(identity)
            if found is None or found.asked != (text, within) or not start.isdigit():
                return None, 0
            return found, int(start)
        query = parse(text)
        return _Result((text, within), query, self._resources(query, within, behaviour)), options.skip or 0

    def _resources(self, query: GraphQuery, within: frozenset[str], behaviour: AzureBehaviour) -> list[StoredResource]:
        omitted = frozenset(one.lower() for one in behaviour.graph_omits)
        found: list[StoredResource] = []
        for (subscription, _), index in sorted(self._indexes.items(), key=lambda one: one[0]):
            if not within or subscription in within:
                found += _filtered(index, query)
        if omitted:
            found = [resource for resource in found if resource.spec.name.lower() not in omitted]
        if query.order == "name":
            found.sort(key=lambda resource: resource.spec.name, reverse=query.descending)
        elif query.descending:
            found.sort(key=lambda resource: resource.key, reverse=True)
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


def _filtered(index: ResourceIndex, query: GraphQuery) -> list[StoredResource]:
    """Applies the conditions one by one; those on the type are evaluated for the first resource only."""
    first = next(iter(index), None)
    if first is None or not all(condition(first) for condition in query.types):
        return []
    resources = list(index)
    for condition in query.conditions:
        resources = [resource for resource in resources if condition(resource)]
        if not resources:
            break
    return resources


def _row(resource: StoredResource, query: GraphQuery, behaviour: AzureBehaviour) -> dict[str, Any]:
    case = _case(resource) if behaviour.graph_cases else 0
    if query.columns:
        row = {name: _spelt(get(resource), case) for name, get in query.columns}
        if resource.spec.name in behaviour.graph_without_guid:
            row["guid"] = None
        return row
    whole = document(resource)
    spec = resource.spec
    row = {
        **whole,
        "type": whole["type"].lower(),
        "tenantId": TENANT,
        "kind": "",
        "resourceGroup": spec.group.lower(),
        "subscriptionId": spec.subscription,
        "managedBy": resource.holder if resource.kind == "disk" else "",
    }
    return {name: _spelt(one, case) for name, one in row.items()}


def _case(resource: StoredResource) -> int:
    return md5(resource.key.encode(), usedforsecurity=False).digest()[0] % 3


def _spelt(found: Any, case: int) -> Any:
    """Resource ids in the case of the row: as created, in lower case, or with the resource group in upper case."""
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


def _refused(code: str, words: str) -> ArmResponse:
    details = [{"code": code, "message": words}]
    return failed(400, "BadRequest", f"Please provide below info when asking for support: {words}", details=details)
