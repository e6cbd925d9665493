"""Verbs: maps a request to its verb and carries it out.
Permission is checked before existence, so that a caller without it learns nothing."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from standins.kubernetes_api import selectors, statuses, token_requests
from standins.kubernetes_api.admission import Admission, Deletion
from standins.kubernetes_api.api_resources import NAMESPACES, ApiResource
from standins.kubernetes_api.authorization import User
from standins.kubernetes_api.controllers import Controllers
from standins.kubernetes_api.creation import create
from standins.kubernetes_api.deletion import DeleteOptions, delete, parse_options
from standins.kubernetes_api.documents import Document, decode, encode, received
from standins.kubernetes_api.listing import ListRequest, listed
from standins.kubernetes_api.patching import patched
from standins.kubernetes_api.paths import ResourcePath
from standins.kubernetes_api.representation import Representation, wants_partial
from standins.kubernetes_api.state import ClusterState
from standins.kubernetes_api.statuses import StatusError
from standins.kubernetes_api.updates import Update, update
from standins.kubernetes_api.watching import ServedWatch, too_old


@dataclass(frozen=True, slots=True)
class VerbRequest:
    """A request about a resource, parsed."""

    method: str
    target: ResourcePath
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
        """The verb as in RBAC; empty for an unsupported method."""
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
class VerbResponse:
    status: int
    body: bytes


class Verbs:
    def __init__(
        self,
        state: ClusterState,
        controllers: Controllers,
        admission: Admission,
        bookmark_every: timedelta,
        *,
        refuse_old_watches: bool,
    ) -> None:
        self._state = state
        self._controllers = controllers
        self._admission = admission
        self._bookmark_every = bookmark_every
        self._refuse_old_watches = refuse_old_watches

    async def answer(self, request: VerbRequest) -> VerbResponse | ServedWatch:
        """Raises StatusError or PageNotFound."""
        target = request.target
        self._state.authorizer.require(request.user, request.verb, target)
        resource = self._state.registry.served(target.group, target.version, target.plural)
        if resource is None or not _is_at_path(resource, target):
            raise statuses.not_served(target.group)
        if target.subresource:
            _require_subresource(resource, target)
        view = Representation(resource, target.version, wants_partial(request.accept))
        if target.subresource == "token":
            return self._token(request)
        if request.verb in ("update", "patch") and not target.name:
            raise statuses.not_allowed()
        match request.verb:
            case "get":
                raw = self._state.get(resource, target.namespace, target.name)
                return VerbResponse(200, view.whole(raw))
            case "list":
                found = listed(self._state, resource, self._list_request(request, resource))
                return VerbResponse(200, view.listed(found.raws, found.meta))
            case "watch":
                return self._watch(request, view)
            case "create":
                return self._create(request, view)
            case "update" | "patch":
                return VerbResponse(200, view.whole(update(self._state, _update(request, resource))))
            case "delete":
                return await self._delete(request, view)
            case "deletecollection":
                return await self._delete_collection(request, view)
        raise statuses.not_allowed()

    def _token(self, request: VerbRequest) -> VerbResponse:
        if request.verb != "create":
            raise statuses.not_allowed()
        target = request.target
        return VerbResponse(201, encode(token_requests.issue(self._state, target.namespace, target.name, request.body)))

    def _create(self, request: VerbRequest, view: Representation) -> VerbResponse:
        target = request.target
        if target.name:
            raise statuses.not_allowed()
        if view.resource.namespaced and not target.namespace:
            raise statuses.PageNotFound if view.resource.custom else statuses.not_allowed()
        document = received(request.body)
        raw = create(self._state, view.resource, target.version, target.namespace, document, dry=request.dry)
        return VerbResponse(201, view.whole(raw))

    async def _delete(self, request: VerbRequest, view: Representation) -> VerbResponse:
        target, resource = request.target, view.resource
        wanted = parse_options(request.body, dict(request.query))
        place = (target.namespace, target.name)
        await self._admission.admit(Deletion(resource, target.version, *place, wanted, request.user))
        if wanted.orphans and not wanted.dry_run:
            self._orphan(resource, target)
        gone = delete(self._state, resource, *place, wanted)
        if gone.gone and not resource.returns_deleted:
            meta = gone.document["metadata"]
            return VerbResponse(200, encode(statuses.success(resource, meta["name"], meta["uid"])))
        return VerbResponse(200, view.whole(encode(gone.document)))

    async def _delete_collection(self, request: VerbRequest, view: Representation) -> VerbResponse:
        resource = view.resource
        wanted = parse_options(request.body, dict(request.query))
        found = listed(self._state, resource, self._list_request(request, resource))
        each = DeleteOptions(propagation_policy=wanted.propagation_policy, dry_run=wanted.dry_run)
        gone = []
        # One after the other: the first that is denied ends it, and those before it are gone.
        for namespace, name in [_place(raw) for raw in found.raws]:
            asked = Deletion(resource, request.target.version, namespace, name, each, request.user, collection=True)
            try:
                await self._admission.admit(asked)
                gone.append(delete(self._state, resource, namespace, name, each).document)
            except StatusError as error:
                # Another request may have deleted it meanwhile.
                if error.code != 404:
                    raise
        return VerbResponse(200, view.listed([encode(document) for document in gone], found.meta))

    def _orphan(self, resource: ApiResource, target: ResourcePath) -> None:
        raw = self._state.find(resource, target.namespace, target.name)
        if raw is not None:
            self._controllers.orphan(_metadata(raw)["uid"])

    def _list_request(self, request: VerbRequest, resource: ApiResource) -> ListRequest:
        query = request.query
        return ListRequest(
            request.target.namespace,
            self._selector(request, resource),
            limit=_number(query, "limit"),
            token=query.get("continue", ""),
            version=query.get("resourceVersion", ""),
            match=query.get("resourceVersionMatch", ""),
        )

    def _watch(self, request: VerbRequest, view: Representation) -> ServedWatch:
        seconds = _number(request.query, "timeoutSeconds")
        watch = ServedWatch(
            view,
            request.target.namespace,
            self._selector(request, view.resource),
            request.query.get("resourceVersion", ""),
            timedelta(seconds=seconds) if seconds else None,
            request.query.get("allowWatchBookmarks", "").lower() in ("1", "true", "t"),
            self._bookmark_every,
        )
        if too_old(self._state, watch) and self._refuse_old_watches:
            raise statuses.expired("The resourceVersion for the provided watch is too old.")
        return watch

    def _selector(self, request: VerbRequest, resource: ApiResource) -> selectors.ListSelector:
        return selectors.parse(resource, request.query.get("labelSelector", ""), request.query.get("fieldSelector", ""))


def _is_at_path(resource: ApiResource, target: ResourcePath) -> bool:
    if not resource.namespaced:
        return not target.namespace or resource == NAMESPACES
    return bool(target.namespace) or not target.name


def _require_subresource(resource: ApiResource, target: ResourcePath) -> None:
    served = resource.version(target.version)
    if target.subresource in resource.subresources:
        return
    if target.subresource == "status" and served is not None and served.status:
        return
    raise statuses.not_found(resource, target.name) if resource.custom else statuses.not_served(target.group)


def _update(request: VerbRequest, resource: ApiResource) -> Update:
    target = request.target

    def replacement(_old: Document) -> Document:
        return received(request.body)

    def patch(old: Document) -> Document:
        return patched(old, request.content_type, request.body, custom=resource.custom)

    return Update(
        resource,
        target.version,
        target.namespace,
        target.name,
        target.subresource,
        replacement if request.verb == "update" else patch,
        replaces=request.verb == "update",
        dry=request.dry,
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
