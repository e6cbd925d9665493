"""Precedence of annotations: the object's before its Namespace's, one for a service before one for all services.

ACK's prefix and ours mean the same; at one level and rank they must agree.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from service.contract.names import ACK_PREFIX, PREFIX
from service.policy.decisions import quoted
from service.policy.services import service_fault

FAMILIES: Final = (ACK_PREFIX, PREFIX)
_WHITE_SPACE: Final = "".join(one for one in map(chr, range(0x3001)) if one.isspace() and not "\x1c" <= one <= "\x1f")
"""Unicode's, as the admission policies trim it: Python's own `strip` also removes four control characters."""
OBJECT: Final = "the object"
NAMESPACE: Final = "its Namespace"


class AnnotationValue(NamedTuple):
    """The normalised value of the deciding annotation, the reason, and the annotation's name."""

    word: str
    reason: str
    mark: str


class AmbiguousAnnotation(NamedTuple):
    """Annotations with invalid or contradictory values: an operator must act."""

    reason: str
    mark: str


@lru_cache(maxsize=1024)
def annotation_names(word: str, service: str) -> tuple[tuple[str, ...], ...]:
    """The full names of an annotation by rank, the highest first."""
    plain = tuple(f"{family}/{word}" for family in FAMILIES)
    return (tuple(f"{service}.{name}" for name in plain), plain) if service else (plain,)


def deciding_annotation(
    word: str, allowed: Sequence[str], service: str, own: Mapping[str, str], namespace: Mapping[str, str]
) -> AnnotationValue | AmbiguousAnnotation | None:
    """The first level and rank with an annotation decides alone; None where there is no annotation."""
    if fault := service_fault(service):
        return AmbiguousAnnotation(fault, "")
    for level, annotations in ((OBJECT, own), (NAMESPACE, namespace)):
        for names in annotation_names(word, service):
            found = agreed_value(((name, annotations[name]) for name in names if name in annotations), allowed, level)
            if found is not None:
                return found
    return None


def annotation_word(value: str) -> str:
    """What the value means: case and surrounding white space do not count."""
    return value.strip(_WHITE_SPACE).lower()


def agreed_value(
    marks: Iterable[tuple[str, str]], allowed: Sequence[str], level: str
) -> AnnotationValue | AmbiguousAnnotation | None:
    """The common value of annotations of equal rank."""
    first: AnnotationValue | None = None
    for name, value in marks:
        word = annotation_word(value)
        if word not in allowed:
            what = f"has the value {quoted(value)}" if word else "is empty"
            return AmbiguousAnnotation(f"annotation {name} of {level} {what}; allowed: {', '.join(allowed)}", name)
        if first is None:
            first = AnnotationValue(word, f"annotation {name} of {level} says {quoted(value)}", name)
        elif first.word != word:
            reason = (
                f"annotations {first.mark} ({first.word}) and {name} ({word}) of {level} disagree; keep one of them"
            )
            return AmbiguousAnnotation(reason, name)
    return first
