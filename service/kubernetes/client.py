"""The client of one cluster that everybody uses: identity, discovery, lists, watches and changes of objects.
It knows no models: answers stay text of which only metadata is read, and errors come typed."""

import time
from collections.abc import AsyncGenerator, Callable, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import Any, Final, Self

from service.kubernetes import discovery, listing, streaming
from service.kubernetes.access import access
from service.kubernetes.calls import CALL_TIMEOUT, Calls
from service.kubernetes.decoding import decode_answer
from service.kubernetes.discovery import CrdState
from service.kubernetes.errors import NotFound, Unreadable
from service.kubernetes.exchange import LARGEST_PAGE
from service.kubernetes.objects import NAMESPACES, Change, Live, Page, Served
from service.settings import ClusterSettings

MERGE_PATCH: Final = "application/merge-patch+json"
JSON: Final = "application/json"
METADATA: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
JSON_PATCH: Final = "application/json-patch+json"
_LIST_TIMEOUT: Final = timedelta(seconds=60)


def preload() -> None:
    """Imports the HTTP client, which the first `connect` would do. A process that is to run for long does it before it
    takes its modules out of garbage collection: these are 150,000 objects to look through."""
    import service.kubernetes.transport  # noqa: F401 - to have it loaded


async def connect(
    name: str,
    settings: ClusterSettings,
    *,
    via: "Cluster | None" = None,
    clock: Callable[[], float] = time.monotonic,
) -> "Cluster":
    """Reads the credentials, and asks nothing yet. `via` is the cluster that holds the Secret, where there is one."""
    way_in = access(name, settings, via, clock)
    await way_in.way()
    return Cluster(name, Calls(name, way_in))


class Cluster:
    """Built by `connect`; an async context manager. One pool of connections per cluster."""

    def __init__(self, name: str, calls: Calls) -> None:
        self.name = name
        self._calls = calls

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self._calls.aclose()

    async def identity(self) -> str:
        """The uid of the Namespace kube-system: two names for one cluster have one, a rebuilt cluster has another."""
        found = await self.get(NAMESPACES, "", "kube-system", metadata_only=True)
        if found is None:
            raise Unreadable(f"cluster {self.name} has no Namespace kube-system, so that it can't be told from others")
        return found.uid

    async def server_time(self) -> datetime:
        """By the clock of the server that answers; objects have their times from it."""
        path = NAMESPACES.path(name="kube-system")
        async with self._calls.stream(path, {}, METADATA, CALL_TIMEOUT) as stream:
            told = stream.headers.get("date", "")
        try:
            return parsedate_to_datetime(told).astimezone(UTC)
        except ValueError:
            raise Unreadable(f"cluster {self.name} does not say what time it is (header Date: {told!r})") from None

    async def confirm(self) -> None:
        """Raises where another cluster answers by now. Only a connection that is held to a uid can tell."""

    async def discover(self, resource: str) -> Served:
        return await discovery.discover(self._read, resource)

    async def crd_state(self, resource: str) -> CrdState:
        return await discovery.crd_state(self._read, resource)

    def pages(
        self,
        served: Served,
        namespace: str | None,
        selector: str = "",
        limit: int = 500,
        *,
        metadata_only: bool = False,
    ) -> AsyncGenerator[Page, None]:
        """Complete when it ends without an error and no page names something unreadable. Expired: start over."""
        return listing.pages(self._read_list, served, namespace, selector, limit, metadata_only=metadata_only)

    def watch(
        self,
        served: Served,
        namespace: str | None,
        selector: str,
        resource_version: str,
        *,
        silence: timedelta,
        metadata_only: bool = False,
    ) -> AsyncGenerator[Change, None]:
        """Ends when the server closes it. Use `contextlib.aclosing` where the loop may be left early."""
        scope = streaming.Scope(served, namespace, selector, metadata_only)
        return streaming.watch(self._calls, scope, resource_version, silence)

    async def get(
        self,
        served: Served,
        namespace: str,
        name: str,
        *,
        timeout: timedelta = CALL_TIMEOUT,
        metadata_only: bool = False,
    ) -> Live | None:
        """None only where the server says that this very object is not there. Before that counts as a deletion, the
        caller looks at `crd_state`: the objects of a CRD that is going vanish too."""
        try:
            path, accept = served.path(namespace, name), METADATA if metadata_only else JSON
            answer = await self._calls.call("GET", path, accept=accept, timeout=timeout)
            return decode_answer(answer, served, namespace, name)
        except NotFound as error:
            # A Namespace or anything else that is missing on the way says nothing about the object.
            if error.name == name and error.kind in (served.plural, served.kind, ""):
                return None
            raise

    async def patch(
        self,
        served: Served,
        namespace: str,
        name: str,
        patch: list[dict[str, Any]] | dict[str, Any],
        *,
        subresource: str = "",
        metadata_only: bool = False,
    ) -> Live:
        """A list is a JSON patch, a mapping is a merge patch. `metadata_only` is about the answer."""
        path, accept = served.path(namespace, name, subresource), METADATA if metadata_only else JSON
        kind = JSON_PATCH if isinstance(patch, list) else MERGE_PATCH
        answer = await self._calls.call("PATCH", path, body=patch, content_type=kind, accept=accept)
        return decode_answer(answer, served, namespace, name)

    async def create(self, served: Served, namespace: str, body: Mapping[str, Any]) -> Live:
        whole = {"apiVersion": served.api_version, "kind": served.kind, **body}
        answer = await self.request("POST", served.path(namespace), body=whole)
        return decode_answer(answer, served, namespace, body.get("metadata", {}).get("name", ""))

    async def update(
        self, served: Served, namespace: str, name: str, body: Mapping[str, Any], *, subresource: str = ""
    ) -> Live:
        whole = {"apiVersion": served.api_version, "kind": served.kind, **body}
        answer = await self.request("PUT", served.path(namespace, name, subresource), body=whole)
        return decode_answer(answer, served, namespace, name)

    async def delete(self, served: Served, namespace: str, name: str, *, uid: str = "", propagation: str = "") -> None:
        """With a uid, only that very object: another of the same name is a Conflict."""
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if uid:
            options["preconditions"] = {"uid": uid}
        if propagation:
            options["propagationPolicy"] = propagation
        await self.request("DELETE", served.path(namespace, name), body=options)

    async def namespace_marks(self, namespace: str) -> dict[str, str]:
        """The marks on the live Namespace; raises where it can't be read, and has none for cluster-scoped objects."""
        if not namespace:
            return {}
        found = await self.get(NAMESPACES, "", namespace, metadata_only=True)
        if found is None:
            raise NotFound(f"cluster {self.name}: there is no Namespace {namespace}", name=namespace, kind="namespaces")
        return found.annotations

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: object | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
        timeout: timedelta = CALL_TIMEOUT,
        urgent: bool = False,
    ) -> bytes:
        """The raw way in: the text of a successful answer, or a typed error. An urgent one does not queue."""
        return await self._calls.call(
            method,
            path,
            query=query,
            body=body,
            content_type=content_type,
            accept=accept,
            timeout=timeout,
            urgent=urgent,
        )

    async def _read(self, path: str) -> bytes:
        return await self._calls.call("GET", path)

    async def _read_list(self, path: str, query: Mapping[str, str], accept: str) -> bytes:
        return await self._calls.call(
            "GET", path, query=query, accept=accept, timeout=_LIST_TIMEOUT, largest=LARGEST_PAGE
        )
