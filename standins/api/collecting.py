"""The garbage collector: who names which owner, and what becomes of dependents when an owner is gone.
A dependent goes when none of its owners exists; an owner of a kind nobody knows counts as existing."""

import msgspec

from standins.api.deleting import Options, delete
from standins.api.documents import Document, decode
from standins.api.store import Change
from standins.api.world import World


class _Uid(msgspec.Struct):
    uid: str


class _Identified(msgspec.Struct):
    metadata: _Uid


_identified = msgspec.json.Decoder(_Identified)


class Owners:
    def __init__(self, world: World) -> None:
        self._world = world
        self._dependents: dict[str, set[tuple[str, str]]] = {}

    def heard(self, name: str, change: Change) -> None:
        place = (name, change.key)
        for uid in _owners(change.previous):
            self._dependents.get(uid, set()).discard(place)
        if change.kind != "DELETED":
            for uid in _owners(change.raw):
                self._dependents.setdefault(uid, set()).add(place)

    def relearn(self) -> None:
        """Reads anew who names whom, after the store was exchanged as a whole."""
        self._dependents = {}
        for name, table in self._world.store.tables.items():
            for key, raw in table.objects.items():
                for uid in _owners(raw):
                    self._dependents.setdefault(uid, set()).add((name, key))

    def dependents(self, uid: str) -> list[tuple[str, str]]:
        return sorted(self._dependents.get(uid, ()))

    def bereaved(self, change: Change) -> list[tuple[str, str]]:
        """Who named the object that was just removed."""
        if not self._dependents:
            return []
        uid = _identified.decode(change.raw).metadata.uid
        return sorted(self._dependents.pop(uid, ()))

    def look(self, name: str, key: str) -> None:
        raw = self._world.store.table(name).objects.get(key)
        resource = next((one for one in self._world.registry if one.stored_in == name), None)
        if raw is None or resource is None:
            return
        document = decode(raw)
        namespace = document["metadata"].get("namespace", "")
        references = document["metadata"].get("ownerReferences", [])
        absent = {one["uid"] for one in references if not self._exists(one, namespace)}
        if not absent:
            return
        if len(absent) < len(references):
            self.disown(name, key, absent)
        elif "deletionTimestamp" not in document["metadata"]:
            delete(self._world, resource, namespace, document["metadata"]["name"], Options())

    def disown(self, name: str, key: str, uids: set[str]) -> None:
        raw = self._world.store.table(name).objects.get(key)
        if raw is None:
            return
        document = decode(raw)
        meta = document["metadata"]
        meta["ownerReferences"] = [one for one in meta.get("ownerReferences", ()) if one["uid"] not in uids]
        if not meta["ownerReferences"]:
            del meta["ownerReferences"]
        self._world.store.put(name, key, document)

    def _exists(self, reference: Document, namespace: str) -> bool:
        group = reference["apiVersion"].rpartition("/")[0]
        resource = self._world.registry.of_kind(group, reference["kind"])
        if resource is None:
            return True
        raw = self._world.find(resource, namespace, reference["name"])
        return raw is not None and _identified.decode(raw).metadata.uid == reference["uid"]


def _owners(raw: bytes | None) -> list[str]:
    if raw is None or b'"ownerReferences"' not in raw:
        return []
    return [one["uid"] for one in decode(raw)["metadata"].get("ownerReferences", ())]
