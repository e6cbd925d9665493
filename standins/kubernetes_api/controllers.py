"""Controllers of the embedded cluster: CustomResourceDefinitions, Namespaces and garbage collection, on one work queue.
Each reconciliation is level-based: it reads the present state, so a repetition is harmless."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from standins.kubernetes_api import custom_resources
from standins.kubernetes_api.admission import Admission, Deletion
from standins.kubernetes_api.api_resources import DEFINITIONS, NAMESPACES, ApiResource
from standins.kubernetes_api.authorization import controller
from standins.kubernetes_api.deletion import CLEANUP, DeleteOptions, delete
from standins.kubernetes_api.documents import Document, decode
from standins.kubernetes_api.garbage_collection import OwnerIndex
from standins.kubernetes_api.state import ClusterState, condition
from standins.kubernetes_api.statuses import StatusError
from standins.kubernetes_api.store import StoredChange

_STEP = 200
_FIRST_RETRY = 0.05
_LONGEST_RETRY = 4.0
_NAMESPACE_CONTROLLER = controller("namespace-controller")


@dataclass(frozen=True, slots=True)
class _QueueItem:
    what: Literal["definition", "namespace", "dependent"]
    name: str
    key: str = ""


class Controllers:
    def __init__(self, state: ClusterState, admission: Admission) -> None:
        self._state = state
        self._admission = admission
        self._owners = OwnerIndex(state, admission)
        # Items are processed in insertion order; an item that is queued already is not queued again.
        self._queue: dict[_QueueItem, None] = {}
        self._wakeup = asyncio.Event()
        # Items that failed, with the wait before their next retry.
        self._waits: dict[_QueueItem, float] = {}
        self._retries: dict[_QueueItem, asyncio.TimerHandle] = {}
        state.store.listeners.append(self._on_change)

    async def run(self) -> None:
        """Runs until cancelled. Items that are queued then are processed by the next run."""
        self._wakeup = asyncio.Event()
        try:
            while True:
                while self._queue:
                    item = next(iter(self._queue))
                    del self._queue[item]
                    await self._try(item)
                    await asyncio.sleep(0)
                self._wakeup.clear()
                await self._wakeup.wait()
        finally:
            for item, retry in self._retries.items():
                retry.cancel()
                self._queue[item] = None
            self._retries.clear()

    def orphan(self, uid: str) -> None:
        """Removes the owner references of its dependents, so that they outlive it."""
        for name, key in self._owners.dependents(uid):
            self._owners.remove_owner_references(name, key, {uid})

    def rebuild(self) -> None:
        """After the store was restored: rebuilds the registry, the owner index and the queue."""
        self._state.registry.reset()
        self._owners.rebuild()
        for name, raw in self._state.store.table(DEFINITIONS.stored_in).objects.items():
            document = decode(raw)
            if custom_resources.is_established(document):
                self._state.registry.add(custom_resources.resource_of(document))
            self._enqueue("definition", name)
        for name, raw in self._state.store.table(NAMESPACES.stored_in).objects.items():
            if b'"deletionTimestamp"' in raw:
                self._enqueue("namespace", name)

    def _on_change(self, name: str, change: StoredChange) -> None:
        self._owners.on_change(name, change)
        if change.kind == "DELETED":
            self._on_removal(name, change)
        elif name == DEFINITIONS.stored_in:
            self._enqueue("definition", change.key)
        elif name == NAMESPACES.stored_in and b'"deletionTimestamp"' in change.raw:
            self._enqueue("namespace", change.key)
        elif b'"ownerReferences"' in change.raw and change.kind == "ADDED":
            self._enqueue("dependent", name, change.key)

    def _on_removal(self, name: str, change: StoredChange) -> None:
        if name == DEFINITIONS.stored_in:
            spec = decode(change.raw)["spec"]
            self._state.registry.drop(spec["group"], spec["names"]["plural"])
            self._state.store.drop(change.key)
        elif name in self._state.registry.terminating and not self._state.store.table(name).keys:
            self._enqueue("definition", name)
        for dependent in self._owners.pop_dependents(change):
            self._enqueue("dependent", *dependent)
        where, slash, _ = change.key.partition("/")
        if slash and not self._content(where):
            found = self._state.namespace(where)
            if found is not None and "deletionTimestamp" in found["metadata"]:
                self._enqueue("namespace", where)

    def _enqueue(self, what: Literal["definition", "namespace", "dependent"], name: str, key: str = "") -> None:
        self._put(_QueueItem(what, name, key))

    def _put(self, item: _QueueItem) -> None:
        self._queue[item] = None
        self._wakeup.set()

    async def _try(self, item: _QueueItem) -> None:
        """Reconciles it; what a webhook denied is tried again after doubling waits."""
        if (retry := self._retries.pop(item, None)) is not None:
            retry.cancel()
        try:
            await self._reconcile(item)
        except asyncio.CancelledError:
            self._queue[item] = None
            raise
        except StatusError:
            wait = self._waits.get(item, _FIRST_RETRY)
            self._waits[item] = min(2 * wait, _LONGEST_RETRY)
            self._retries[item] = asyncio.get_running_loop().call_later(wait, self._retry, item)
        else:
            self._waits.pop(item, None)

    def _retry(self, item: _QueueItem) -> None:
        del self._retries[item]
        self._put(item)

    async def _reconcile(self, item: _QueueItem) -> None:
        match item.what:
            case "definition":
                await self._definition(item.name)
            case "namespace":
                await self._namespace(item.name)
            case "dependent":
                await self._owners.reconcile(item.name, item.key)

    async def _definition(self, name: str) -> None:
        raw = self._state.find(DEFINITIONS, "", name)
        if raw is None:
            return
        document = decode(raw)
        resource = custom_resources.resource_of(document)
        self._state.registry.add(resource)
        if "deletionTimestamp" in document["metadata"]:
            await self._end_definition(resource)
        elif not custom_resources.is_established(document):
            names = document["spec"]["names"]
            document["status"]["acceptedNames"] = names
            document["status"]["conditions"] = [
                condition("NamesAccepted", "True", "NoConflicts", "no conflicts found"),
                condition("Established", "True", "InitialNamesAccepted", "the initial names have been accepted"),
            ]
            self._state.put(DEFINITIONS, document)

    async def _end_definition(self, resource: ApiResource) -> None:
        self._state.registry.terminating.add(resource.name)
        await self._delete_definitions_objects(resource)
        raw = self._state.find(DEFINITIONS, "", resource.name)
        if raw is None or self._state.store.table(resource.stored_in).keys:
            return
        document = decode(raw)
        meta = document["metadata"]
        kept = [each for each in meta.get("finalizers", ()) if each != CLEANUP]
        if kept == meta.get("finalizers"):
            return
        if kept:
            meta["finalizers"] = kept
            self._state.put(DEFINITIONS, document)
        else:
            self._state.remove(DEFINITIONS, document)

    async def _namespace(self, name: str) -> None:
        found = self._state.namespace(name)
        if found is None or "deletionTimestamp" not in found["metadata"]:
            return
        denials = []
        for resource in list(self._state.registry):
            if resource.namespaced and not resource.table:
                try:
                    await self._delete_content(resource, name)
                except StatusError as denial:
                    denials.append(denial)
        found = self._state.namespace(name)
        if found is None:
            return
        if self._content(name):
            self._report_remaining(found, denials)
            if denials:
                raise denials[0]
        elif found["spec"].get("finalizers"):
            found["spec"]["finalizers"] = [each for each in found["spec"]["finalizers"] if each != "kubernetes"]
            if found["spec"]["finalizers"] or found["metadata"].get("finalizers"):
                self._state.put(NAMESPACES, found)
            else:
                self._state.remove(NAMESPACES, found)

    def _report_remaining(self, found: Document, denials: list[StatusError]) -> None:
        conditions = remaining_conditions(self._state, found["metadata"]["name"], denials)
        before = [(one["type"], one["status"], one["message"]) for one in found["status"].get("conditions", ())]
        if before != [(one["type"], one["status"], one["message"]) for one in conditions]:
            found["status"]["conditions"] = conditions
            self._state.put(NAMESPACES, found)

    async def _delete_definitions_objects(self, resource: ApiResource) -> None:
        """No webhook is asked about the objects of a definition that is deleted, as on the real server."""
        for count, (key, raw) in enumerate(list(self._state.store.table(resource.stored_in).within("")), 1):
            if b'"deletionTimestamp"' not in raw:
                where, _, name = key.rpartition("/")
                try:
                    delete(self._state, resource, where, name, DeleteOptions())
                except StatusError:
                    # It was removed concurrently.
                    continue
            if count % _STEP == 0:
                await asyncio.sleep(0)

    async def _delete_content(self, resource: ApiResource, namespace: str) -> None:
        """As a collection: the first object that a webhook denies ends it. Raises StatusError."""
        for count, (key, raw) in enumerate(list(self._state.store.table(resource.stored_in).within(namespace)), 1):
            if b'"deletionTimestamp"' not in raw:
                where, _, name = key.rpartition("/")
                wanted = DeleteOptions(propagation_policy="Background")
                asked = Deletion(
                    resource, resource.preferred, where, name, wanted, _NAMESPACE_CONTROLLER, collection=True
                )
                try:
                    await self._admission.admit(asked)
                    delete(self._state, resource, where, name, wanted)
                except StatusError as error:
                    # It was removed concurrently.
                    if error.code != 404:
                        raise
            if count % _STEP == 0:
                await asyncio.sleep(0)

    def _content(self, namespace: str) -> int:
        return sum(table.count(namespace) for table in self._state.store.tables.values())


def remaining_conditions(state: ClusterState, namespace: str, denials: Sequence[StatusError] = ()) -> list[Document]:
    """Conditions of a terminating Namespace, which say what keeps it."""
    kinds: Counter[str] = Counter()
    finalizers: Counter[str] = Counter()
    for resource in state.registry:
        if not resource.namespaced or resource.table:
            continue
        for _, raw in state.store.table(resource.stored_in).within(namespace):
            kinds[resource.name] += 1
            finalizers.update(decode(raw)["metadata"].get("finalizers", ()))
    content = ", ".join(f"{name} has {count} resource instances" for name, count in sorted(kinds.items()))
    keeping = ", ".join(f"{name} in {count} resource instances" for name, count in sorted(finalizers.items()))
    return [
        condition(
            "NamespaceDeletionDiscoveryFailure",
            "False",
            "ResourcesDiscovered",
            "All resources successfully discovered",
        ),
        condition(
            "NamespaceDeletionGroupVersionParsingFailure",
            "False",
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed",
        ),
        _content_failure(denials),
        condition(
            "NamespaceContentRemaining", "True", "SomeResourcesRemain", f"Some resources are remaining: {content}"
        ),
        condition(
            "NamespaceFinalizersRemaining",
            "True",
            "SomeFinalizersRemain",
            f"Some content in the namespace has finalizers remaining: {keeping}",
        ),
    ]


def _content_failure(denials: Sequence[StatusError]) -> Document:
    kind = "NamespaceDeletionContentFailure"
    if not denials:
        return condition(
            kind, "False", "ContentDeleted", "All content successfully deleted, may be waiting on finalization"
        )
    why = ", ".join(str(denial) for denial in denials)
    return condition(
        kind,
        "True",
        "ContentDeletionFailed",
        f"Failed to delete all resource types, {len(denials)} remaining: {why}",
    )
