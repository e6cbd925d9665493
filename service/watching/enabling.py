"""The moment at which each source was first enabled, kept in the cluster itself and, as a copy, in Redis.
Objects older than that are not marked, and neither loss must make an old object look new, or a new one old."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

import msgspec
import structlog

from service.engine.moments import written
from service.kubernetes import Cluster, Conflict, NotFound, Unreadable

log = structlog.get_logger(__name__)

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
    cluster: Cluster,
    namespace: str,
    source: str,
    now: Callable[[], datetime] | None = None,
    *,
    copy: str | None = None,
) -> datetime:
    """The earlier of what is kept and its `copy` in Redis. Where nothing is kept, the copy is kept again; without one
    it is this moment by the API server's clock: a clock of ours that is ahead would make new objects look older. Of
    several replicas that come at once one writes, and all go by what it wrote. Raises NotEnabled, or ClusterError where
    the API server does not answer."""
    where = f"ConfigMap {namespace}/{NAME}"
    copied = None if copy is None else read_moment(copy, "the copy in Redis", source)
    about = log.bind(cluster=cluster.name, source=source, copy=copy)
    for _ in range(_TRIES):
        found = await _look(cluster, namespace)
        kept = (found.data or {}).get(source) if found is not None else None
        if kept is not None:
            at = read_moment(kept, where, source)
            if copied is not None and copied != at:
                about.warning("moments of first enabling disagree, the earlier counts", kept=kept)
            return at if copied is None else min(at, copied)
        first = copied or (await cluster.server_time() if now is None else now())
        try:
            await _write(cluster, namespace, source, first, found)
        except (Conflict, NotFound) as error:
            # Somebody wrote, or removed, the ConfigMap meanwhile: look again, unless the namespace is missing.
            if isinstance(error, NotFound) and found is None:
                raise NotEnabled(_missing(namespace, cluster.name)) from None
            continue
        if copied is not None:
            about.warning("moment of first enabling was lost in the cluster, written again from its copy", where=where)
    raise NotEnabled(f"{where} changes each time it is to be written; who else writes it?")


async def kept_moments(cluster: Cluster, namespace: str) -> dict[str, str]:
    """What the ConfigMap says, by source; empty where there is none."""
    found = await _look(cluster, namespace)
    return dict(found.data or {}) if found is not None else {}


async def _look(cluster: Cluster, namespace: str) -> _ConfigMap | None:
    try:
        answer = await cluster.request("GET", path_of(namespace, NAME))
        return msgspec.json.decode(answer, type=_ConfigMap)
    except NotFound:
        return None
    except msgspec.MsgspecError as error:
        raise Unreadable(f"cluster {cluster.name}: ConfigMap {namespace}/{NAME} can't be decoded: {error}") from None


async def _write(cluster: Cluster, namespace: str, source: str, at: datetime, found: _ConfigMap | None) -> None:
    data = {source: written(at)}
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


def read_moment(kept: str, where: str, source: str) -> datetime:
    """Raises NotEnabled where it is no time: nobody can tell what is older then."""
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
