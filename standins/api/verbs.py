"""From a request about a resource to the verb it means, and from the verb to its answer.
Permission comes before existence, so that who may not look learns nothing."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from standins.api import selecting, statuses, tokens
from standins.api.changing import Change, change
from standins.api.controlling import Controllers
from standins.api.creating import create
from standins.api.deleting import Options, delete, options
from standins.api.documents import Document, decode, encode, received
from standins.api.kinds import NAMESPACES, Resource
from standins.api.listing import Asked, listed
from standins.api.patching import patched
from standins.api.paths import Target
from standins.api.permitting import User
from standins.api.showing import View, wants_partial
from standins.api.watching import Watch, too_old
from standins.api.world import World


@dataclass(frozen=True, slots=True)
class Asking:
    """A request, read."""

    method: str
    target: Target
    query: Mapping[str, str]
    accept: str
    content_type: str
    body: bytes
    user: User

    @property
    def dry(self) -> bool:
        return "dryRun" in self.query

    @property
    def watches(self) -> bool:
        return self.query.get("watch", "").lower() in ("1", "true", "t")

    @property
    def verb(self) -> str:
        """As RBAC names it; empty for a method that nothing answers to."""
        collection = not self.target.name
        match self.method:
            case "GET":
                return ("watch" if self.watches else "list") if collection else "get"
            case "POST":
                return "create"
            case "PUT":
                return "update"
            case "PATCH":
                return "patch"
            case "DELETE":
                return "deletecollection" if collection else "delete"
        return ""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes


class Verbs:
    def __init__(
        self, world: World, controllers: Controllers, bookmark_every: timedelta, *, refuse_old_watches: bool
    ) -> None:
        self._world = world
        self._controllers = controllers
        self._bookmark_every = bookmark_every
        self._refuse_old_watches = refuse_old_watches

    def answer(self, asking: Asking) -> Answer | Watch:
        """Raises Refusal or PageNotFound."""
        target = asking.target
        self._world.permits.require(asking.user, asking.verb, target)
        resource = self._world.registry.served(target.group, target.version, target.plural)
        if resource is None or not _lies_there(resource, target):
            raise statuses.not_served(target.group)
        if target.subresource:
            _require_subresource(resource, target)
        view = View(resource, target.version, wants_partial(asking.accept))
        if target.subresource == "token":
            return self._token(asking)
        if asking.verb in ("update", "patch") and not target.name:
            raise statuses.not_allowed()
        match asking.verb:
            case "get":
                raw = self._world.get(resource, target.namespace, target.name)
                return Answer(200, view.whole(raw))
            case "list":
                found = listed(self._world, resource, self._asked(asking, resource))
                return Answer(200, view.listed(found.raws, found.meta))
            case "watch":
                return self._watch(asking, view)
            case "create":
                return self._create(asking, view)
            case "update" | "patch":
                return Answer(200, view.whole(change(self._world, _change(asking, resource))))
            case "delete":
                return self._delete(asking, view)
            case "deletecollection":
                return self._delete_collection(asking, view)
        raise statuses.not_allowed()

    def _token(self, asking: Asking) -> Answer:
        if asking.verb != "create":
            raise statuses.not_allowed()
        target = asking.target
        return Answer(201, encode(tokens.issue(self._world, target.namespace, target.name, asking.body)))

    def _create(self, asking: Asking, view: View) -> Answer:
        target = asking.target
        if target.name:
            raise statuses.not_allowed()
        if view.resource.namespaced and not target.namespace:
            raise statuses.PageNotFound if view.resource.custom else statuses.not_allowed()
        document = received(asking.body)
        raw = create(self._world, view.resource, target.version, target.namespace, document, dry=asking.dry)
        return Answer(201, view.whole(raw))

    def _delete(self, asking: Asking, view: View) -> Answer:
        target, resource = asking.target, view.resource
        wanted = options(asking.body, dict(asking.query))
        if wanted.orphans and not wanted.dry_run:
            self._orphan(resource, target)
        gone = delete(self._world, resource, target.namespace, target.name, wanted)
        if gone.gone and not resource.returns_deleted:
            meta = gone.document["metadata"]
            return Answer(200, encode(statuses.success(resource, meta["name"], meta["uid"])))
        return Answer(200, view.whole(encode(gone.document)))

    def _delete_collection(self, asking: Asking, view: View) -> Answer:
        resource = view.resource
        wanted = options(asking.body, dict(asking.query))
        found = listed(self._world, resource, self._asked(asking, resource))
        names = [_place(raw) for raw in found.raws]
        each = Options(propagation_policy=wanted.propagation_policy, dry_run=wanted.dry_run)
        gone = [delete(self._world, resource, namespace, name, each).document for namespace, name in names]
        return Answer(200, view.listed([encode(document) for document in gone], found.meta))

    def _orphan(self, resource: Resource, target: Target) -> None:
        raw = self._world.find(resource, target.namespace, target.name)
        if raw is not None:
            self._controllers.orphan(_metadata(raw)["uid"])

    def _asked(self, asking: Asking, resource: Resource) -> Asked:
        query = asking.query
        return Asked(
            asking.target.namespace,
            self._selector(asking, resource),
            limit=_number(query, "limit"),
            token=query.get("continue", ""),
            version=query.get("resourceVersion", ""),
            match=query.get("resourceVersionMatch", ""),
        )

    def _watch(self, asking: Asking, view: View) -> Watch:
        seconds = _number(asking.query, "timeoutSeconds")
        watch = Watch(
            view,
            asking.target.namespace,
            self._selector(asking, view.resource),
            asking.query.get("resourceVersion", ""),
            timedelta(seconds=seconds) if seconds else None,
            asking.query.get("allowWatchBookmarks", "").lower() in ("1", "true", "t"),
            self._bookmark_every,
        )
        if too_old(self._world, watch) and self._refuse_old_watches:
            raise statuses.expired("The resourceVersion for the provided watch is too old.")
        return watch

    def _selector(self, asking: Asking, resource: Resource) -> selecting.Selector:
        return selecting.parse(resource, asking.query.get("labelSelector", ""), asking.query.get("fieldSelector", ""))


def _lies_there(resource: Resource, target: Target) -> bool:
    if not resource.namespaced:
        return not target.namespace or resource == NAMESPACES
    return bool(target.namespace) or not target.name


def _require_subresource(resource: Resource, target: Target) -> None:
    served = resource.version(target.version)
    if target.subresource in resource.subresources:
        return
    if target.subresource == "status" and served is not None and served.status:
        return
    raise statuses.not_found(resource, target.name) if resource.custom else statuses.not_served(target.group)


def _change(asking: Asking, resource: Resource) -> Change:
    target = asking.target

    def replacement(_old: Document) -> Document:
        return received(asking.body)

    def patch(old: Document) -> Document:
        return patched(old, asking.content_type, asking.body, custom=resource.custom)

    return Change(
        resource,
        target.version,
        target.namespace,
        target.name,
        target.subresource,
        replacement if asking.verb == "update" else patch,
        replaces=asking.verb == "update",
        dry=asking.dry,
    )


def _number(query: Mapping[str, str], name: str) -> int:
    try:
        return int(query.get(name) or 0)
    except ValueError:
        raise statuses.bad_request(f"invalid {name}: {query[name]!r} is not a number") from None


def _place(raw: bytes) -> tuple[str, str]:
    meta = _metadata(raw)
    return meta.get("namespace", ""), meta["name"]


def _metadata(raw: bytes) -> Document:
    found: Document = decode(raw)["metadata"]
    return found
