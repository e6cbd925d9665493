"""How the stand-in for AWS behaves, all of it changeable while it runs.
Durations are seconds of the stand-in's own clock, except where it is said that they are real ones."""

from typing import Literal

import msgspec

Trouble = Literal["deny", "throttle", "error", "html", "close", "lost", "slow"]


class Fault(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What happens to the requests it matches, `times` times or for good.

    `deny` and `throttle` answer with the code that the service has for it; `error` with `code`, `status` and `message`;
    `html` with a proxy's page instead of what was asked for. `close` ends the connection before anything was done,
    `lost` after it was done. `slow` waits for `seconds` (real ones) and then goes on as if nothing was.
    """

    what: Trouble
    # As `ec2.DeleteSecurityGroup`, `elbv2.*` or `*`; services are ec2, elb, elbv2, tagging, sts, eks.
    action: str = "*"
    account: str = ""
    region: str = ""
    # Must stand in a value of the request: an id, a name, an ARN.
    about: str = ""
    times: int | None = None
    code: str = ""
    message: str = ""
    status: int = 500
    seconds: float = 0.0


class Stray(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the tagging API lists although no service knows it: long deleted, or with an ARN that nobody can read."""

    arn: str
    tags: dict[str, str]
    account: str = ""


class Role(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who may assume a role: with an external id only who says it, with principals only those (an account, or the ARN
    of the role that the caller is)."""

    external_id: str = ""
    principals: tuple[str, ...] = ()


class Behaviour(msgspec.Struct, frozen=True, kw_only=True):
    """The defaults are AWS's own manners with short times."""

    # AWS's token buckets, per account, region and action.
    buckets: bool = True
    # How long a balancer's interfaces stay after it is gone; by the balancer's name where it differs.
    drain: float = 5.0
    drains: dict[str, float] = {}
    # No describe shows them meanwhile, but groups can't be deleted.
    drains_unseen: bool = False
    # How long the tagging API goes on listing what was deleted.
    ghosts: float = 60.0
    # How long it does not list what was just made.
    unlisted: float = 0.0
    strays: tuple[Stray, ...] = ()
    # Lists of the tagging API that are longer than a page have a short page and an empty one among them.
    uneven_pages: bool = True
    # The largest page of ELB's describes and of EC2's, also for who names no size.
    page_size: int = 400
    ec2_page_size: int = 1000
    # How long a NAT gateway, a VPC endpoint and an EKS cluster are `deleting`, and a snapshot `pending`.
    nat_gateway_goes: float = 5.0
    endpoint_goes: float = 5.0
    eks_cluster_goes: float = 5.0
    snapshot_takes: float = 5.0
    # Why no snapshot is ever completed.
    snapshots_fail: str = ""
    # How long a NAT gateway that is gone still shows, as `deleted`.
    nat_gateway_shows: float = 3600.0
    # When there are any, no other role can be assumed.
    roles: dict[str, Role] = {}
    faults: tuple[Fault, ...] = ()
