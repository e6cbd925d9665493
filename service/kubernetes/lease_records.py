"""The record of a Lease in coordination.k8s.io: read, made, and overwritten only where it is still the one we saw.
Times in it are for people; nobody here compares them."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from service.kubernetes.client import MERGE_PATCH, Cluster
from service.kubernetes.decoding import decode_answer
from service.kubernetes.errors import NotFound, Unreadable
from service.kubernetes.objects import LEASES, Live

Annotations = Mapping[str, str]
"""Those that are written along; the others stay as they are."""


class LeaseRecord(msgspec.Struct):
    """What a Lease says; the server leaves out what is empty."""

    holder: str | None = msgspec.field(default=None, name="holderIdentity")
    duration: int | None = msgspec.field(default=None, name="leaseDurationSeconds")
    acquired: str | None = msgspec.field(default=None, name="acquireTime")
    transitions: int | None = msgspec.field(default=None, name="leaseTransitions")


class _Lease(msgspec.Struct):
    spec: LeaseRecord = msgspec.field(default_factory=LeaseRecord)


def read(found: Live) -> LeaseRecord:
    try:
        return msgspec.json.decode(found.raw, type=_Lease).spec
    except msgspec.DecodeError as error:
        raise Unreadable(f"Lease {found.namespace}/{found.name} can't be decoded: {error}") from None


class LeaseRecords:
    """One Lease by its name. Its calls never queue behind others: a busy process must not lose its Lease for that."""

    def __init__(self, cluster: Cluster, namespace: str, name: str, patience: timedelta) -> None:
        self._cluster, self._namespace, self._name, self._patience = cluster, namespace, name, patience

    async def look(self) -> Live | None:
        try:
            return await self._ask("GET", LEASES.path(self._namespace, self._name))
        except NotFound as error:
            if error.name == self._name:
                return None
            raise

    async def create(self, holder: str, lasts: int, annotations: Annotations) -> Live:
        body = {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {"name": self._name, "namespace": self._namespace, "annotations": annotations},
            "spec": _spec(holder, lasts, transitions=0),
        }
        return await self._ask("POST", LEASES.path(self._namespace), body)

    async def take(self, before: Live, holder: str, lasts: int, annotations: Annotations) -> Live:
        spec = _spec(holder, lasts, transitions=(read(before).transitions or 0) + 1)
        return await self._write(before, spec, annotations)

    async def renew(self, before: Live, holder: str, lasts: int, annotations: Annotations) -> Live:
        record = read(before)
        spec = _spec(holder, lasts, transitions=record.transitions or 0, acquired=record.acquired)
        return await self._write(before, spec, annotations)

    async def hand_back(self, before: Live, annotations: Annotations) -> Live:
        return await self._write(before, _spec("", 1, transitions=read(before).transitions or 0), annotations)

    async def _write(self, before: Live, spec: dict[str, Any], annotations: Annotations) -> Live:
        known = {"uid": before.uid, "resourceVersion": before.resource_version}
        body = {"metadata": {**known, "annotations": annotations}, "spec": spec}
        return await self._ask("PATCH", LEASES.path(self._namespace, self._name), body)

    async def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Live:
        answer = await self._cluster.request(
            method,
            path,
            body=body,
            content_type=MERGE_PATCH if method == "PATCH" else "application/json",
            timeout=self._patience,
            urgent=True,
        )
        return decode_answer(answer, LEASES, self._namespace, self._name)


def _spec(holder: str, lasts: int, *, transitions: int, acquired: str | None = None) -> dict[str, Any]:
    now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    return {
        "holderIdentity": holder,
        "leaseDurationSeconds": lasts,
        "acquireTime": acquired or now,
        "renewTime": now,
        "leaseTransitions": transitions,
    }
