"""Lists of AWS from their first page to their last, by whatever way each page is asked for.
A list that ends without an error is whole: what has no list in it, or leads back to where it was, is an error."""

from collections.abc import AsyncIterator
from typing import Any, Final, Protocol

from workers.handlers.aws.answers import list_of
from workers.handlers.aws.errors import AwsError
from workers.handlers.aws.operations import operation_of

# By service: what a page's token is called in the answer, and in the question for the next page.
_TOKENS: Final = {
    "ec2": ("NextToken", "NextToken"),
    "elb": ("NextMarker", "Marker"),
    "elbv2": ("NextMarker", "Marker"),
    "resourcegroupstaggingapi": ("PaginationToken", "PaginationToken"),
    "eks": ("nextToken", "nextToken"),
}


class Call(Protocol):
    async def __call__(self, service: str, operation: str, /, **arguments: Any) -> dict[str, Any]: ...


async def pages_by(
    call: Call, service: str, operation: str, key: str, arguments: dict[str, Any]
) -> AsyncIterator[list[dict[str, Any]]]:
    """Each page's list under `key`; a page may be empty while more follow."""
    told, asked = _TOKENS[service]
    seen = set[str]()
    while True:
        answer = await call(service, operation, **arguments)
        yield list_of(answer, key, service, operation)
        token = answer.get(told)
        if not token:
            return
        if token in seen:
            action = operation_of(service, operation).action
            raise AwsError("unreadable", action, "PagesInACircle", "the list comes back to a page that it had")
        seen.add(token)
        arguments = arguments | {asked: token}
