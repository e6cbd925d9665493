"""How often AWS lets itself be asked: the token buckets of an account and region that every action draws on.
Names begin with the region, because the budget's place is the account; settings change them by name (limits).
AWS does not report what is left, and often grants an account more than it documents: the rates are learned."""

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from service.contract import Draw, Limit
from workers.handlers.aws.kinds import KINDS
from workers.handlers.aws.model import PROVIDER

_READING: Final = ("Describe", "Get", "List", "Search")

# Capacity and refill per second.
_EC2_READS: Final = (100, 20)
_EC2_CHANGES: Final = (50, 5)
# What is no kind's own call, and what the entries of the kinds say of theirs.
_EC2: Final = {"ec2.DeleteSnapshot": (100.0, 5.0)} | {
    operation: size for kind in KINDS for operation, size in kind.limits.items()
}
# Classic balancers and the others have buckets of their own, and each has one over everything.
_ELB_READS: Final = (40, 10)
_ELB_CHANGES: Final = (20, 3)
_ELB_ALL: Final = (40, 10)
# Nobody names a figure for it; each cluster asks on its own, so that many of them must not come at once.
_EKS_READS: Final = (20, 10)
# At most 15 in any second, however AWS counts them: a full bucket and what flows into it meanwhile make 15.
_TAGGING: Final = (5, 10)

SPARE: Final = 1
"""Calls that take different times on their way arrive closer together than they left; so much room is for that."""

LATE: Final = 0.75
"""Seconds from when a lane draws to when its call arrives, the reads before it included. A bucket of AWS's that was
full gains nothing meanwhile, while ours does: what flows into it in that time must be left."""


@lru_cache(maxsize=4096)
def limits_of(region: str, operation: str) -> tuple[Draw, ...]:
    """What one call draws on. `operation` is SERVICE.ACTION (ec2.DeleteSecurityGroup, elb.DescribeLoadBalancers,
    elbv2.DeleteLoadBalancer, tag.GetResources, eks.DescribeCluster); of others (sts) no limit is known that we could
    reach."""
    service, _, action = operation.partition(".")
    reads = action.startswith(_READING)
    match service:
        case "ec2":
            size = _EC2_READS if reads else _EC2.get(operation, _EC2_CHANGES)
            return (_draw(region, operation, size),)
        case "elb" | "elbv2":
            # The scarcer one first: it is the one that is told of when AWS refuses.
            own = ("reads", _ELB_READS) if reads else ("changes", _ELB_CHANGES)
            return (_draw(region, f"{service}.{own[0]}", own[1]), _draw(region, f"{service}.all", _ELB_ALL))
        case "tag":
            return (_draw(region, operation, _TAGGING),)
        case "eks" if reads:
            return (_draw(region, operation, _EKS_READS),)
        case _:
            return ()


def draws_of_lane(lane: str, reads: Iterable[str] = (), *, together: float = 0.0) -> tuple[Draw, ...] | None:
    """What one job of a lane aws/ACCOUNT/REGION/OPERATION draws on: the call that the lane is named for, and the
    `reads` that go with it, each once. A lane that is named for one of its reads makes no other call. `together` is how
    many jobs should share these reads where tokens are scarce. None: no lane of AWS."""
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


def place_of_account(account: str) -> str:
    """Whose budget the limits are part of."""
    return f"{PROVIDER}/{account}"


def _draw(region: str, name: str, size: tuple[float, float]) -> Draw:
    capacity, rate = size
    spare = min(capacity / 4, max(SPARE, rate * LATE))
    return Draw(Limit.bucket(f"{region}/{name}", capacity, rate, spare=spare, learns=True))
