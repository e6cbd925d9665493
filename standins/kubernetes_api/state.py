"""State of the embedded cluster, shared by verbs and controllers: object store, served resources, permissions.
Store keys are built here only, so that lists have the order of the real server."""

from standins.kubernetes_api import statuses
from standins.kubernetes_api.api_resources import NAMESPACES, ApiResource, ResourceRegistry
from standins.kubernetes_api.authorization import Authorizer
from standins.kubernetes_api.documents import Document, decode, now
from standins.kubernetes_api.store import ObjectStore


class ClusterState:
    def __init__(self, history: int) -> None:
        self.store = ObjectStore(history)
        self.registry = ResourceRegistry()
        self.authorizer = Authorizer(self.store)

    def find(self, resource: ApiResource, namespace: str, name: str) -> bytes | None:
        return self.store.table(resource.stored_in).objects.get(key(resource, namespace, name))

    def get(self, resource: ApiResource, namespace: str, name: str) -> bytes:
        """Raises StatusError (404)."""
        raw = self.find(resource, namespace, name)
        if raw is None:
            raise statuses.not_found(resource, name)
        return raw

    def put(self, resource: ApiResource, document: Document) -> bytes:
        return self.store.put(resource.stored_in, key_of(resource, document), document)

    def remove(self, resource: ApiResource, document: Document) -> bytes:
        return self.store.remove(resource.stored_in, key_of(resource, document), document)

    def namespace(self, name: str) -> Document | None:
        raw = self.find(NAMESPACES, "", name)
        return None if raw is None else decode(raw)


def key(resource: ApiResource, namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if resource.namespaced else name


def key_of(resource: ApiResource, document: Document) -> str:
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
