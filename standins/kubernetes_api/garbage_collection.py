"""Garbage collector: an index of owner references, and the deletion of dependents whose owners are gone.
A dependent is deleted when none of its owners exists; an owner of an unknown kind counts as existing."""

from typing import Final

import msgspec

from standins.kubernetes_api.admission import Admission, Deletion
from standins.kubernetes_api.api_resources import ApiResource
from standins.kubernetes_api.authorization import controller
from standins.kubernetes_api.deletion import DeleteOptions, Preconditions, delete
from standins.kubernetes_api.documents import Document, decode
from standins.kubernetes_api.state import ClusterState
from standins.kubernetes_api.store import StoredChange


class _Uid(msgspec.Struct):
    uid: str


class _Identified(msgspec.Struct):
    metadata: _Uid


_COLLECTOR: Final = controller("generic-garbage-collector")

_identified = msgspec.json.Decoder(_Identified)


class OwnerIndex:
    def __init__(self, state: ClusterState, admission: Admission) -> None:
        self._state = state
        self._admission = admission
        self._dependents: dict[str, set[tuple[str, str]]] = {}

    def on_change(self, name: str, change: StoredChange) -> None:
        place = (name, change.key)
        for uid in _owners(change.previous):
            self._dependents.get(uid, set()).discard(place)
        if change.kind != "DELETED":
            for uid in _owners(change.raw):
                self._dependents.setdefault(uid, set()).add(place)

    def rebuild(self) -> None:
        """Rebuilds the index after the store was restored."""
        self._dependents = {}
        for name, table in self._state.store.tables.items():
            for key, raw in table.objects.items():
                for uid in _owners(raw):
                    self._dependents.setdefault(uid, set()).add((name, key))

    def dependents(self, uid: str) -> list[tuple[str, str]]:
        return sorted(self._dependents.get(uid, ()))

    def pop_dependents(self, change: StoredChange) -> list[tuple[str, str]]:
        """Dependents of the object that was just removed; they leave the index."""
        if not self._dependents:
            return []
        uid = _identified.decode(change.raw).metadata.uid
        return sorted(self._dependents.pop(uid, ()))

    async def reconcile(self, name: str, key: str) -> None:
        """Raises StatusError if a dependent may not be deleted."""
        raw = self._state.store.table(name).objects.get(key)
        resource = next((one for one in self._state.registry if one.stored_in == name), None)
        if raw is None or resource is None:
            return
        document = decode(raw)
        namespace = document["metadata"].get("namespace", "")
        references = document["metadata"].get("ownerReferences", [])
        absent = {one["uid"] for one in references if not self._exists(one, namespace)}
        if not absent:
            return
        if len(absent) < len(references):
            self.remove_owner_references(name, key, absent)
        elif "deletionTimestamp" not in document["metadata"]:
            await self._delete(resource, document["metadata"])

    async def _delete(self, resource: ApiResource, meta: Document) -> None:
        place = (meta.get("namespace", ""), meta["name"])
        wanted = DeleteOptions(preconditions=Preconditions(uid=meta["uid"]), propagation_policy="Background")
        await self._admission.admit(Deletion(resource, resource.preferred, *place, wanted, _COLLECTOR))
        delete(self._state, resource, *place, wanted)

    def remove_owner_references(self, name: str, key: str, uids: set[str]) -> None:
        raw = self._state.store.table(name).objects.get(key)
        if raw is None:
            return
        document = decode(raw)
        meta = document["metadata"]
        meta["ownerReferences"] = [one for one in meta.get("ownerReferences", ()) if one["uid"] not in uids]
        if not meta["ownerReferences"]:
            del meta["ownerReferences"]
        self._state.store.put(name, key, document)

    def _exists(self, reference: Document, namespace: str) -> bool:
        group = reference["apiVersion"].rpartition("/")[0]
        resource = self._state.registry.of_kind(group, reference["kind"])
        if resource is None:
            return True
        raw = self._state.find(resource, namespace, reference["name"])
        return raw is not None and _identified.decode(raw).metadata.uid == reference["uid"]


def _owners(raw: bytes | None) -> list[str]:
    if raw is None or b'"ownerReferences"' not in raw:
        return []
    return [one["uid"] for one in decode(raw)["metadata"].get("ownerReferences", ())]
