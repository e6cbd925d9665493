"""Writer of the tag `knell.dev/retained` on AWS resources, in as few calls as possible; it changes nothing else.
A refused tag is recorded and fails nothing."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from service.contract.kept import RETAINED_TAG, KeptResource
from workers.handlers.aws.errors import AwsError
from workers.handlers.aws.model import Calls, Kind
from workers.handlers.aws.reading.ec2 import chunks

OPERATIONS: Final = ("ec2.CreateTags", "elb.AddTags", "elbv2.AddTags")
"""Everything that may be called here."""

_AT_ONCE: Final = {"ec2": 200, "elbv2": 20, "elb": 1}
"""Resources that one call takes."""

GONE: Final = "gone"
_PASSING: Final = frozenset({"throttled", "unreachable", "unreadable"})
_DENIED_HALVES: Final = 2
"""How often a list is halved for a denial: it may be about one of them, but mostly it is about all."""


async def mark(calls: Calls, resources: Sequence[tuple[Kind, str]], value: str) -> list[KeptResource]:
    """Those that are there, each with what came of its tag. Raises what may pass by itself: AwsError and NoAccess."""
    marked: list[KeptResource] = []
    for service, ids in _by_service(resources):
        names = {one: kind.name for kind, one in resources}
        for part in chunks(ids, _AT_ONCE[service]):
            said = await _tag(calls, service, part, value)
            marked += [KeptResource(names[one], one, said[one]) for one in part if said[one] != GONE]
    return marked


def _by_service(resources: Sequence[tuple[Kind, str]]) -> Iterator[tuple[str, list[str]]]:
    for service in _AT_ONCE:
        if ids := [one for kind, one in resources if kind.service == service]:
            yield service, ids


async def _tag(
    calls: Calls, service: str, ids: list[str], value: str, halves: int = _DENIED_HALVES
) -> dict[str, str]:  # fmt: skip
    """By id: empty where it is tagged, else why it is not. A call is all or nothing: one that is not there any more, or
    can't take another tag, keeps the others of the list from theirs, so that is halved."""
    try:
        await _write(calls, service, ids, value)
    except AwsError as error:
        if error.what in _PASSING:
            raise
        left = halves - (error.what == "denied")
        if len(ids) > 1 and left >= 0:
            half = len(ids) // 2
            first = await _tag(calls, service, ids[:half], value, left)
            return first | await _tag(calls, service, ids[half:], value, left)
        said = GONE if error.what == "gone" else f"not tagged: {error.action}: {error.code}"
        return dict.fromkeys(ids, said)
    return dict.fromkeys(ids, "")


async def _write(calls: Calls, service: str, ids: list[str], value: str) -> None:
    tags: list[dict[str, Any]] = [{"Key": RETAINED_TAG, "Value": value}]
    match service:
        case "ec2":
            await calls.call("ec2", "create_tags", Resources=ids, Tags=tags)
        case "elbv2":
            await calls.call("elbv2", "add_tags", ResourceArns=ids, Tags=tags)
        case _:
            await calls.call("elb", "add_tags", LoadBalancerNames=ids, Tags=tags)
