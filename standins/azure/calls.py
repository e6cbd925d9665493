"""A request as ARM reads it: which operation on which resource, in whose name.
Paths are read in any case; the principal is who the token says that it is."""

from collections.abc import Mapping
from typing import Any, Final, Literal
from urllib.parse import unquote

import msgspec

from standins.azure.resources import KINDS, Kind, id_of

SETUP: Final = "x-knell-setup"
"""Who sends this header builds the world: it is not throttled, sees no fault and is not counted."""

TOKEN_FRONT: Final = "knell."  # noqa: S105 - what every token of the stand-in begins with, no secret
Sort = Literal["reads", "writes", "deletes"]
_VERBS: Final = {"GET": "get", "PUT": "put", "PATCH": "update", "DELETE": "delete"}
_SORTS: Final[dict[str, Sort]] = {"DELETE": "deletes", "PUT": "writes", "PATCH": "writes"}


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """`operation` is empty for what is not served. A poll has the operation's id as its name, and whether it asks as
    `Azure-AsyncOperation` has it (`operations`) or as `Location` has it (`operationResults`) in `poll`."""

    method: str
    path: str
    query: Mapping[str, str]
    body: bytes
    principal: str
    setup: bool
    operation: str = ""
    kind: Kind | None = None
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
        """As the caller spelt it."""
        return id_of(self.subscription, self.group, self.kind, self.name) if self.kind and self.name else ""

    @property
    def key(self) -> str:
        return self.id.lower()

    def says(self, text: str) -> bool:
        return text.lower() in self.path.lower() or text.lower().encode() in self.body.lower()


def read(method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes) -> Call:
    said = headers.get("Authorization", "")
    token = said.removeprefix("Bearer ").strip() if said.startswith("Bearer ") else ""
    call = Call(
        method=method,
        path=path,
        query=query,
        body=body,
        principal=token.removeprefix(TOKEN_FRONT),
        setup=SETUP in headers,
    )
    parts = [unquote(one) for one in path.strip("/").split("/")]
    return msgspec.structs.replace(call, **_meant(method, parts))


def _meant(method: str, parts: list[str]) -> dict[str, Any]:
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
