"""Writer and remover of the tag `knell.dev/retained` on AWS resources, in as few calls as possible; it changes nothing
else. A refused tag is recorded and fails nothing."""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from service.contract.kept import RETAINED_TAG, KeptResource
from workers.handlers.aws.errors import AwsError
from workers.handlers.aws.model import Calls, Kind
from workers.handlers.aws.reading.ec2 import chunks

OPERATIONS: Final = (
    "ec2.CreateTags", "elb.AddTags", "elbv2.AddTags", "ec2.DeleteTags", "elb.RemoveTags", "elbv2.RemoveTags",
)  # fmt: skip
"""Everything that may be called here."""

_AT_ONCE: Final = {"ec2": 200, "elbv2": 20, "elb": 1}
"""Resources that one call takes."""

_PASSING: Final = frozenset({"throttled", "unreachable", "unreadable"})
_DENIED_HALVES: Final = 2
"""How often a list is halved for a denial: it may be about one of them, but mostly it is about all."""

Refusals = Mapping[str, AwsError | None]
"""By id; None where the call was carried out."""


async def mark(calls: Calls, resources: Sequence[tuple[Kind, str]], value: str) -> list[KeptResource]:
    """Those that are there, each with what came of its tag. Raises what may pass by itself: AwsError and NoAccess."""
    marked: list[KeptResource] = []
    for service, ids in _by_service(resources):
        names = {one: kind.name for kind, one in resources}
        for part in chunks(ids, _AT_ONCE[service]):
            said = await _each(partial(_write, calls, service, value), part)
            marked += [KeptResource(names[one], one, _untagged(said[one])) for one in part if not _is_gone(said[one])]
    return marked


async def unmark(calls: Calls, kind: Kind, ids: Sequence[str], value: str) -> Refusals:
    """Takes the tag off resources that were just read with this value. One that is gone meanwhile carries none. Raises
    what may pass by itself: AwsError and NoAccess."""
    found = dict[str, AwsError | None]()
    for part in chunks(ids, _AT_ONCE[kind.service]):
        said = await _each(partial(_erase, calls, kind.service, value), part)
        found |= {one: None if _is_gone(error) else error for one, error in said.items()}
    return found


def _by_service(resources: Sequence[tuple[Kind, str]]) -> Iterator[tuple[str, list[str]]]:
    for service in _AT_ONCE:
        if ids := [one for kind, one in resources if kind.service == service]:
            yield service, ids


def _is_gone(error: AwsError | None) -> bool:
    return error is not None and error.what == "gone"


def _untagged(error: AwsError | None) -> str:
    return f"not tagged: {error.action}: {error.code}" if error is not None else ""


async def _each(
    change: Callable[[list[str]], Awaitable[None]], ids: list[str], halves: int = _DENIED_HALVES
) -> Refusals:  # fmt: skip
    """A call is all or nothing: one that is not there any more, or can't take another tag, keeps the others of the list
    from theirs, so that is halved."""
    try:
        await change(ids)
    except AwsError as error:
        if error.what in _PASSING:
            raise
        left = halves - (error.what == "denied")
        if len(ids) > 1 and left >= 0:
            half = len(ids) // 2
            return {**await _each(change, ids[:half], left), **await _each(change, ids[half:], left)}
        return dict.fromkeys(ids, error)
    return dict.fromkeys(ids)


async def _write(calls: Calls, service: str, value: str, ids: list[str]) -> None:
    tags: list[dict[str, Any]] = [{"Key": RETAINED_TAG, "Value": value}]
    match service:
        case "ec2":
            await calls.call("ec2", "create_tags", Resources=ids, Tags=tags)
        case "elbv2":
            await calls.call("elbv2", "add_tags", ResourceArns=ids, Tags=tags)
        case _:
            await calls.call("elb", "add_tags", LoadBalancerNames=ids, Tags=tags)


async def _erase(calls: Calls, service: str, value: str, ids: list[str]) -> None:
    """EC2 takes the tag off only where it still has the value; without tags in the request it would take off all."""
    match service:
        case "ec2":
            await calls.call("ec2", "delete_tags", Resources=ids, Tags=[{"Key": RETAINED_TAG, "Value": value}])
        case "elbv2":
            await calls.call("elbv2", "remove_tags", ResourceArns=ids, TagKeys=[RETAINED_TAG])
        case _:
            await calls.call("elb", "remove_tags", LoadBalancerNames=ids, Tags=[{"Key": RETAINED_TAG}])
