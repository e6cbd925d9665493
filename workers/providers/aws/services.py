"""AWS services that Knell calls, one row each: their names in the SDK, in IAM policies and in limits, paging, rate
limits, tag calls and probes. Paging, limits, permissions and the doctor read these rows; a service without a row can't
be called."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

FILE: Final = "workers/providers/aws/services.py"

READ_PREFIXES: Final = ("Describe", "Get", "List", "Search")

Bucket = tuple[float, float]
"""Capacity and refill per second."""


class Undeclared(Exception):
    """A service or operation that the rows do not declare; the message says what to add. The call is not made."""


class TagCalls(msgspec.Struct, frozen=True, kw_only=True):
    """How resources of a service are tagged: the operations in snake case, the argument for ids, and how many ids a
    call takes; with `one_id` the argument is a single id, not a list. `added` and `removed` are the arguments that
    write and remove one tag, by its key and value. The command for a person is in service/sources/aws.py."""

    add: str
    remove: str
    ids: str
    max_ids: int
    one_id: bool = False
    added: Callable[[str, str], dict[str, Any]]
    removed: Callable[[str, str], dict[str, Any]]

    def __post_init__(self) -> None:
        if self.one_id and self.max_ids != 1:
            raise ValueError(f"{self.add} takes one id, so max_ids is 1")

    def add_arguments(self, ids: Sequence[str], key: str, value: str) -> dict[str, Any]:
        return {**self._ids(ids), **self.added(key, value)}

    def remove_arguments(self, ids: Sequence[str], key: str, value: str) -> dict[str, Any]:
        return {**self._ids(ids), **self.removed(key, value)}

    def _ids(self, ids: Sequence[str]) -> dict[str, Any]:
        return {self.ids: ids[0] if self.one_id else list(ids)}


class AwsService(msgspec.Struct, frozen=True, kw_only=True):
    """`name` is the SDK's, `iam` the prefix of actions in policies, `limited` the one in lanes and limits, `title` is
    for people. `page_tokens` are the names of the page token in a response and in the next request; without them the
    service has no lists.

    `reads` and `changes` are the buckets that its calls draw on: one for each operation, or with `shared` one for all
    reads and one for all changes. `every` is a further bucket for all calls, `buckets` has those of single operations,
    beside what the kinds declare. Without a bucket an operation can't be called, unless the service is `unlimited`.

    `probes` are reads, in snake case with their arguments, by which the doctor finds missing permissions.
    """

    name: str
    iam: str
    limited: str
    title: str
    page_tokens: tuple[str, str] | None = None
    reads: Bucket | None = None
    changes: Bucket | None = None
    shared: bool = False
    every: Bucket | None = None
    buckets: Mapping[str, Bucket] = {}
    unlimited: bool = False
    tag_calls: TagCalls | None = None
    probes: Mapping[str, Mapping[str, Any]] = {}

    def action(self, name: str) -> str:
        """As a policy names it: elasticloadbalancing:DeleteLoadBalancer."""
        return f"{self.iam}:{name}"

    def operation(self, name: str) -> str:
        """As lanes and limits name it: elbv2.DeleteLoadBalancer."""
        return f"{self.limited}.{name}"


def _tags(key: str, value: str) -> dict[str, Any]:
    return {"Tags": [{"Key": key, "Value": value}]}


_FEW: Final = {"MaxResults": 5}

SERVICES: Final[tuple[AwsService, ...]] = (
    AwsService(
        name="ec2",
        iam="ec2",
        limited="ec2",
        title="EC2",
        page_tokens=("NextToken", "NextToken"),
        reads=(100, 20),
        changes=(50, 5),
        buckets={"ec2.DeleteSnapshot": (100, 5)},
        # EC2 removes the tag only where it still has the value; a request without tags would remove all of them.
        tag_calls=TagCalls(
            add="create_tags", remove="delete_tags", ids="Resources", max_ids=200, added=_tags, removed=_tags,
        ),
        probes={
            "describe_vpcs": _FEW,
            "describe_instances": _FEW,
            "describe_security_groups": _FEW,
            "describe_security_group_rules": _FEW,
            "describe_network_interfaces": _FEW,
            "describe_volumes": _FEW,
            "describe_snapshots": {**_FEW, "OwnerIds": ["self"]},
            "describe_addresses": {},
            "describe_nat_gateways": _FEW,
            "describe_vpc_endpoints": _FEW,
        },
    ),
    # Classic and other load balancers have separate buckets, and each API has one for all of its calls.
    AwsService(
        name="elbv2",
        iam="elasticloadbalancing",
        limited="elbv2",
        title="ELB",
        page_tokens=("NextMarker", "Marker"),
        reads=(40, 10),
        changes=(20, 3),
        shared=True,
        every=(40, 10),
        tag_calls=TagCalls(
            add="add_tags", remove="remove_tags", ids="ResourceArns", max_ids=20, added=_tags,
            removed=lambda key, _value: {"TagKeys": [key]},
        ),
        probes={"describe_load_balancers": {"PageSize": 1}, "describe_target_groups": {"PageSize": 1}},
    ),
    AwsService(
        name="elb",
        iam="elasticloadbalancing",
        limited="elb",
        title="classic ELB",
        page_tokens=("NextMarker", "Marker"),
        reads=(40, 10),
        changes=(20, 3),
        shared=True,
        every=(40, 10),
        tag_calls=TagCalls(
            add="add_tags", remove="remove_tags", ids="LoadBalancerNames", max_ids=1, added=_tags,
            removed=lambda key, _value: {"Tags": [{"Key": key}]},
        ),
        # Classic and other load balancers share the action of DescribeTags. Not found is a successful answer.
        probes={
            "describe_load_balancers": {"PageSize": 1},
            "describe_tags": {"LoadBalancerNames": ["knell-doctor"]},
        },
    ),
    # AWS documents no figure; every cluster is read by itself, so bursts must be limited.
    AwsService(
        name="eks",
        iam="eks",
        limited="eks",
        title="EKS",
        page_tokens=("nextToken", "nextToken"),
        reads=(20, 10),
        # Not found is a successful answer.
        probes={"describe_cluster": {"name": "knell-doctor"}},
    ),
    # At most 15 in any second, however AWS counts: a full bucket plus what is refilled meanwhile.
    AwsService(
        name="resourcegroupstaggingapi",
        iam="tag",
        limited="tag",
        title="tagging API",
        page_tokens=("PaginationToken", "PaginationToken"),
        reads=(5, 10),
        probes={"get_resources": {"ResourcesPerPage": 1}},
    ),
    # Far from its limits: its calls are cached, one for each set of credentials.
    AwsService(name="sts", iam="sts", limited="sts", title="STS", unlimited=True),
)  # fmt: skip

_BY_NAME: Final = {one.name: one for one in SERVICES}
_BY_LIMITED: Final = {one.limited: one for one in SERVICES}


def service_named(name: str) -> AwsService:
    """By the SDK's name. Raises Undeclared."""
    found = _BY_NAME.get(name)
    if found is None:
        raise Undeclared(f"AWS service {name!r} has no row in {FILE}: add its names, paging and limits there")
    return found


def service_of(operation: str) -> tuple[AwsService, str]:
    """The service and the action of an operation such as `elbv2.DeleteLoadBalancer`. Raises Undeclared."""
    limited, _, action = operation.partition(".")
    found = _BY_LIMITED.get(limited)
    if found is None or not action:
        raise Undeclared(f"AWS operation {operation!r} is of no service in {FILE}: add a row for it there")
    return found, action


def is_read(operation: str) -> bool:
    """Whether an operation such as `ec2.DescribeVolumes` changes nothing."""
    return operation.partition(".")[2].startswith(READ_PREFIXES)


def page_tokens_of(name: str) -> tuple[str, str]:
    """By the SDK's name of the service. Raises Undeclared."""
    tokens = service_named(name).page_tokens
    if tokens is None:
        raise Undeclared(f"AWS service {name!r} has no page_tokens in {FILE}: add them, if it has lists")
    return tokens


def tag_calls_of(name: str) -> TagCalls:
    """By the SDK's name of the service. Raises Undeclared."""
    calls = service_named(name).tag_calls
    if calls is None:
        raise Undeclared(f"AWS service {name!r} has no tag_calls in {FILE}: add how its resources are tagged")
    return calls
