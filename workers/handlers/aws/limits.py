"""Rate limits of AWS: the token buckets per account and region that each action draws on. Names begin with the region,
because a budget belongs to an account; settings override them by name (`limits`). AWS does not report what is left and
often grants more than it documents, so the rates are learned."""

from collections import Counter
from collections.abc import Iterable
from datetime import timedelta
from functools import lru_cache
from typing import Final

from msgspec.structs import replace

from service.contract import Draw, Limit
from workers.handlers.aws.kinds import KINDS
from workers.handlers.aws.model import PROVIDER, AwsKind

_READ_PREFIXES: Final = ("Describe", "Get", "List", "Search")

# Capacity and refill per second.
_EC2_READS: Final = (100, 20)
_EC2_CHANGES: Final = (50, 5)
# Calls of no kind, and the buckets that the kinds declare.
_EC2: Final = {"ec2.DeleteSnapshot": (100.0, 5.0)} | {
    operation: size for kind in KINDS for operation, size in kind.limits.items()
}
# Classic and other load balancers have separate buckets, and each API has one for all of its calls.
_ELB_READS: Final = (40, 10)
_ELB_CHANGES: Final = (20, 3)
_ELB_ALL: Final = (40, 10)
# AWS documents no figure; every cluster is read by itself, so bursts must be limited.
_EKS_READS: Final = (20, 10)
# At most 15 in any second, however AWS counts: a full bucket plus what is refilled meanwhile.
_TAGGING: Final = (5, 10)

SPARE: Final = 1
"""Tokens left in reserve, because calls of different latency arrive closer together than they were sent."""

CALL_DELAY: Final = 0.75
"""Seconds from the draw of a lane to the arrival of its call, including the reads before it. A full bucket of AWS gains
nothing meanwhile while ours does, so what is refilled in that time must stay in reserve."""

GATHER_TIME: Final = timedelta(seconds=2)
"""How long tokens of an empty bucket for changes are gathered, so that many changes share the reads before them."""


@lru_cache(maxsize=4096)
def limits_of(region: str, operation: str) -> tuple[Draw, ...]:
    """What one call draws on. `operation` is SERVICE.ACTION (ec2.DeleteSecurityGroup, elbv2.DeleteLoadBalancer,
    tag.GetResources, eks.DescribeCluster); other services (sts) have no known limit within our reach."""
    service, _, action = operation.partition(".")
    reads = action.startswith(_READ_PREFIXES)
    match service:
        case "ec2":
            size = _EC2_READS if reads else _EC2.get(operation, _EC2_CHANGES)
            return (_draw(region, operation, size),)
        case "elb" | "elbv2":
            # The scarcer one first: a refusal by AWS is attributed to it.
            own = ("reads", _ELB_READS) if reads else ("changes", _ELB_CHANGES)
            return (_draw(region, f"{service}.{own[0]}", own[1]), _draw(region, f"{service}.all", _ELB_ALL))
        case "tag":
            return (_draw(region, operation, _TAGGING),)
        case "eks" if reads:
            return (_draw(region, operation, _EKS_READS),)
        case _:
            return ()


def lane_draws(lane: str, reads: Iterable[str] = (), *, together: float = 0.0) -> tuple[Draw, ...] | None:
    """What one job of a lane aws/ACCOUNT/REGION/OPERATION draws on: the lane's own call and each of `reads` once. A
    lane named for one of its reads makes no other call. `together` is how many jobs should share the reads when tokens
    are scarce. None if it is no AWS lane."""
    parts = lane.split("/")
    if len(parts) != 4 or parts[0] != PROVIDER:
        return None
    _, _, region, operation = parts
    drawn: dict[str, Draw] = {}
    for one in dict.fromkeys((operation, *reads)):
        for draw in limits_of(region, one):
            before = drawn.get(draw.limit.name)
            drawn[draw.limit.name] = Draw(draw.limit, draw.cost + (before.cost if before else 0.0), together)
    return tuple(drawn.values())


def _calls_by_lane(kind: AwsKind) -> dict[str, Counter[str]]:
    """By lane: the calls of one job when nothing blocks it."""
    lanes = {
        kind.delete_operation: Counter((kind.delete_operation, *kind.read_operations, *kind.lookup_operations)),
        kind.check_operation: Counter((kind.check_operation,)),
    }
    for operation, step in kind.steps.items():
        reads = (*kind.read_operations, *step.read_operations) if step.checks_ownership else step.read_operations
        lanes[operation] = lanes.get(operation, Counter()) | Counter((operation, *reads))
    return lanes


_LANES: Final[dict[str, Counter[str]]] = {}
for _kind in KINDS:
    for _operation, _counted in _calls_by_lane(_kind).items():
        _LANES[_operation] = _LANES.get(_operation, Counter()) | _counted


@lru_cache(maxsize=4096)
def kind_lane_draws(lane: str) -> tuple[Draw, ...] | None:
    """What one job in a lane of a kind draws on: the lane's call and the reads before it, whichever kind the job is of.
    None if no kind has such a lane."""
    parts = lane.split("/")
    if len(parts) != 4 or parts[0] != PROVIDER or parts[3] not in _LANES:
        return None
    _, _, region, operation = parts
    drawn: dict[str, Draw] = {}
    for one in _LANES[operation].elements():
        for draw in limits_of(region, one):
            before = drawn.get(draw.limit.name)
            drawn[draw.limit.name] = draw if before is None else replace(draw, cost=draw.cost + before.cost)
    if not operation.partition(".")[2].startswith("Describe"):
        own = limits_of(region, operation)[0].limit
        together = max(1.0, round(own.capacity * (GATHER_TIME / own.per)))
        # On every limit: if another limit let jobs through one at a time, each would read for itself and draw more.
        return tuple(replace(draw, together=together) for draw in drawn.values())
    return tuple(drawn.values())


def place_of_account(account: str) -> str:
    """The budget that the limits are part of."""
    return f"{PROVIDER}/{account}"


def _draw(region: str, name: str, size: tuple[float, float]) -> Draw:
    capacity, rate = size
    spare = min(capacity / 4, max(SPARE, rate * CALL_DELAY))
    return Draw(Limit.bucket(f"{region}/{name}", capacity, rate, spare=spare, learns=True))
