"""AWS services that Knell calls, one row each: their names in the SDK, in IAM policies and in limits, paging, rate
limits, tag calls and probes. Paging, limits, permissions and the doctor read these rows; a service without a row can't
be called."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from service.sources.aws import partition_of

FILE: Final = "workers/providers/aws/services.py"

READ_PREFIXES: Final = ("Describe", "Get", "List", "Search")

TAGGING: Final = "resourcegroupstaggingapi"

Bucket = tuple[float, float]
"""Capacity and refill per second."""


class Undeclared(Exception):
    """A service or operation that the rows do not declare; the message says what to add. The call is not made."""


class TagCalls(msgspec.Struct, frozen=True, kw_only=True):
    """How resources of a service are tagged: the operations in snake case, the argument for ids, and how many ids a
    call takes; with `one_id` the argument is a single id, not a list. Where the calls take ARNs and the kind's ids are
    names, `arn` is the ARN with {partition}, {region}, {account} and {id}. `added` and `removed` are the arguments that
    write and remove one tag, by its key and value. The command for a person is in service/sources/aws.py."""

    add: str
    remove: str
    ids: str
    max_ids: int
    one_id: bool = False
    arn: str = ""
    added: Callable[[str, str], dict[str, Any]]
    removed: Callable[[str, str], dict[str, Any]]

    def __post_init__(self) -> None:
        if self.one_id and self.max_ids != 1:
            raise ValueError(f"{self.add} takes one id, so max_ids is 1")

    def name_of(self, one: str, *, region: str, account: str) -> str:
        """What the calls take for the resource with this id."""
        if not self.arn:
            return one
        return self.arn.format(partition=partition_of(region), region=region, account=account, id=one)

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
    reads and one for all changes. `every` is a further bucket for all calls, or the only one; `buckets` has those of
    single operations, beside what the kinds declare. Without a bucket an operation can't be called, unless the service
    is `unlimited`.

    `acronyms` are words of the SDK's names that AWS writes in capitals (`delete_db_instance`: DeleteDBInstance), and
    `iam_actions` the actions of operations that a policy names otherwise, the most telling one first. `untagged` says
    why Knell writes no tags on its resources, where it does not.

    `probes` are reads, in snake case with their arguments, by which the doctor finds missing permissions. In texts
    {account}, {region} and {partition} are replaced.
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
    acronyms: tuple[str, ...] = ()
    iam_actions: Mapping[str, tuple[str, ...]] = {}
    tag_calls: TagCalls | None = None
    untagged: str = ""
    probes: Mapping[str, Mapping[str, Any]] = {}

    def action(self, name: str) -> str:
        """As a policy names it: elasticloadbalancing:DeleteLoadBalancer."""
        return self.actions(name)[0]

    def actions(self, name: str) -> tuple[str, ...]:
        """All that a policy must allow for an operation."""
        return tuple(f"{self.iam}:{one}" for one in self.iam_actions.get(name, (name,)))

    def tagged_by_arn(self, arn: str) -> TagCalls:
        """Its tag calls for a kind with ARNs of this form. Raises Undeclared."""
        return msgspec.structs.replace(_tag_calls_of(self), arn=arn)

    def operation(self, name: str) -> str:
        """As lanes and limits name it: elbv2.DeleteLoadBalancer."""
        return f"{self.limited}.{name}"


def _tags(key: str, value: str) -> dict[str, Any]:
    return {"Tags": [{"Key": key, "Value": value}]}


def _tag_keys(name: str) -> Callable[[str, str], dict[str, Any]]:
    return lambda key, _value: {name: [key]}


_FEW: Final = {"MaxResults": 5}
_DOCTOR: Final = "knell-doctor"
"""Name in probes of what does not exist: not found is a successful answer."""

_NO_KEY: Final = "00000000-0000-0000-0000-000000000000"
_REPOSITORY: Final = "arn:{partition}:ecr:{region}:{account}:repository"
_LOG_GROUP: Final = "arn:{partition}:logs:{region}:{account}:log-group"

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
    # At most 15 in any second, however AWS counts: a full bucket plus what is refilled meanwhile. Changes: 5 a second.
    # It tags by ARN, and needs the tag permission of the service that has the resource as well.
    AwsService(
        name=TAGGING,
        iam="tag",
        limited="tag",
        title="tagging API",
        page_tokens=("PaginationToken", "PaginationToken"),
        reads=(5, 10),
        changes=(2, 3),
        tag_calls=TagCalls(
            add="tag_resources", remove="untag_resources", ids="ResourceARNList", max_ids=20,
            added=lambda key, value: {"Tags": {key: value}}, removed=lambda key, _value: {"TagKeys": [key]},
        ),
        probes={"get_resources": {"ResourcesPerPage": 1}},
    ),
    # AWS documents no figure; about 30 calls a second were measured. Neither probe runs a handler, which would need
    # permissions of another service: there is no such type, and no such request.
    AwsService(
        name="cloudcontrol",
        iam="cloudformation",
        limited="cloudcontrol",
        title="Cloud Control",
        every=(25, 25),
        probes={
            "get_resource": {"TypeName": "Knell::Doctor::Probe", "Identifier": _DOCTOR},
            "get_resource_request_status": {"RequestToken": _DOCTOR},
        },
    ),
    # Far from its limits: its calls are cached, one for each set of credentials.
    AwsService(name="sts", iam="sts", limited="sts", title="STS", unlimited=True),
    # AWS documents 3,500 changes per second and prefix, for objects: a request deletes 1,000 of them. It documents no
    # figure for calls on buckets; theirs are cautious. Lists have two markers each: their first page is read, and again
    # once it was deleted.
    AwsService(
        name="s3",
        iam="s3",
        limited="s3",
        title="S3",
        reads=(20, 10),
        changes=(10, 5),
        buckets={"s3.DeleteObjects": (3, 3), "s3.AbortMultipartUpload": (50, 20)},
        iam_actions={
            "ListBuckets": ("ListAllMyBuckets",),
            "ListObjectVersions": ("ListBucketVersions",),
            "ListMultipartUploads": ("ListBucketMultipartUploads",),
            "DeleteObjects": ("DeleteObjectVersion", "DeleteObject"),
        },
        untagged="the tags of a bucket can only be replaced as a whole, which could undo another's change",
        probes={
            "list_buckets": {"MaxBuckets": 1},
            # Names are global: one that has no other owner.
            "get_bucket_location": {"Bucket": f"{_DOCTOR}-{{account}}"},
            "get_bucket_tagging": {"Bucket": f"{_DOCTOR}-{{account}}"},
        },
    ),
    # AWS documents no figure: cautious. A final snapshot needs the permission to create one.
    AwsService(
        name="rds",
        iam="rds",
        limited="rds",
        title="RDS",
        page_tokens=("Marker", "Marker"),
        reads=(20, 10),
        changes=(10, 2),
        acronyms=("db",),
        iam_actions={
            "DeleteDBInstance": ("DeleteDBInstance", "CreateDBSnapshot"),
            "DeleteDBCluster": ("DeleteDBCluster", "CreateDBClusterSnapshot"),
        },
        tag_calls=TagCalls(
            add="add_tags_to_resource", remove="remove_tags_from_resource", ids="ResourceName", max_ids=1, one_id=True,
            added=_tags, removed=_tag_keys("TagKeys"),
        ),
        probes={"describe_db_instances": {"MaxRecords": 20}, "describe_db_clusters": {"MaxRecords": 20}},
    ),
    # AWS documents no figure, and has one budget for all regions of an account: cautious.
    AwsService(
        name="iam",
        iam="iam",
        limited="iam",
        title="IAM",
        page_tokens=("Marker", "Marker"),
        reads=(20, 5),
        changes=(10, 2),
        probes={"get_role": {"RoleName": _DOCTOR}, "get_policy": {"PolicyArn": "arn:aws:iam::aws:policy/knell-doctor"}},
    ),
    # AWS documents no figure for calls on repositories: cautious.
    AwsService(
        name="ecr",
        iam="ecr",
        limited="ecr",
        title="ECR",
        page_tokens=("nextToken", "nextToken"),
        reads=(10, 5),
        changes=(10, 2),
        tag_calls=TagCalls(
            add="tag_resource", remove="untag_resource", ids="resourceArn", max_ids=1, one_id=True,
            arn=_REPOSITORY + "/{id}",
            added=lambda key, value: {"tags": [{"Key": key, "Value": value}]}, removed=_tag_keys("tagKeys"),
        ),
        probes={
            "describe_repositories": {"maxResults": 1},
            "list_tags_for_resource": {"resourceArn": f"{_REPOSITORY}/{_DOCTOR}"},
        },
    ),
    # AWS documents quotas by operation, the lowest of these 5 per second: below them all.
    AwsService(
        name="kms",
        iam="kms",
        limited="kms",
        title="KMS",
        page_tokens=("NextMarker", "Marker"),
        reads=(10, 5),
        changes=(5, 2),
        tag_calls=TagCalls(
            add="tag_resource", remove="untag_resource", ids="KeyId", max_ids=1, one_id=True,
            added=lambda key, value: {"Tags": [{"TagKey": key, "TagValue": value}]}, removed=_tag_keys("TagKeys"),
        ),
        probes={"describe_key": {"KeyId": _NO_KEY}, "list_resource_tags": {"KeyId": _NO_KEY}},
    ),
    # AWS documents 40 or more per second: below.
    AwsService(
        name="secretsmanager",
        iam="secretsmanager",
        limited="secretsmanager",
        title="Secrets Manager",
        reads=(20, 10),
        changes=(10, 5),
        tag_calls=TagCalls(
            add="tag_resource", remove="untag_resource", ids="SecretId", max_ids=1, one_id=True,
            added=_tags, removed=_tag_keys("TagKeys"),
        ),
        probes={"describe_secret": {"SecretId": _DOCTOR}},
    ),
    # AWS documents 10 per second for lists, and 5 for most changes.
    AwsService(
        name="logs",
        iam="logs",
        limited="logs",
        title="CloudWatch Logs",
        page_tokens=("nextToken", "nextToken"),
        reads=(5, 5),
        changes=(5, 2),
        tag_calls=TagCalls(
            add="tag_resource", remove="untag_resource", ids="resourceArn", max_ids=1, one_id=True,
            arn=_LOG_GROUP + ":{id}",
            added=lambda key, value: {"tags": {key: value}}, removed=_tag_keys("tagKeys"),
        ),
        probes={
            "describe_log_groups": {"limit": 1},
            "list_tags_for_resource": {"resourceArn": f"{_LOG_GROUP}:{_DOCTOR}"},
        },
    ),
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
    return _tag_calls_of(service_named(name))


def _tag_calls_of(service: AwsService) -> TagCalls:
    if service.tag_calls is None:
        raise Undeclared(f"AWS service {service.name!r} has no tag_calls in {FILE}: add how its resources are tagged")
    return service.tag_calls
