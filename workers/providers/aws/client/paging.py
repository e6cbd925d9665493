"""Pagination of AWS lists. A list that ends without an error is complete: a response without the list, or a page token
that repeats, is an error."""

from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol

from workers.providers.aws.client.operations import operation_names
from workers.providers.aws.errors import AwsError
from workers.providers.aws.services import page_tokens_of


class CallFunction(Protocol):
    async def __call__(self, service: str, operation: str, /, **arguments: Any) -> dict[str, Any]: ...


async def paginate(
    call: CallFunction, service: str, operation: str, key: str, arguments: dict[str, Any]
) -> AsyncIterator[list[dict[str, Any]]]:
    """Each page's list under `key`; a page may be empty while more follow. Raises Undeclared."""
    told, asked = page_tokens_of(service)
    seen = set[str]()
    while True:
        answer = await call(service, operation, **arguments)
        yield require_list(answer, key, service, operation)
        token = answer.get(told)
        if not token:
            return
        if token in seen:
            action = operation_names(service, operation).action
            raise AwsError("unreadable", action, "PagesInACircle", "the list comes back to a page that it had")
        seen.add(token)
        arguments = arguments | {asked: token}


def require_list(answer: Mapping[str, Any], key: str, service: str, operation: str) -> list[dict[str, Any]]:
    """The list under that key; AWS sends it even when it is empty. A proxy's page that parses as an empty response
    would otherwise prove everything absent. `service` and `operation` as botocore names them."""
    found = answer.get(key)
    if not isinstance(found, list):
        action = operation_names(service, operation).action
        raise AwsError("unreadable", action, "NoList", f"an answer without {key} is no empty list")
    return found
