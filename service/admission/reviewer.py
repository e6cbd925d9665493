"""Review of one admission request: the denial, or none if the request is allowed.
Deletions of protected objects are denied, those of Namespaces and CRDs with such objects, and what can't be known."""

from typing import Final

from service.admission.contents import Contents, ProtectedObjects
from service.admission.judgement import Denial, JudgedObject
from service.admission.object_review import NamespaceLookup, review_object
from service.admission.protected_resources import ProtectedResources
from service.admission.reviews import OldObject, ReviewRequest, UndecodableReview, decode_definition, decode_old_object

KUBE_SYSTEM: Final = "kube-system"


class Reviewer:
    """`own` is the Namespace of Knell. It and kube-system are always allowed, so that no denial can keep what has to
    run from being repaired."""

    def __init__(
        self, protected: ProtectedResources, namespaces: NamespaceLookup, contents: Contents, own: str
    ) -> None:
        self._protected, self._namespaces, self._contents = protected, namespaces, contents
        self._exempt = frozenset({KUBE_SYSTEM, own})

    async def review(self, request: ReviewRequest) -> Denial | None:
        if request.operation != "DELETE":
            return None
        try:
            match request.about:
                case "namespace":
                    return await self._review_namespace(decode_old_object(request))
                case "definition":
                    return await self._review_definition(request)
                case "object":
                    return await self._review_object(request)
        except UndecodableReview as error:
            return Denial("unknown", f"{request.kind.kind.lower()}/{request.name} is not deleted: {error}")

    async def _review_object(self, request: ReviewRequest) -> Denial | None:
        resource = request.resource.plural_and_group
        services = self._protected.services(resource)
        if not services or request.namespace in self._exempt:
            return None
        old = decode_old_object(request)
        namespace = old.namespace or request.namespace
        judged = JudgedObject(resource, request.kind.kind, namespace, old.name, old.annotations or {})
        return await review_object(judged, services, self._namespaces)

    async def _review_namespace(self, old: OldObject) -> Denial | None:
        if old.name in self._exempt:
            return None
        found = await self._contents.in_namespace(old.name, old.annotations or {})
        which = f"namespace/{old.name}"
        if found.count:
            return Denial(
                "protected",
                f"{which} contains {_counted(found)}; to see what protects them: knell protection list -n {old.name}",
            )
        return _unknown(which, "it contains protected objects", found)

    async def _review_definition(self, request: ReviewRequest) -> Denial | None:
        # By the name, which the API server builds of plural and group: most CRDs are none of ours and may be large.
        old = decode_old_object(request)
        if not self._protected.services(old.name):
            return None
        found = await self._contents.of_definition(decode_definition(request))
        which = f"customresourcedefinition/{old.name}"
        if found.count:
            return Denial(
                "protected",
                f"{which} has {_counted(found)}, which would be deleted with it; to see what protects them: "
                "knell protection list",
            )
        return _unknown(which, "it has protected objects", found)


def _counted(found: ProtectedObjects) -> str:
    names = found.names()
    listed = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    least = "at least " if found.unknown else ""
    return f"{least}{found.count} protected object{'' if found.count == 1 else 's'}: {listed}"


def _unknown(which: str, whether: str, found: ProtectedObjects) -> Denial | None:
    if not found.unknown:
        return None
    why = f"whether {whether} can't be known ({found.unknown})"
    return Denial("unknown", f"{which} is not deleted now: {why}; try again")
