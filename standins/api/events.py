"""Events, which two API groups show in different words: kept in those of the core group, translated for the other.
The rules for new-style Events are here, since whoever posts Events must keep to them."""

from typing import Final

from standins.api import statuses
from standins.api.documents import Document
from standins.api.kinds import EVENTS, Resource
from standins.api.statuses import Cause

_CORE_TO_NEW: Final = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
_NEW_TO_CORE: Final = {new: core for core, new in _CORE_TO_NEW.items()}
_LONGEST_NOTE: Final = 1024
_LONGEST_WORD: Final = 128


def from_core(document: Document) -> Document:
    return {_CORE_TO_NEW.get(name, name): value for name, value in document.items()}


def to_core(document: Document) -> Document:
    return {_NEW_TO_CORE.get(name, name): value for name, value in document.items()}


def accepted(resource: Resource, document: Document) -> Document:
    """A new Event in the words of the core group. Raises Refusal (422)."""
    new_style = resource != EVENTS
    core = to_core(document) if new_style else document
    wrong = _misplaced(core)
    if core.get("eventTime"):
        wrong += _incomplete(core, "reportingController" if new_style else "reportingComponent")
    if new_style:
        if not core.get("eventTime"):
            wrong.append(Cause("FieldValueRequired", "eventTime", "Required value"))
        if core.get("type") not in ("Normal", "Warning"):
            message = f'Invalid value: "": has invalid value: {core.get("type", "")}'
            wrong.append(Cause("FieldValueInvalid", "type", message))
    if wrong:
        raise statuses.invalid(EVENTS, core["metadata"]["name"], wrong)
    return core


def _misplaced(core: Document) -> list[Cause]:
    where = core["metadata"]["namespace"]
    about = (core.get("involvedObject") or {}).get("namespace", "")
    if about == where or (not about and where == "default"):
        return []
    message = f'Invalid value: "{about}": does not match event.namespace'
    return [Cause("FieldValueInvalid", "involvedObject.namespace", message)]


def _incomplete(core: Document, controller: str) -> list[Cause]:
    wrong = []
    for field, name in (
        ("reportingComponent", controller),
        ("reportingInstance", "reportingInstance"),
        ("action", "action"),
        ("reason", "reason"),
    ):
        value = core.get(field) or ""
        if not value:
            wrong.append(Cause("FieldValueRequired", name, "Required value"))
        elif len(value) > _LONGEST_WORD:
            message = f'Invalid value: "": can have at most {_LONGEST_WORD} characters'
            wrong.append(Cause("FieldValueInvalid", name, message))
    if len((core.get("message") or "").encode()) > _LONGEST_NOTE:
        message = f'Invalid value: "": can have at most {_LONGEST_NOTE} characters'
        wrong.append(Cause("FieldValueInvalid", "message", message))
    return wrong
