"""Judgement of an object whose Namespace is looked up, and only if the object's own annotations do not decide.
What can't be known is denied."""

from collections.abc import Mapping
from typing import Protocol

from service.admission.judgement import Denial, JudgedObject, judge_object
from service.contract.names import PREVENT_DELETE
from service.kubernetes import ClusterError, NotFound
from service.policy.annotations import deciding_annotation
from service.policy.protection import ALLOWED


class NamespaceLookup(Protocol):
    async def annotations(self, name: str) -> Mapping[str, str]:
        """Raises ClusterError if they can't be known, NotFound if there is no such Namespace."""


async def review_object(judged: JudgedObject, services: tuple[str, ...], namespaces: NamespaceLookup) -> Denial | None:
    if not judged.namespace or _decides_itself(judged, services):
        return judge_object(judged, {}, services)
    try:
        annotations = await namespaces.annotations(judged.namespace)
    except ClusterError as error:
        # An object that protects itself is denied with that reason, whatever its Namespace says.
        return judge_object(judged, {}, services) or Denial("unknown", _unknown_namespace(judged, error))
    return judge_object(judged, annotations, services)


def _decides_itself(judged: JudgedObject, services: tuple[str, ...]) -> bool:
    return all(
        deciding_annotation(PREVENT_DELETE, ALLOWED, service, judged.annotations, {}) is not None
        for service in services
    )


def _unknown_namespace(judged: JudgedObject, error: ClusterError) -> str:
    if isinstance(error, NotFound):
        # Nor can the object be annotated: the API server refuses changes in a Namespace that does not exist.
        return (
            f"{judged} is not deleted: its Namespace no longer exists, so that its annotations of protection can't be "
            f"known; to delete it, create the Namespace again first: kubectl create namespace {judged.namespace}"
        )
    return (
        f"{judged} is not deleted now: whether its Namespace protects it can't be known ({error}); try again, or allow "
        f"it: kubectl annotate {judged.resource} {judged.name} -n {judged.namespace} knell.dev/{PREVENT_DELETE}=false"
    )
