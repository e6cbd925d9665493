"""Judgement of one object's deletion by its annotations and those of its Namespace, and the words of a denial.
The admission policies (policies.py) decide and say the same in CEL; one table of cases holds for both."""

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from service.contract.names import PREVENT_DELETE
from service.policy.annotations import annotation_names, annotation_word
from service.policy.decisions import PolicyDecision
from service.policy.protection import decide_protection

(_PLAIN,) = annotation_names(PREVENT_DELETE, "")

Why = Literal["protected", "invalid", "unknown"]


class Denial(NamedTuple):
    """`why` is for metrics: protected by an annotation, by one whose value is invalid, or not known."""

    why: Why
    message: str


class JudgedObject(NamedTuple):
    """An object that is to be deleted. `resource` is plural.group, `kind` its Kind; the namespace of a cluster-scoped
    object is empty."""

    resource: str
    kind: str
    namespace: str
    name: str
    annotations: Mapping[str, str]

    def __str__(self) -> str:
        """As messages name it."""
        where = f" in Namespace {self.namespace}" if self.namespace else ""
        return f"{self.kind.lower()}/{self.name}{where}"


def protection_of(
    annotations: Mapping[str, str], namespace: Mapping[str, str], services: Iterable[str]
) -> PolicyDecision | None:
    """The decision of the first service whose annotations protect an object, if any does."""
    decisions = (decide_protection(annotations, namespace, service) for service in services)
    return next((decision for decision in decisions if decision.kind != "free"), None)


def judge_object(judged: JudgedObject, namespace: Mapping[str, str], services: Iterable[str]) -> Denial | None:
    """`namespace` are the annotations of its Namespace."""
    found = protection_of(judged.annotations, namespace, services)
    if found is None:
        return None
    # The object's own annotations come first, so the Namespace's decide only where the object has none of these.
    of_namespace = found.mark not in judged.annotations
    marks = " ".join(
        f"{name}-" for name in _denying_marks(found.mark, namespace if of_namespace else judged.annotations)
    )
    place = f"namespace {judged.namespace}" if of_namespace else _in_kubectl(judged)
    return Denial(
        "protected" if found.kind == "protected" else "invalid",
        f"{judged} is protected from deletion: {found.reason}; to lift it: kubectl annotate {place} {marks}",
    )


def _denying_marks(decider: str, annotations: Mapping[str, str]) -> list[str]:
    """Of the annotations of the deciding rank, those without which nothing of it denies."""
    prefix = next((decider.removesuffix(name) for name in _PLAIN if decider.endswith(name)), "")
    names = (f"{prefix}{name}" for name in _PLAIN)
    return [name for name in names if name in annotations and annotation_word(annotations[name]) != "false"]


def _in_kubectl(judged: JudgedObject) -> str:
    where = f" -n {judged.namespace}" if judged.namespace else ""
    return f"{judged.resource} {judged.name}{where}"
