"""JSON patch (RFC 6902) and merge patch (RFC 7396) on decoded documents.
A patch that does not apply, or whose `test` fails, raises StatusError with the response of the real server."""

import copy
from typing import Any, Final

import msgspec

from standins.kubernetes_api import statuses
from standins.kubernetes_api.documents import Document

JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"


class _Operation(msgspec.Struct):
    op: str
    path: str
    value: Any = None
    from_: str = msgspec.field(default="", name="from")


class _DoesNotApply(Exception):
    pass


def patched(document: Document, content_type: str, body: bytes, *, custom: bool) -> Document:
    """The document with the patch applied; the given document may be modified."""
    kind = content_type.partition(";")[0].strip()
    accepted = [JSON_PATCH, MERGE_PATCH] if custom else [JSON_PATCH, MERGE_PATCH, STRATEGIC]
    if kind not in accepted:
        raise statuses.unsupported_media([*accepted, "application/apply-patch+yaml"])
    if kind == JSON_PATCH:
        try:
            operations = msgspec.json.decode(body, type=list[_Operation])
        except msgspec.DecodeError as error:
            raise statuses.bad_request(f"error decoding patch: {error}") from None
        return _json_patched(document, operations)
    try:
        patch = msgspec.json.decode(body, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise statuses.bad_request(f"error decoding patch: {error}") from None
    result: Document = merged(document, patch)
    return result


def merged(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    result = target if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def _json_patched(document: Document, operations: list[_Operation]) -> Document:
    result: Any = document
    try:
        for operation in operations:
            result = _applied(result, operation)
    except (_DoesNotApply, KeyError, IndexError, ValueError, TypeError):
        raise statuses.unprocessable() from None
    if not isinstance(result, dict):
        raise statuses.unprocessable()
    return result


def _applied(document: Any, operation: _Operation) -> Any:
    path = _steps(operation.path)
    match operation.op:
        case "test":
            # A missing path counts as null, as in the library that the real server uses.
            if not _same(_found(document, path), operation.value):
                raise _DoesNotApply
            return document
        case "add":
            return _add(document, path, operation.value)
        case "remove":
            return _remove(document, path)
        case "replace":
            return _replace(document, path, operation.value)
        case "copy":
            source = _steps(operation.from_)
            return _add(document, path, copy.deepcopy(_require(document, source)))
        case "move":
            source = _steps(operation.from_)
            moved = _require(document, source)
            return _add(_remove(document, source), path, moved)
    raise _DoesNotApply


def _steps(pointer: str) -> list[str]:
    if not pointer:
        return []
    if not pointer.startswith("/"):
        raise _DoesNotApply
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer[1:].split("/")]


def _step(container: Any, step: str) -> Any:
    if isinstance(container, dict):
        return container[step]
    if isinstance(container, list):
        return container[int(step)]
    raise _DoesNotApply


def _require(document: Any, path: list[str]) -> Any:
    for step in path:
        document = _step(document, step)
    return document


def _found(document: Any, path: list[str]) -> Any:
    parent = _require(document, path[:-1]) if path else document
    if not path:
        return parent
    return parent.get(path[-1]) if isinstance(parent, dict) else _step(parent, path[-1])


def _add(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    parent = _require(document, path[:-1])
    if isinstance(parent, dict):
        parent[path[-1]] = value
    elif isinstance(parent, list):
        index = len(parent) if path[-1] == "-" else int(path[-1])
        if not 0 <= index <= len(parent):
            raise _DoesNotApply
        parent.insert(index, value)
    else:
        raise _DoesNotApply
    return document


def _replace(document: Any, path: list[str], value: Any) -> Any:
    """Adds a missing key, contrary to the RFC, as the library of the real server does."""
    if path and isinstance(parent := _require(document, path[:-1]), list):
        parent[int(path[-1])] = value
        return document
    return _add(document, path, value)


def _remove(document: Any, path: list[str]) -> Any:
    if not path:
        raise _DoesNotApply
    parent = _require(document, path[:-1])
    if isinstance(parent, dict):
        del parent[path[-1]]
    elif isinstance(parent, list):
        del parent[int(path[-1])]
    else:
        raise _DoesNotApply
    return document


def _same(left: Any, right: Any) -> bool:
    """JSON equality: true is not 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_same, left, right))
    return bool(left == right)
