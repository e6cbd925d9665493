"""List, in pages of one consistent snapshot. The first page keeps the snapshot, and the continue token refers to it.
A token whose snapshot was dropped gets 410, with another token that continues at the present state."""

import base64
import binascii
import bisect
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from standins.kubernetes_api import statuses
from standins.kubernetes_api.api_resources import ApiResource
from standins.kubernetes_api.selectors import ListSelector
from standins.kubernetes_api.state import ClusterState
from standins.kubernetes_api.store import Table, TableSnapshot

_AT_PRESENT: Final = -1


class _Token(msgspec.Struct):
    v: str
    rv: int
    start: str


@dataclass(frozen=True, slots=True)
class ListRequest:
    namespace: str
    selector: ListSelector
    limit: int = 0
    token: str = ""
    version: str = ""
    match: str = ""


@dataclass(frozen=True, slots=True)
class ObjectPage:
    raws: list[bytes]
    meta: dict[str, Any]


def listed(state: ClusterState, resource: ApiResource, asked: ListRequest) -> ObjectPage:
    """Raises StatusError."""
    table = state.store.table(resource.stored_in)
    version, snapshot, start = _moment(state, table, asked)
    prefix = f"{asked.namespace}/" if asked.namespace and resource.namespaced else ""
    low, high = snapshot.span(prefix)
    if start:
        low = max(low, bisect.bisect_right(snapshot.keys, start))
    raws: list[bytes] = []
    last = start
    meta: dict[str, Any] = {"resourceVersion": str(version)}
    for index in range(low, high):
        raw = snapshot.objects[snapshot.keys[index]]
        if not asked.selector.everything and not asked.selector.matches(raw):
            continue
        if asked.limit and len(raws) == asked.limit:
            if version == state.store.version:
                table.keep_snapshot(version)
            meta["continue"] = _token(version, last)
            if asked.selector.everything:
                meta["remainingItemCount"] = high - index
            break
        raws.append(raw)
        last = snapshot.keys[index]
    return ObjectPage(raws, meta)


def _moment(state: ClusterState, table: Table, asked: ListRequest) -> tuple[int, TableSnapshot, str]:
    """The version listed at, everything there was, and the key to go on after."""
    current = state.store.version
    if not asked.token:
        version = _exact(asked, current)
        if version == current:
            return current, TableSnapshot(table.keys, table.objects), ""
        found = table.snapshots.get(version)
        if found is None:
            raise statuses.expired(f"The provided resource version is too old: {version} ({current})")
        return version, found, ""
    if asked.version not in ("", "0"):
        raise statuses.bad_request("specifying resource version is not allowed when using continue")
    token = _parsed(asked.token)
    if token.rv == _AT_PRESENT:
        return current, TableSnapshot(table.keys, table.objects), token.start
    found = table.snapshots.get(token.rv)
    if found is None:
        raise statuses.expired_list(_token(_AT_PRESENT, token.start))
    table.snapshots.move_to_end(token.rv)
    return token.rv, found, token.start


def _exact(asked: ListRequest, current: int) -> int:
    if asked.version in ("", "0"):
        return current
    try:
        version = int(asked.version)
    except ValueError:
        raise statuses.bad_request(f"invalid resource version: {asked.version!r}") from None
    if version > current:
        raise statuses.too_large_version(version, current)
    return version if asked.match == "Exact" else current


def _token(version: int, last: str) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(_Token("meta.k8s.io/v1", version, last))).rstrip(b"=").decode()


def _parsed(token: str) -> _Token:
    try:
        padded = token + "=" * (-len(token) % 4)
        return msgspec.json.decode(base64.urlsafe_b64decode(padded), type=_Token)
    except (binascii.Error, msgspec.DecodeError, ValueError):
        raise statuses.bad_request("continue key is not valid: the token cannot be read") from None
