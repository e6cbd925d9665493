"""What IAM roles and policies have in common: paths that say that something is not the account's own to delete, and
lists of what is attached."""

from collections.abc import Awaitable
from typing import Any, Final

from service.contract import Refused
from workers.providers.aws.errors import AwsError
from workers.providers.aws.kinds.declaration import AwsAttempt
from workers.providers.aws.model import AwsClient

RESERVED_PATHS: Final = {
    "/aws-service-role/": "is linked to a service, which deletes it",
    "/aws-reserved/": "is reserved for AWS, such as for its IAM Identity Center",
    "/service-role/": "was created for a service by its console",
}

DETACH_FROM_ROLE: Final = "iam.DetachRolePolicy"

MAX_SHOWN: Final = 5
"""Names in messages."""


def reserved(attempt: AwsAttempt, path: str) -> Refused | None:
    """The refusal for one with such a path, which says that it is not the owner's, whatever its tags say."""
    for front, why in RESERVED_PATHS.items():
        if path.startswith(front):
            return Refused(f"{attempt.resource.id} has the path {path}: it {why}")
    return None


def some_of(names: list[str]) -> str:
    rest = f" and {len(names) - MAX_SHOWN} more" if len(names) > MAX_SHOWN else ""
    return ", ".join(names[:MAX_SHOWN]) + rest


async def iam_list(client: AwsClient, operation: str, key: str, **arguments: Any) -> list[Any]:
    """All items of all pages; of something that is gone none."""
    try:
        return [one async for page in client.pages("iam", operation, key, **arguments) for one in page]
    except AwsError as error:
        if error.what != "gone":
            raise
        return []


async def unless_gone(change: Awaitable[Any]) -> None:
    """Awaits a call that undoes something, which may be undone by now."""
    try:
        await change
    except AwsError as error:
        if error.what != "gone":
            raise


def require_same(found: Any, field: str, expected: str, action: str) -> dict[str, Any]:
    """What a response says of the entity that was asked for."""
    if not isinstance(found, dict) or found.get(field) != expected:
        raise AwsError("unreadable", action, "OtherIds", f"the answer is not about {expected}")
    return found
