"""Writes and removes the tag `knell.dev/retained` on AWS resources, in as few calls as possible, and changes nothing
else. A tag that AWS refuses is recorded; it fails nothing."""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from service.contract.kept import RETAINED_TAG, KeptResource
from workers.providers.aws.client.operations import operation_names
from workers.providers.aws.errors import AwsError
from workers.providers.aws.kinds.declaration import AwsKind
from workers.providers.aws.model import AwsClient
from workers.providers.aws.reading.ec2 import chunks
from workers.providers.aws.services import SERVICES, tag_calls_of

OPERATIONS: Final = tuple(
    operation_names(service.name, name).limited
    for service in SERVICES
    if service.tag_calls is not None
    for name in (service.tag_calls.add, service.tag_calls.remove)
)
"""All operations used here."""

_TRANSIENT: Final = frozenset({"throttled", "unreachable", "unreadable"})
_MAX_DENIED_HALVINGS: Final = 2
"""How often a list is halved after a denial: it may concern a single resource, but usually concerns all."""

TagErrors = Mapping[str, AwsError | None]
"""By id; None if the call succeeded."""


async def write_retained_tag(
    client: AwsClient, resources: Sequence[tuple[AwsKind, str]], value: str
) -> list[KeptResource]:
    """The resources that exist, each with the outcome of its tag. Raises AwsError and NoAccess for transient errors."""
    marked: list[KeptResource] = []
    for service, ids in _by_service(resources):
        names = {one: kind.name for kind, one in resources}
        for part in chunks(ids, tag_calls_of(service).max_ids):
            said = await _change_each(partial(_write, client, service, value), part)
            marked += [
                KeptResource(names[one], one, _tag_failure(said[one])) for one in part if not _is_gone(said[one])
            ]
    return marked


async def remove_retained_tag(client: AwsClient, kind: AwsKind, ids: Sequence[str], value: str) -> TagErrors:
    """Removes the tag from resources that were just read with this value; a resource that is gone counts as untagged.
    Raises AwsError and NoAccess for transient errors."""
    found = dict[str, AwsError | None]()
    for part in chunks(ids, tag_calls_of(kind.service).max_ids):
        said = await _change_each(partial(_remove, client, kind.service, value), part)
        found |= {one: None if _is_gone(error) else error for one, error in said.items()}
    return found


def _by_service(resources: Sequence[tuple[AwsKind, str]]) -> Iterator[tuple[str, list[str]]]:
    for service in SERVICES:
        if ids := [one for kind, one in resources if kind.service == service.name]:
            yield service.name, ids


def _is_gone(error: AwsError | None) -> bool:
    return error is not None and error.what == "gone"


def _tag_failure(error: AwsError | None) -> str:
    return f"not tagged: {error.action}: {error.code}" if error is not None else ""


async def _change_each(
    change: Callable[[list[str]], Awaitable[None]], ids: list[str], halves: int = _MAX_DENIED_HALVINGS
) -> TagErrors:  # fmt: skip
    """Halves the list when a call fails: a call is all or nothing, and one resource that is gone, or has too many tags,
    fails it for the others."""
    try:
        await change(ids)
    except AwsError as error:
        if error.what in _TRANSIENT:
            raise
        left = halves - (error.what == "denied")
        if len(ids) > 1 and left >= 0:
            half = len(ids) // 2
            return {**await _change_each(change, ids[:half], left), **await _change_each(change, ids[half:], left)}
        return dict.fromkeys(ids, error)
    return dict.fromkeys(ids)


async def _write(client: AwsClient, service: str, value: str, ids: list[str]) -> None:
    calls = tag_calls_of(service)
    await client.call(service, calls.add, **calls.add_arguments(ids, RETAINED_TAG, value))


async def _remove(client: AwsClient, service: str, value: str, ids: list[str]) -> None:
    calls = tag_calls_of(service)
    await client.call(service, calls.remove, **calls.remove_arguments(ids, RETAINED_TAG, value))
