"""Events, which two API groups represent with different field names: stored as in the core group, translated for the
other. The validation of events.k8s.io is here as well."""

from typing import Final

from standins.kubernetes_api import statuses
from standins.kubernetes_api.api_resources import EVENTS, ApiResource
from standins.kubernetes_api.documents import Document
from standins.kubernetes_api.statuses import Cause

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


def accepted(resource: ApiResource, document: Document) -> Document:
    """A new Event with the field names of the core group. Raises StatusError (422)."""
    new_style = resource != EVENTS
    core = to_core(document) if new_style else document
    errors = _namespace_errors(core)
    if core.get("eventTime"):
        errors += _field_errors(core, "reportingController" if new_style else "reportingComponent")
    if new_style:
        if not core.get("eventTime"):
            errors.append(Cause("FieldValueRequired", "eventTime", "Required value"))
        if core.get("type") not in ("Normal", "Warning"):
            message = f'Invalid value: "": has invalid value: {core.get("type", "")}'
            errors.append(Cause("FieldValueInvalid", "type", message))
    if errors:
        raise statuses.invalid(EVENTS, core["metadata"]["name"], errors)
    return core


def _namespace_errors(core: Document) -> list[Cause]:
    where = core["metadata"]["namespace"]
    about = (core.get("involvedObject") or {}).get("namespace", "")
    if about == where or (not about and where == "default"):
        return []
    message = f'Invalid value: "{about}": does not match event.namespace'
    return [Cause("FieldValueInvalid", "involvedObject.namespace", message)]


def _field_errors(core: Document, controller: str) -> list[Cause]:
    errors = []
    for field, name in (
        ("reportingComponent", controller),
        ("reportingInstance", "reportingInstance"),
        ("action", "action"),
        ("reason", "reason"),
    ):
        value = core.get(field) or ""
        if not value:
            errors.append(Cause("FieldValueRequired", name, "Required value"))
        elif len(value) > _LONGEST_WORD:
            message = f'Invalid value: "": can have at most {_LONGEST_WORD} characters'
            errors.append(Cause("FieldValueInvalid", name, message))
    if len((core.get("message") or "").encode()) > _LONGEST_NOTE:
        message = f'Invalid value: "": can have at most {_LONGEST_NOTE} characters'
        errors.append(Cause("FieldValueInvalid", "message", message))
    return errors
