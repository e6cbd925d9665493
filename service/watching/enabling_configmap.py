"""ConfigMap with the time at which each source was first enabled; Redis has a copy. Objects older than
that do not get our finalizer. Losing the ConfigMap or the copy must not make an old object look new, or a new one old.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

import msgspec
import structlog

from service.engine.enabled_times import format_time
from service.kubernetes import Conflict, KubernetesClient, NotFound, Unreadable

log = structlog.get_logger(__name__)

CONFIGMAP: Final = "knell-sources"
_TRIES: Final = 20


class NotEnabled(Exception):
    """The time can't be read or stored; the message says what to do. Without it no finalizer is added."""


class _ConfigMapMetadata(msgspec.Struct, frozen=True):
    resource_version: str = msgspec.field(name="resourceVersion")


class _ConfigMap(msgspec.Struct, frozen=True):
    metadata: _ConfigMapMetadata
    data: dict[str, str] | None = None


def path_of(namespace: str, name: str = "") -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps" + (f"/{name}" if name else "")


async def first_enabled(
    cluster: KubernetesClient,
    namespace: str,
    source: str,
    now: Callable[[], datetime] | None = None,
    *,
    copy: str | None = None,
) -> datetime:
    """The earlier one of the ConfigMap and its `copy` in Redis. If the ConfigMap has none, the copy is written there
    again; without a copy it is the current time of the API server, because a local clock that is ahead would make new
    objects look old. If several replicas write at once, all use what the first one wrote. Raises NotEnabled or
    ClusterError."""
    where = f"ConfigMap {namespace}/{CONFIGMAP}"
    copied = None if copy is None else parse_time(copy, "the copy in Redis", source)
    about = log.bind(cluster=cluster.name, source=source, copy=copy)
    for _ in range(_TRIES):
        found = await _read_configmap(cluster, namespace)
        kept = (found.data or {}).get(source) if found is not None else None
        if kept is not None:
            at = parse_time(kept, where, source)
            if copied is not None and copied != at:
                about.warning("times of first enabling disagree, the earlier counts", kept=kept)
            return at if copied is None else min(at, copied)
        first = copied or (await cluster.server_time() if now is None else now())
        try:
            await _write_configmap(cluster, namespace, source, first, found)
        except (Conflict, NotFound) as error:
            # The ConfigMap was written or deleted meanwhile: read it again, unless the namespace is missing.
            if isinstance(error, NotFound) and found is None:
                raise NotEnabled(_missing_namespace(namespace, cluster.name)) from None
            continue
        if copied is not None:
            about.warning("time of first enabling was lost in the cluster, written again from its copy", where=where)
    raise NotEnabled(f"{where} changes each time it is to be written; who else writes it?")


async def stored_times(cluster: KubernetesClient, namespace: str) -> dict[str, str]:
    """By source, as written in the ConfigMap; empty if there is none."""
    found = await _read_configmap(cluster, namespace)
    return dict(found.data or {}) if found is not None else {}


async def _read_configmap(cluster: KubernetesClient, namespace: str) -> _ConfigMap | None:
    try:
        answer = await cluster.request("GET", path_of(namespace, CONFIGMAP))
        return msgspec.json.decode(answer, type=_ConfigMap)
    except NotFound:
        return None
    except msgspec.MsgspecError as error:
        raise Unreadable(
            f"cluster {cluster.name}: ConfigMap {namespace}/{CONFIGMAP} can't be decoded: {error}"
        ) from None


async def _write_configmap(
    cluster: KubernetesClient, namespace: str, source: str, at: datetime, found: _ConfigMap | None
) -> None:
    data = {source: format_time(at)}
    meta: dict[str, Any] = {"name": CONFIGMAP, "namespace": namespace, "labels": {"app.kubernetes.io/part-of": "knell"}}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}
    if found is None:
        await cluster.request("POST", path_of(namespace), body=body)
        return
    # With the resource version: a concurrent write of another replica is a conflict.
    patch = {"metadata": {"resourceVersion": found.metadata.resource_version}, "data": data}
    await cluster.request(
        "PATCH", path_of(namespace, CONFIGMAP), body=patch, content_type="application/merge-patch+json"
    )  # fmt: skip


def parse_time(kept: str, where: str, source: str) -> datetime:
    """Raises NotEnabled for a text that is no time with a time zone."""
    try:
        at = datetime.fromisoformat(kept)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise NotEnabled(
            f"{where} says {kept[:40]!r} for source {source}, which is no time; write one such as "
            f"2026-01-31T12:00:00Z, objects created before it are left alone"
        )
    return at


def _missing_namespace(namespace: str, cluster: str) -> str:
    return (
        f"there is no Namespace {namespace} in cluster {cluster}, where Leases and times of first enabling are kept; "
        f"create it (kubectl create namespace {namespace}) or set watch.namespace (KNELL_WATCH_NAMESPACE)"
    )


async def delete_configmap(cluster: KubernetesClient, namespace: str) -> bool:
    """False if there was none."""
    try:
        await cluster.request("DELETE", path_of(namespace, CONFIGMAP))
    except NotFound:
        return False
    return True
