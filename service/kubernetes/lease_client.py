"""Client of one Lease of coordination.k8s.io: reads and creates it, and overwrites it only at the resource version that
was read. Its times are informational and are never compared."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from service.kubernetes.client import MERGE_PATCH, KubernetesClient
from service.kubernetes.decoding import decode_object
from service.kubernetes.errors import NotFound, Unreadable
from service.kubernetes.objects import LEASES, KubeObject

Annotations = Mapping[str, str]
"""Annotations to be written with a record; others stay as they are."""


class LeaseRecord(msgspec.Struct):
    """The spec of a Lease."""

    holder: str | None = msgspec.field(default=None, name="holderIdentity")
    duration: int | None = msgspec.field(default=None, name="leaseDurationSeconds")
    acquired: str | None = msgspec.field(default=None, name="acquireTime")
    transitions: int | None = msgspec.field(default=None, name="leaseTransitions")


class _LeaseWithSpec(msgspec.Struct):
    spec: LeaseRecord = msgspec.field(default_factory=LeaseRecord)


def read_lease(found: KubeObject) -> LeaseRecord:
    try:
        return msgspec.json.decode(found.raw, type=_LeaseWithSpec).spec
    except msgspec.DecodeError as error:
        raise Unreadable(f"Lease {found.namespace}/{found.name} can't be decoded: {error}") from None


class LeaseClient:
    """Its calls never queue behind others, so that a busy process does not lose its Lease."""

    def __init__(self, cluster: KubernetesClient, namespace: str, name: str, timeout: timedelta) -> None:
        self._cluster, self._namespace, self._name, self._timeout = cluster, namespace, name, timeout

    async def get(self) -> KubeObject | None:
        try:
            return await self._request("GET", LEASES.path(self._namespace, self._name))
        except NotFound as error:
            if error.name == self._name:
                return None
            raise

    async def create(self, holder: str, duration: int, annotations: Annotations) -> KubeObject:
        body = {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {"name": self._name, "namespace": self._namespace, "annotations": annotations},
            "spec": _spec(holder, duration, transitions=0),
        }
        return await self._request("POST", LEASES.path(self._namespace), body)

    async def take(self, before: KubeObject, holder: str, duration: int, annotations: Annotations) -> KubeObject:
        spec = _spec(holder, duration, transitions=(read_lease(before).transitions or 0) + 1)
        return await self._write(before, spec, annotations)

    async def renew(self, before: KubeObject, holder: str, duration: int, annotations: Annotations) -> KubeObject:
        record = read_lease(before)
        spec = _spec(holder, duration, transitions=record.transitions or 0, acquired=record.acquired)
        return await self._write(before, spec, annotations)

    async def hand_back(self, before: KubeObject, annotations: Annotations) -> KubeObject:
        return await self._write(before, _spec("", 1, transitions=read_lease(before).transitions or 0), annotations)

    async def _write(self, before: KubeObject, spec: dict[str, Any], annotations: Annotations) -> KubeObject:
        known = {"uid": before.uid, "resourceVersion": before.resource_version}
        body = {"metadata": {**known, "annotations": annotations}, "spec": spec}
        return await self._request("PATCH", LEASES.path(self._namespace, self._name), body)

    async def _request(self, method: str, path: str, body: dict[str, Any] | None = None) -> KubeObject:
        answer = await self._cluster.request(
            method,
            path,
            body=body,
            content_type=MERGE_PATCH if method == "PATCH" else "application/json",
            timeout=self._timeout,
            urgent=True,
        )
        return decode_object(answer, LEASES, self._namespace, self._name)


def _spec(holder: str, duration: int, *, transitions: int, acquired: str | None = None) -> dict[str, Any]:
    now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    return {
        "holderIdentity": holder,
        "leaseDurationSeconds": duration,
        "acquireTime": acquired or now,
        "renewTime": now,
        "leaseTransitions": transitions,
    }
