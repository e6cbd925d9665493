"""Settings of the AWS stand-in, all of them changeable while it runs.
Durations are seconds of the stand-in's own clock, except where real seconds are named."""

from typing import Literal

import msgspec

AwsFaultKind = Literal["deny", "throttle", "error", "html", "close", "lost", "slow"]


class AwsFault(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What happens to the requests that it matches, `times` times or always.

    `deny` and `throttle` respond with the error code of the service; `error` with `code`, `status` and `message`;
    `html` with a proxy's page. `close` closes the connection before the request took effect, `lost` after it did.
    `slow` waits for `seconds` (real ones), then the request is handled as usual.

    `deny`, `throttle` and `error` of the action cloudcontrol.Handler end a request of Cloud Control instead: with the
    permission, or the handler's error code, in `code`.
    """

    what: AwsFaultKind
    # As `ec2.DeleteSecurityGroup`, `elbv2.*` or `*`; services are ec2, elb, elbv2, tagging, sts, eks, cloudcontrol, s3,
    # rds, iam, ecr, kms, secretsmanager, logs.
    action: str = "*"
    account: str = ""
    region: str = ""
    # Text that a parameter of the request contains: an id, a name, an ARN.
    about: str = ""
    times: int | None = None
    code: str = ""
    message: str = ""
    status: int = 500
    seconds: float = 0.0


class StrayTagMapping(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A resource that only the tagging API lists: deleted long ago, or with an ARN of unknown format."""

    arn: str
    tags: dict[str, str]
    account: str = ""


class AssumableRole(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Trust policy of a role: the external id that the caller must send, if any, and the principals that may assume it
    (accounts, or ARNs of roles), if any are named."""

    external_id: str = ""
    principals: tuple[str, ...] = ()


class AwsBehaviour(msgspec.Struct, frozen=True, kw_only=True):
    """The defaults are AWS's behaviour with short delays."""

    # AWS's token buckets, per account, region and action.
    buckets: bool = True
    # How long the network interfaces of a deleted load balancer remain; exceptions by the load balancer's name.
    drain: float = 5.0
    drains: dict[str, float] = {}
    # Whether they are missing from describes meanwhile; their security groups still can't be deleted.
    drains_unseen: bool = False
    # How long the tagging API goes on listing deleted resources.
    deleted_listed: float = 60.0
    # How long it does not list new resources.
    created_unlisted: float = 0.0
    strays: tuple[StrayTagMapping, ...] = ()
    # Whether lists of the tagging API that are longer than a page contain a short and an empty page.
    uneven_pages: bool = True
    # Maximum page size of ELB's and of EC2's describes, also for requests without a page size.
    page_size: int = 400
    ec2_page_size: int = 1000
    # How long a NAT gateway, a VPC endpoint and an EKS cluster are `deleting`, and a snapshot is `pending`.
    nat_gateway_goes: float = 5.0
    endpoint_goes: float = 5.0
    eks_cluster_goes: float = 5.0
    snapshot_takes: float = 5.0
    # How long an RDS instance or cluster is `deleting`: at least as long as its final snapshot is made, unless it goes
    # first.
    database_goes: float = 5.0
    database_goes_first: bool = False
    # Whether log groups have deletion protection until it is switched off.
    protected_log_groups: bool = False
    # If set, S3 deletes nothing of what DeleteObjects names, and reports this in XML instead.
    undeletable: str = ""
    # If set, snapshots fail with this message.
    snapshots_fail: str = ""
    # How long a deleted NAT gateway is still described, as `deleted`.
    nat_gateway_shows: float = 3600.0
    # How long a request of Cloud Control takes, and exceptions by type. Until then its resource exists.
    cloud_control_takes: float = 2.0
    cloud_control_times: dict[str, float] = {}
    # If set, how far ahead its status names the time of the next check.
    cloud_control_retry_after: float = 0.0
    # Whether a request for a missing resource is accepted, and fails later; else it is refused.
    cloud_control_accepts_missing: bool = True
    # Whether a repeated client token is a conflict even if it is for the same resource.
    cloud_control_token_conflicts: bool = False
    # If any are given, no other role can be assumed.
    roles: dict[str, AssumableRole] = {}
    faults: tuple[AwsFault, ...] = ()
