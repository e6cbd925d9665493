"""The moment at which each source was first enabled, kept in the cluster itself.
Objects older than that are not marked, and a lost Redis must not make an old object look new, or a new one old."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from service.cluster import Cluster, Conflict, NotFound

NAME: Final = "knell-sources"
_TRIES: Final = 20


class NotEnabled(Exception):
    """The moment can't be read or kept; the message says what a person has to do. Nothing is marked without it."""


class _Meta(msgspec.Struct, frozen=True):
    resource_version: str = msgspec.field(name="resourceVersion")


class _ConfigMap(msgspec.Struct, frozen=True):
    metadata: _Meta
    data: dict[str, str] | None = None


def path_of(namespace: str, name: str = "") -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps" + (f"/{name}" if name else "")


async def first_enabled(
    cluster: Cluster, namespace: str, source: str, now: Callable[[], datetime] | None = None
) -> datetime:
    """What is kept, or else this moment by the API server's clock, which is then kept: a clock of ours that is ahead
    would make new objects look older. Of several replicas that come at once one writes, and all go by what it wrote.
    Raises NotEnabled, or ClusterError where the API server does not answer."""
    for _ in range(_TRIES):
        try:
            found = msgspec.json.decode(await cluster.request("GET", path_of(namespace, NAME)), type=_ConfigMap)
        except NotFound:
            found = None
        kept = (found.data or {}).get(source) if found is not None else None
        if kept is not None:
            return _read(kept, namespace, source)
        at = await cluster.server_time() if now is None else now()
        try:
            await _write(cluster, namespace, source, at, found)
        except (Conflict, NotFound) as error:
            # Somebody wrote, or removed, the ConfigMap meanwhile: look again, unless the namespace is missing.
            if isinstance(error, NotFound) and found is None:
                raise NotEnabled(_missing(namespace, cluster.name)) from None
    raise NotEnabled(f"ConfigMap {namespace}/{NAME} changes each time it is to be written; who else writes it?")


async def _write(cluster: Cluster, namespace: str, source: str, at: datetime, found: _ConfigMap | None) -> None:
    # Objects carry their time of creation in whole seconds, so a finer one would make those of this second look older.
    data = {source: at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}
    meta: dict[str, Any] = {"name": NAME, "namespace": namespace, "labels": {"app.kubernetes.io/part-of": "knell"}}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}
    if found is None:
        await cluster.request("POST", path_of(namespace), body=body)
        return
    # With the version that was read: a patch that another replica overtook is refused as a conflict.
    patch = {"metadata": {"resourceVersion": found.metadata.resource_version}, "data": data}
    await cluster.request(
        "PATCH", path_of(namespace, NAME), body=patch, content_type="application/merge-patch+json"
    )  # fmt: skip


def _read(kept: str, namespace: str, source: str) -> datetime:
    try:
        at = datetime.fromisoformat(kept)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise NotEnabled(
            f"ConfigMap {namespace}/{NAME} says {kept[:40]!r} for source {source}, which is no time; write one such as "
            f"2026-01-31T12:00:00Z, objects created before it are left alone"
        )
    return at


def _missing(namespace: str, cluster: str) -> str:
    return (
        f"there is no Namespace {namespace} in cluster {cluster}, where Leases and times of first enabling are kept; "
        f"create it (kubectl create namespace {namespace}) or set watch.namespace (KNELL_WATCH_NAMESPACE)"
    )


async def forget_all(cluster: Cluster, namespace: str) -> bool:
    """Remove the ConfigMap; False where there was none."""
    try:
        await cluster.request("DELETE", path_of(namespace, NAME))
    except NotFound:
        return False
    return True
