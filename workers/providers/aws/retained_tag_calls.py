"""Writes and removes the tag `knell.dev/retained` on AWS resources, in as few calls as possible, and changes nothing
else. A tag that AWS refuses is recorded; it fails nothing."""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from service.contract.kept import RETAINED_TAG, KeptResource
from workers.providers.aws.client.operations import operation_names
from workers.providers.aws.errors import AwsError
from workers.providers.aws.kinds.declaration import AwsKind
from workers.providers.aws.model import AwsClient
from workers.providers.aws.reading.ec2 import chunks
from workers.providers.aws.retained_arn_tags import TRANSIENT, remove_by_arn, write_by_arn
from workers.providers.aws.services import SERVICES, TagCalls, service_named

_MAX_DENIED_HALVINGS: Final = 2
"""How often a list is halved after a denial: it may concern a single resource, but usually concerns all."""

TagErrors = Mapping[str, AwsError | None]
"""By id; None if the call succeeded."""


def tag_operations(kinds: Iterable[AwsKind]) -> Iterator[str]:
    """All operations used here for these kinds; some of them more than once."""
    for kind in kinds:
        if (calls := kind.tagging) is not None:
            yield from (operation_names(kind.tag_service, name).limited for name in (calls.add, calls.remove))


async def write_retained_tag(
    client: AwsClient, resources: Sequence[tuple[AwsKind, str]], value: str
) -> list[KeptResource]:
    """The resources that exist, each with the outcome of its tag. Raises AwsError and NoAccess for transient errors."""
    marked: list[KeptResource] = []
    by_arn = [(kind, one) for kind, one in resources if kind.tagged_by_arn]
    for kind, one in by_arn:
        error = await write_by_arn(client, kind, one, value)
        marked += [KeptResource(kind.name, one, _tag_failure(error))] if not _is_gone(error) else []
    for service, calls, names in _by_calls([pair for pair in resources if pair not in by_arn]):
        if calls is None:
            reason = f"not tagged: {service_named(service).untagged}"
            marked += [KeptResource(kind_name, one, reason) for one, kind_name in names.items()]
            continue
        for part in chunks(list(names), calls.max_ids):
            said = await _change_each(partial(_write, client, service, calls, value), part)
            marked += [
                KeptResource(names[one], one, _tag_failure(said[one])) for one in part if not _is_gone(said[one])
            ]
    return marked


async def remove_retained_tag(client: AwsClient, kind: AwsKind, ids: Sequence[str], value: str) -> TagErrors:
    """Removes the tag from resources that were just read with this value; a resource that is gone counts as untagged.
    Raises AwsError and NoAccess for transient errors."""
    found, calls = dict[str, AwsError | None](), kind.tagging
    if calls is None:
        words = f"Knell tags none of these: {service_named(kind.service).untagged}"
        return dict.fromkeys(ids, AwsError("other", kind.service, "NotTagged", words))
    if kind.tagged_by_arn:
        for one in ids:
            error = await remove_by_arn(client, kind, one, value)
            found[one] = None if _is_gone(error) else error
        return found
    for part in chunks(ids, calls.max_ids):
        said = await _change_each(partial(_remove, client, kind.service, calls, value), part)
        found |= {one: None if _is_gone(error) else error for one, error in said.items()}
    return found


def _by_calls(resources: Sequence[tuple[AwsKind, str]]) -> Iterator[tuple[str, TagCalls | None, dict[str, str]]]:
    """Services and their tag calls, each with the names of the kinds by id."""
    groups: dict[tuple[str, TagCalls | None], dict[str, str]] = {}
    for kind, one in resources:
        groups.setdefault((kind.service, kind.tagging), {})[one] = kind.name
    order = [service.name for service in SERVICES]
    for (service, calls), names in sorted(groups.items(), key=lambda group: order.index(group[0][0])):
        yield service, calls, names


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
        if error.what in TRANSIENT:
            raise
        left = halves - (error.what == "denied")
        if len(ids) > 1 and left >= 0:
            half = len(ids) // 2
            return {**await _change_each(change, ids[:half], left), **await _change_each(change, ids[half:], left)}
        return dict.fromkeys(ids, error)
    return dict.fromkeys(ids)


async def _write(client: AwsClient, service: str, calls: TagCalls, value: str, ids: list[str]) -> None:
    await client.call(service, calls.add, **calls.add_arguments(_names(client, calls, ids), RETAINED_TAG, value))


async def _remove(client: AwsClient, service: str, calls: TagCalls, value: str, ids: list[str]) -> None:
    await client.call(service, calls.remove, **calls.remove_arguments(_names(client, calls, ids), RETAINED_TAG, value))


def _names(client: AwsClient, calls: TagCalls, ids: list[str]) -> list[str]:
    return [calls.name_of(one, region=client.scope.region, account=client.account) for one in ids]
