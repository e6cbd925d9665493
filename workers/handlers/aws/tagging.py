"""Asks the tagging API which resources carry a cluster's tag, and tells by their ARNs what they are.
Its answers are hints: some are long deleted, and of some nobody knows what they are."""

from collections.abc import Collection, Sequence
from typing import Any, Final

import structlog

from workers.handlers.aws.errors import NO_ANSWER, AwsError
from workers.handlers.aws.kinds import KINDS, kind_of_arn
from workers.handlers.aws.model import Calls, Kind, Owner
from workers.handlers.aws.ownership import mark_of

log = structlog.get_logger(__name__)

TAGGING: Final = "resourcegroupstaggingapi"
PAGE: Final = 100
TYPES: Final = frozenset(kind.arn for kind in KINDS)
ABSENT: Final = frozenset({"UnknownEndpoint", "UnknownOperationException", "InvalidAction"})
"""Codes by which a region says that it has no such service, or not for us."""


class Paid:
    """Calls of which a lane has drawn for one."""

    def __init__(self, calls: Calls) -> None:
        self._calls: Calls | None = calls

    def take(self) -> Calls | None:
        """Once; who takes it makes the call."""
        taken, self._calls = self._calls, None
        return taken

    def lapses(self) -> bool:
        """Whether nobody has taken it; from now on nobody does."""
        return self.take() is not None


class Refill(Exception):
    """The call that had been paid for was refused for want of quota."""

    def __init__(self, error: AwsError) -> None:
        super().__init__(str(error))
        self.error = error


def away(error: AwsError) -> bool:
    """A proxy that lets nobody through answers in the service's place; a list with a fault of its own is no such
    thing."""
    return error.what in ("denied", "unreachable") or error.code in ABSENT or error.code == NO_ANSWER


async def tagged(owner: Owner, calls: Calls, paid: Paid | None) -> list[str]:
    """All pages; one may be short or empty while more follow."""
    key, value = mark_of(owner)
    asked: dict[str, Any] = {"TagFilters": [{"Key": key, "Values": [value]}], "ResourcesPerPage": PAGE}
    arns: dict[str, None] = {}
    tokens = set[str]()
    while True:
        drawn = paid.take() if paid is not None else None
        try:
            answer = await (drawn or calls).call(TAGGING, "get_resources", **asked)
        except AwsError as error:
            if drawn is not None and error.what == "throttled":
                raise Refill(error) from None
            raise
        found = answer.get("ResourceTagMappingList")
        if found is None:
            raise AwsError("unreadable", "tag:GetResources", "NoList", "an answer without a list is no empty list")
        arns |= dict.fromkeys(str(one["ResourceARN"]) for one in found)
        token = str(answer.get("PaginationToken") or "")
        if not token:
            return list(arns)
        if token in tokens:
            raise AwsError("unreadable", "tag:GetResources", "PaginationLoop", "a page leads back to one before it")
        tokens.add(token)
        asked["PaginationToken"] = token


def by_kind(arns: Collection[str], kinds: Sequence[Kind], owner: Owner, odd: list[str]) -> dict[str, list[str]]:
    """Ids by kind, of the kinds that are wanted; what is not to be understood is reported, and left."""
    wanted, found = {kind.name for kind in kinds}, dict[str, list[str]]()
    for arn in arns:
        parsed = kind_of_arn(arn)
        parts = arn.split(":", 5)
        if parsed is None:
            # All others are well formed, and of kinds that are not ours: subnets, instances, listeners.
            if len(parts) != 6 or parts[0] != "arn" or (parts[2], parts[5].partition("/")[0]) in TYPES:
                odd.append(arn)
            continue
        kind, one = parsed
        if parts[3:5] != [owner.whose.region, owner.account]:
            odd.append(arn)
        elif kind.name in wanted:
            found.setdefault(kind.name, []).append(one)
    if odd:
        log.warning("ARNs that can't be understood are left", cluster=owner.name, account=owner.account, arns=odd)
    return found
