"""What the verbs and the controllers share: the store, what is served, and who may do what.
Keys are built here and nowhere else, so that a list is in the order of the real server's."""

from standins.api import statuses
from standins.api.documents import Document, decode, now
from standins.api.kinds import NAMESPACES, Resource
from standins.api.permitting import Permits
from standins.api.registry import Registry
from standins.api.store import Store


class World:
    def __init__(self, history: int) -> None:
        self.store = Store(history)
        self.registry = Registry()
        self.permits = Permits(self.store)

    def find(self, resource: Resource, namespace: str, name: str) -> bytes | None:
        return self.store.table(resource.stored_in).objects.get(key(resource, namespace, name))

    def get(self, resource: Resource, namespace: str, name: str) -> bytes:
        """Raises Refusal (404)."""
        raw = self.find(resource, namespace, name)
        if raw is None:
            raise statuses.not_found(resource, name)
        return raw

    def put(self, resource: Resource, document: Document) -> bytes:
        return self.store.put(resource.stored_in, key_of(resource, document), document)

    def remove(self, resource: Resource, document: Document) -> bytes:
        return self.store.remove(resource.stored_in, key_of(resource, document), document)

    def namespace(self, name: str) -> Document | None:
        raw = self.find(NAMESPACES, "", name)
        return None if raw is None else decode(raw)


def key(resource: Resource, namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if resource.namespaced else name


def key_of(resource: Resource, document: Document) -> str:
    meta = document["metadata"]
    return key(resource, meta.get("namespace", ""), meta["name"])


def condition(kind: str, status: str, reason: str, message: str) -> Document:
    return {
        "type": kind,
        "status": status,
        "lastTransitionTime": now(),
        "reason": reason,
        "message": message,
    }
