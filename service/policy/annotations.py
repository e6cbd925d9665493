"""Which annotation decides: the object's before its Namespace's, a service's own before one for all services.

Two families of prefixes say the same, ACK's and ours; at one level and rank they are equals, and must agree.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from service.contract.names import ACK_PREFIX, PREFIX
from service.policy.decisions import shown
from service.policy.services import service_fault

FAMILIES: Final = (ACK_PREFIX, PREFIX)
OBJECT: Final = "the object"
NAMESPACE: Final = "its Namespace"


class Said(NamedTuple):
    """What the deciding annotation says, as the word that it stands for, and the reason."""

    word: str
    reason: str
    mark: str


class Unclear(NamedTuple):
    """Nobody can tell what is meant: a person must look."""

    reason: str
    mark: str


@lru_cache(maxsize=1024)
def ranks(word: str, service: str) -> tuple[tuple[str, ...], ...]:
    """The full names of an annotation, the stronger ones first; a rank holds those that are equals."""
    plain = tuple(f"{family}/{word}" for family in FAMILIES)
    return (tuple(f"{service}.{name}" for name in plain), plain) if service else (plain,)


def said(
    word: str, allowed: Sequence[str], service: str, own: Mapping[str, str], namespace: Mapping[str, str]
) -> Said | Unclear | None:
    """The first level and rank at which anything is said decides alone; None where nothing is said at all."""
    if fault := service_fault(service):
        return Unclear(fault, "")
    for level, annotations in ((OBJECT, own), (NAMESPACE, namespace)):
        for names in ranks(word, service):
            found = one_of(((name, annotations[name]) for name in names if name in annotations), allowed, level)
            if found is not None:
                return found
    return None


def one_of(marks: Iterable[tuple[str, str]], allowed: Sequence[str], level: str) -> Said | Unclear | None:
    """What annotations of equal rank say together."""
    first: Said | None = None
    for name, value in marks:
        word = value.strip().lower()
        if word not in allowed:
            what = f"has the value {shown(value)}" if word else "is empty"
            return Unclear(f"annotation {name} of {level} {what}; allowed: {', '.join(allowed)}", name)
        if first is None:
            first = Said(word, f"annotation {name} of {level} says {shown(value)}", name)
        elif first.word != word:
            reason = (
                f"annotations {first.mark} ({first.word}) and {name} ({word}) of {level} disagree; keep one of them"
            )
            return Unclear(reason, name)
    return first
