"""ARNs of the resources with a cluster's tag, by the Resource Groups Tagging API, sorted by kind. Its results are
hints: some resources are long deleted, and some ARNs are of unknown kinds."""

from collections.abc import Collection, Sequence
from typing import Any, Final

import structlog

from workers.collectors.capa.claim import CapaClaim
from workers.collectors.capa.kinds import CAPA_KINDS
from workers.collectors.capa.ownership import owner_tag
from workers.providers.aws.arns import split_arn
from workers.providers.aws.errors import NOT_FROM_AWS, AwsError
from workers.providers.aws.kinds import kind_of_arn
from workers.providers.aws.kinds.declaration import AwsKind
from workers.providers.aws.model import AwsClient

log = structlog.get_logger(__name__)

TAGGING: Final = "resourcegroupstaggingapi"
PAGE_SIZE: Final = 100
KINDS: Final = tuple(row.kind for row in CAPA_KINDS.values())
ABSENT_CODES: Final = frozenset({"UnknownEndpoint", "UnknownOperationException", "InvalidAction"})
"""Codes of a region that does not offer the service, or not to this account."""


def is_unavailable(error: AwsError) -> bool:
    """Whether to use describe calls instead; also if a proxy answers in place of the service. A defective list does not
    count."""
    return error.what in ("denied", "unreachable") or error.code in ABSENT_CODES or error.code == NOT_FROM_AWS


async def tagged_arns(claim: CapaClaim, client: AwsClient) -> list[str]:
    """Reads all pages; one may be short or empty while more follow."""
    key, value = owner_tag(claim)
    asked: dict[str, Any] = {"TagFilters": [{"Key": key, "Values": [value]}], "ResourcesPerPage": PAGE_SIZE}
    arns: dict[str, None] = {}
    tokens = set[str]()
    while True:
        answer = await client.call(TAGGING, "get_resources", **asked)
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


def ids_by_kind(
    arns: Collection[str], kinds: Sequence[AwsKind], claim: CapaClaim, odd: list[str]
) -> dict[str, list[str]]:
    """Ids of the requested kinds; ARNs that can't be parsed are reported and left."""
    wanted, found = {kind.name for kind in kinds}, dict[str, list[str]]()
    for arn in arns:
        parsed, parts = kind_of_arn(arn, KINDS), split_arn(arn)
        if parsed is None or parts is None:
            # All others are well formed and of other kinds: subnets, instances, listeners.
            if parts is None or any(kind.arn_of_type(arn) is not None for kind in KINDS):
                odd.append(arn)
            continue
        kind, one = parsed
        if (parts.region, parts.account) != (claim.scope.region, claim.account):
            odd.append(arn)
        elif kind.name in wanted:
            found.setdefault(kind.name, []).append(one)
    if odd:
        log.warning("ARNs that can't be understood are left", cluster=claim.name, account=claim.account, arns=odd)
    return found
