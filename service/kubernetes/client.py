"""Client of one cluster: identity, discovery, lists, watches and changes of objects. It has no models of the kinds: of
a response only the metadata is decoded, and errors are typed."""

import time
from collections.abc import AsyncGenerator, Callable, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import Any, Final, Self

from service.kubernetes import discovery, listing, watch_stream
from service.kubernetes.api_calls import CALL_TIMEOUT, ApiCalls
from service.kubernetes.decoding import decode_object
from service.kubernetes.discovery import CrdState
from service.kubernetes.endpoint import endpoint_cache
from service.kubernetes.errors import NotFound, NotServed, Unreadable
from service.kubernetes.http_messages import LARGEST_PAGE
from service.kubernetes.objects import CRDS, NAMESPACES, KubeObject, ListPage, ServedResource, WatchEvent
from service.settings import ClusterSettings

MERGE_PATCH: Final = "application/merge-patch+json"
JSON: Final = "application/json"
METADATA: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
JSON_PATCH: Final = "application/json-patch+json"
_LIST_TIMEOUT: Final = timedelta(seconds=60)


def preload() -> None:
    """Imports the HTTP client, as the first `connect` would do. A long-running process does it before it freezes its
    modules out of garbage collection: they are 150,000 objects."""
    import service.kubernetes.transport  # noqa: F401 - to load it


async def connect(
    name: str,
    settings: ClusterSettings,
    *,
    via: "KubernetesClient | None" = None,
    clock: Callable[[], float] = time.monotonic,
) -> "KubernetesClient":
    """Reads the credentials; sends no request yet. `via` is the cluster with the Secret of the kubeconfig, if there is
    one."""
    endpoints = endpoint_cache(name, settings, via, clock)
    await endpoints.current()
    return KubernetesClient(name, ApiCalls(name, endpoints))


class KubernetesClient:
    """Made by `connect`; an async context manager with one pool of connections."""

    def __init__(self, name: str, calls: ApiCalls) -> None:
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
        """The uid of the Namespace kube-system: the same for two names of one cluster, another one for a rebuilt
        cluster."""
        found = await self.get(NAMESPACES, "", "kube-system", metadata_only=True)
        if found is None:
            raise Unreadable(f"cluster {self.name} has no Namespace kube-system, so that it can't be told from others")
        return found.uid

    async def server_time(self) -> datetime:
        """By the clock of the server, from which objects have their times."""
        path = NAMESPACES.path(name="kube-system")
        async with self._calls.stream(path, {}, METADATA, CALL_TIMEOUT) as stream:
            told = stream.headers.get("date", "")
        try:
            return parsedate_to_datetime(told).astimezone(UTC)
        except ValueError:
            raise Unreadable(f"cluster {self.name} does not say what time it is (header Date: {told!r})") from None

    async def confirm(self) -> None:
        """Raises if another cluster answers by now. Only a client that knows the expected uid can tell: see
        ConfirmedClient."""

    async def discover(self, resource: str) -> ServedResource:
        return await discovery.discover(self._read, resource)

    async def crd_state(self, resource: str) -> CrdState:
        return await discovery.crd_state(self._read, resource)

    async def crd_uid(self, resource: str) -> str:
        """Empty for a resource without a CRD. A CRD that was deleted and installed again has another uid: the objects
        of the first one were deleted with it."""
        if "." not in resource or await self.crd_state(resource) == "built-in":
            return ""
        try:
            found = await self.get(CRDS, "", resource, metadata_only=True)
        except (NotFound, NotServed):
            return ""
        return found.uid if found is not None else ""

    def pages(
        self,
        served: ServedResource,
        namespace: str | None,
        selector: str = "",
        limit: int = 500,
        *,
        metadata_only: bool = False,
    ) -> AsyncGenerator[ListPage, None]:
        """The list is complete if it ends without an error and no page has unreadable items. After Expired start
        over."""
        return listing.pages(self._read_list, served, namespace, selector, limit, metadata_only=metadata_only)

    def watch(
        self,
        served: ServedResource,
        namespace: str | None,
        selector: str,
        resource_version: str,
        *,
        silence: timedelta,
        metadata_only: bool = False,
        opened: Callable[[], None] = lambda: None,
    ) -> AsyncGenerator[WatchEvent, None]:
        """Ends when the server closes it. Use `contextlib.aclosing` if the loop may be left early. `opened` is called
        when the server has accepted the watch."""
        scope = watch_stream.WatchRequest(served, namespace, selector, metadata_only)
        return watch_stream.watch(self._calls, scope, resource_version, silence, opened)

    async def get(
        self,
        served: ServedResource,
        namespace: str,
        name: str,
        *,
        timeout: timedelta = CALL_TIMEOUT,
        metadata_only: bool = False,
    ) -> KubeObject | None:
        """None only if the server says that this very object does not exist. Before that counts as a deletion the
        caller checks `crd_state`: the objects of a CRD that is deleted disappear, too."""
        try:
            path, accept = served.path(namespace, name), METADATA if metadata_only else JSON
            answer = await self._calls.call("GET", path, accept=accept, timeout=timeout)
            return decode_object(answer, served, namespace, name)
        except NotFound as error:
            # A missing Namespace, or anything else, says nothing about the object.
            if error.name == name and error.kind in (served.plural, served.kind, ""):
                return None
            raise

    async def patch(
        self,
        served: ServedResource,
        namespace: str,
        name: str,
        patch: list[dict[str, Any]] | dict[str, Any],
        *,
        subresource: str = "",
        metadata_only: bool = False,
    ) -> KubeObject:
        """A list is a JSON patch, a mapping is a merge patch. `metadata_only` is about the response."""
        path, accept = served.path(namespace, name, subresource), METADATA if metadata_only else JSON
        kind = JSON_PATCH if isinstance(patch, list) else MERGE_PATCH
        answer = await self._calls.call("PATCH", path, body=patch, content_type=kind, accept=accept)
        return decode_object(answer, served, namespace, name)

    async def create(self, served: ServedResource, namespace: str, body: Mapping[str, Any]) -> KubeObject:
        whole = {"apiVersion": served.api_version, "kind": served.kind, **body}
        answer = await self.request("POST", served.path(namespace), body=whole)
        return decode_object(answer, served, namespace, body.get("metadata", {}).get("name", ""))

    async def update(
        self, served: ServedResource, namespace: str, name: str, body: Mapping[str, Any], *, subresource: str = ""
    ) -> KubeObject:
        whole = {"apiVersion": served.api_version, "kind": served.kind, **body}
        answer = await self.request("PUT", served.path(namespace, name, subresource), body=whole)
        return decode_object(answer, served, namespace, name)

    async def delete(
        self, served: ServedResource, namespace: str, name: str, *, uid: str = "", propagation: str = ""
    ) -> None:
        """With a uid, another object of the same name is a Conflict."""
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if uid:
            options["preconditions"] = {"uid": uid}
        if propagation:
            options["propagationPolicy"] = propagation
        await self.request("DELETE", served.path(namespace, name), body=options)

    async def namespace_annotations(self, namespace: str) -> dict[str, str]:
        """Policy annotations of the live Namespace, empty for cluster-scoped objects. Raises if it can't be read."""
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
        """A raw request: the body of a successful response, or a typed error. An urgent one waits for no slot."""
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
