"""Errors of the API server: Status objects with reason, code and details, in the words of the real server."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from standins.kubernetes_api.api_resources import OWN_GROUPS, ApiResource

_EXPIRED_LIST = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


@dataclass(frozen=True, slots=True)
class Cause:
    """One invalid field."""

    reason: str
    field: str
    message: str


class StatusError(Exception):
    """A response with a Status of failure."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: dict[str, Any] | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": metadata or {},
            "status": "Failure",
            "message": message,
            **({"reason": reason} if reason else {}),
            **({} if details is None else {"details": details}),
            "code": code,
        }


class PageNotFound(Exception):
    """A path without a resource: a 404 in plain text, as on the real server."""


def success(resource: ApiResource, name: str, uid: str) -> dict[str, Any]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {**_about(resource, name), "uid": uid},
    }


def bad_request(message: str) -> StatusError:
    return StatusError(400, "BadRequest", message)


def unauthorized() -> StatusError:
    return StatusError(401, "Unauthorized", "Unauthorized")


def forbidden(group: str, resource: str, name: str, why: str, causes: Sequence[Cause] = ()) -> StatusError:
    full = _full(resource, group)
    about = f'{full} "{name}"' if name else full
    details: dict[str, Any] = {"name": name} if name else {}
    if group:
        details["group"] = group
    details["kind"] = resource
    if causes:
        details["causes"] = _listed(causes)
    return StatusError(403, "Forbidden", f"{about} is forbidden: {why}", details)


def not_served(group: str) -> Exception:
    """A Status in built-in groups; a 404 in plain text in groups of CustomResourceDefinitions."""
    if group in OWN_GROUPS:
        return StatusError(404, "NotFound", "the server could not find the requested resource", {})
    return PageNotFound()


def not_found(resource: ApiResource, name: str) -> StatusError:
    return StatusError(404, "NotFound", f'{resource.name} "{name}" not found', _about(resource, name))


def not_allowed(message: str = "the server does not allow this method on the requested resource") -> StatusError:
    return StatusError(405, "MethodNotAllowed", message, {})


def not_acceptable() -> StatusError:
    return StatusError(406, "NotAcceptable", "406: Not Acceptable\n\nAvailable representations: application/json", {})


def already_exists(resource: ApiResource, name: str) -> StatusError:
    return StatusError(409, "AlreadyExists", f'{resource.name} "{name}" already exists', _about(resource, name))


def conflict(resource: ApiResource, name: str, why: str = "") -> StatusError:
    why = why or "the object has been modified; please apply your changes to the latest version and try again"
    message = f'Operation cannot be fulfilled on {resource.name} "{name}": {why}'
    return StatusError(409, "Conflict", message, _about(resource, name))


def precondition(resource: ApiResource, name: str, why: str) -> StatusError:
    """A failed precondition of a delete names the kind; all other conflicts name the resource."""
    message = f'Operation cannot be fulfilled on {_full(resource.kind, resource.group)} "{name}": {why}'
    return StatusError(409, "Conflict", message, {**_about(resource, name), "kind": resource.kind})


def expired(message: str) -> StatusError:
    return StatusError(410, "Expired", message)


def expired_list(token: str) -> StatusError:
    return StatusError(410, "Expired", _EXPIRED_LIST, metadata={"continue": token})


def unsupported_media(accepted: Sequence[str]) -> StatusError:
    message = "the body of the request was in an unknown format - accepted media types include: " + ", ".join(accepted)
    return StatusError(415, "UnsupportedMediaType", message)


def invalid(resource: ApiResource, name: str, causes: Sequence[Cause]) -> StatusError:
    return invalid_kind(resource.kind, resource.group, name, causes)


def invalid_kind(kind: str, group: str, name: str, causes: Sequence[Cause]) -> StatusError:
    messages = [f"{cause.field}: {cause.message}" for cause in causes]
    text = messages[0] if len(messages) == 1 else f"[{', '.join(messages)}]"
    details: dict[str, Any] = {"name": name} if name else {}
    if group:
        details["group"] = group
    details |= {"kind": kind, "causes": _listed(causes)}
    return StatusError(422, "Invalid", f'{_full(kind, group)} "{name}" is invalid: {text}', details)


def unprocessable() -> StatusError:
    """A JSON patch that does not apply; the real server gives no reason."""
    return StatusError(422, "Invalid", "the server rejected our request due to an error in our request", {})


def internal(message: str) -> StatusError:
    return StatusError(500, "", message)


def internal_error(why: str) -> StatusError:
    """A failure of the server itself, with its cause; `internal` is one without a reason."""
    message = f"Internal error occurred: {why}"
    return StatusError(500, "InternalError", message, {"causes": [{"message": why}]})


def too_large_version(asked: int, current: int) -> StatusError:
    message = f"Too large resource version: {asked}, current: {current}"
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    return StatusError(504, "Timeout", f"Timeout: {message}", {"causes": causes, "retryAfterSeconds": 1})


def _full(word: str, group: str) -> str:
    return f"{word}.{group}" if group else word


def _about(resource: ApiResource, name: str) -> dict[str, Any]:
    group = {"group": resource.group} if resource.group else {}
    return {"name": name, **group, "kind": resource.plural}


def _listed(causes: Sequence[Cause]) -> list[dict[str, str]]:
    return [{"reason": cause.reason, "message": cause.message, "field": cause.field} for cause in causes]
