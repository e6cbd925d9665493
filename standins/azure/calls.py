"""ARM requests, parsed: operation, resource and principal.
Paths match in any case; the principal is the text of the bearer token."""

from collections.abc import Mapping
from typing import Any, Final, Literal
from urllib.parse import unquote

import msgspec

from standins.azure.resources import KINDS, ResourceKind, id_of

SETUP: Final = "x-knell-setup"
"""Requests with this header create test data: they are not throttled, get no faults and are marked in the journal."""

TOKEN_PREFIX: Final = "knell."  # noqa: S105 - prefix of every token of the stand-in, no secret
Sort = Literal["reads", "writes", "deletes"]
_VERBS: Final = {"GET": "get", "PUT": "put", "PATCH": "update", "DELETE": "delete"}
_SORTS: Final[dict[str, Sort]] = {"DELETE": "deletes", "PUT": "writes", "PATCH": "writes"}


class ArmCall(msgspec.Struct, frozen=True, kw_only=True):
    """`operation` is empty for a path that is not served. A poll has the id of the operation as its name; `poll` is
    `operations` for the URL of `Azure-AsyncOperation` and `operationResults` for that of `Location`."""

    method: str
    path: str
    query: Mapping[str, str]
    body: bytes
    principal: str
    setup: bool
    operation: str = ""
    kind: ResourceKind | None = None
    provider: str = ""
    subscription: str = ""
    group: str = ""
    name: str = ""
    region: str = ""
    poll: str = ""

    @property
    def sort(self) -> Sort:
        return _SORTS.get(self.method, "reads")

    @property
    def id(self) -> str:
        """In the case that the caller sent."""
        return id_of(self.subscription, self.group, self.kind, self.name) if self.kind and self.name else ""

    @property
    def key(self) -> str:
        return self.id.lower()

    def says(self, text: str) -> bool:
        return text.lower() in self.path.lower() or text.lower().encode() in self.body.lower()


def parse_call(method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes) -> ArmCall:
    header = headers.get("Authorization", "")
    token = header.removeprefix("Bearer ").strip() if header.startswith("Bearer ") else ""
    call = ArmCall(
        method=method,
        path=path,
        query=query,
        body=body,
        principal=token.removeprefix(TOKEN_PREFIX),
        setup=SETUP in headers,
    )
    parts = [unquote(one) for one in path.strip("/").split("/")]
    return msgspec.structs.replace(call, **_parse_path(method, parts))


def _parse_path(method: str, parts: list[str]) -> dict[str, Any]:
    match [one.lower() if number % 2 == 0 else one for number, one in enumerate(parts)]:
        case ["providers", graph, "resources"] if graph.lower() == "microsoft.resourcegraph" and method == "POST":
            return {"operation": "graph.query", "provider": "graph"}
        case ["subscriptions", subscription, "resourcegroups", group, "providers", provider, one, name]:
            found = _of_kind(provider, one)
            if found and method in _VERBS:
                named = {"subscription": subscription, "group": group, "name": name}
                return {**found, **named, "operation": f"{found['kind']}.{_VERBS[method]}"}
        case [
            "subscriptions", subscription, "resourcegroups", group, "providers", provider, one, name, "providers",
            tags, "tags", "default",
        ] if tags.lower() == "microsoft.resources" and method == "PATCH":  # fmt: skip
            if found := _of_kind(provider, one):
                named = {"subscription": subscription, "group": group, "name": name, "provider": "resources"}
                return {**found, **named, "operation": f"{found['kind']}.tag"}
        case ["subscriptions", subscription, "resourcegroups", group, "providers", provider, one]:
            found = _of_kind(provider, one)
            if found and method == "GET":
                named = {"subscription": subscription, "group": group}
                return {**found, **named, "operation": f"{found['kind']}.list"}
        case ["subscriptions", subscription, "providers", provider, "locations", region, poll, name]:
            if method == "GET" and poll in ("operations", "operationresults"):
                side = provider.lower().rpartition(".")[2]
                named = {"subscription": subscription, "region": region, "name": name, "poll": poll}
                return {**named, "provider": side, "operation": "operation.get"}
        case ["subscriptions", subscription, "providers", provider, one]:
            found = _of_kind(provider, one)
            if found and method == "GET":
                return {**found, "subscription": subscription, "operation": f"{found['kind']}.list"}
    return {}


def _of_kind(provider: str, one: str) -> dict[str, Any]:
    kind = KINDS.get(f"{provider}/{one}".lower())
    return {"kind": kind, "provider": provider.lower().rpartition(".")[2]} if kind is not None else {}
