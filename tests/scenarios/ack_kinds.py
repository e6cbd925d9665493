"""Registry of ACK's kinds for scenarios: those that Knell removes in a way of its own, and three that Cloud Control
removes. A row says what an object says of its resource, and how the resource's tags are read; the rest is in the
registries of the provider's kinds."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from service.sources.ack import CONTROLLER_TAG, NAMESPACE_TAG
from standins.aws import LocalAws
from standins.aws.builder import REGION, AwsBuilder, Vpc
from standins.aws.tags import Tags
from tests.ack import BUCKETS, QUEUES, ack_crd, status
from tests.aws import AwsTestAccount
from tests.aws_identifier_kinds import IDENTIFIER_ROWS
from tests.cloud_control_types import CLOUD_CONTROL_TYPES, NewByIdentifier
from tests.kube import Crd
from workers.providers.aws.cloud_control_ids import cloud_control_id
from workers.providers.aws.kinds.cloud_control import CLOUD_CONTROL, DELETE


class Named(NamedTuple):
    """What an object says of its resource."""

    arn: str
    spec: dict[str, str]
    fields: dict[str, str]


class AckKind(NamedTuple):
    """`removes` is a kind of the provider or a type of Cloud Control; `named` gets the account and the resource's id.
    `tags` reads the tags that a resource has; None where they can only be replaced as a whole."""

    crd: Crd
    removes: str
    named: Callable[[str, str], Named]
    tags: Callable[[AwsBuilder, str, Named], Awaitable[dict[str, str]]] | None

    @property
    def service(self) -> str:
        return self.crd.group.partition(".")[0]

    @property
    def by_cloud_control(self) -> bool:
        return self.removes in CLOUD_CONTROL_TYPES

    @property
    def delete_operation(self) -> str:
        return DELETE if self.by_cloud_control else IDENTIFIER_ROWS[self.removes].delete_operation

    @property
    def provider_kind(self) -> str:
        return CLOUD_CONTROL.name if self.by_cloud_control else self.removes

    def target(self, id_: str) -> str:
        return cloud_control_id(self.removes, id_) if self.by_cloud_control else id_


class AckResource(NamedTuple):
    """One resource in the account of `builder`."""

    kind: AckKind
    builder: AwsBuilder
    id: str

    @property
    def named(self) -> Named:
        return self.kind.named(self.builder.account, self.id)

    @property
    def status(self) -> dict[str, Any]:
        return status(self.named.arn, account=self.builder.account, region=REGION, **self.named.fields)

    async def exists(self) -> bool:
        if not self.kind.by_cloud_control:
            return await IDENTIFIER_ROWS[self.kind.removes].exists(self.builder, self.id)
        control = await self.builder.client("cloudcontrol")
        try:
            await control.get_resource(TypeName=self.kind.removes, Identifier=self.id)
        except control.exceptions.ResourceNotFoundException:
            return False
        return True

    async def tags(self) -> dict[str, str]:
        assert self.kind.tags is not None
        return await self.kind.tags(self.builder, self.id, self.named)


def own_tags(kind: AckKind, namespace: str) -> Tags:
    """As ACK writes them."""
    return {NAMESPACE_TAG: namespace, CONTROLLER_TAG: f"{kind.service}-v1.0.0"}


async def make(kind: AckKind, aws: LocalAws, builder: AwsBuilder, name: str, tags: Tags) -> AckResource:
    """Types of Cloud Control choose a name themselves."""
    if not kind.by_cloud_control:
        return AckResource(kind, builder, await IDENTIFIER_ROWS[kind.removes].create(builder, name, tags))
    account = AwsTestAccount(aws, builder, 0)
    async with account.open:
        new = NewByIdentifier(account, Vpc(id="", subnets=()), tags)
        return AckResource(kind, builder, await CLOUD_CONTROL_TYPES[kind.removes](new))


# ---- tags


def _read(service: str, operation: str, argument: str, key: str) -> Callable[..., Awaitable[dict[str, str]]]:
    """`argument` is NAME=arn or NAME=id."""
    name, _, what = argument.partition("=")

    async def read(builder: AwsBuilder, id_: str, named: Named) -> dict[str, str]:
        given = named.arn.removesuffix(":*") if what == "arn" else id_
        answer = await getattr(await builder.client(service), operation)(**{name: given})
        found = answer.get(key) or {}
        if isinstance(found, Mapping):
            return dict(found)
        return {one.get("Key") or one["TagKey"]: one.get("Value") or one.get("TagValue", "") for one in found}

    return read


def _controlled(type_: str) -> Callable[..., Awaitable[dict[str, str]]]:
    async def read(builder: AwsBuilder, id_: str, _named: Named) -> dict[str, str]:
        answer = await (await builder.client("cloudcontrol")).get_resource(TypeName=type_, Identifier=id_)
        properties = msgspec.json.decode(answer["ResourceDescription"]["Properties"])
        return {one["Key"]: one["Value"] for one in properties.get("Tags", ())}

    return read


# ---- kinds


def _at(service: str, resource: str) -> Callable[[str, str], str]:
    return lambda account, id_: f"arn:aws:{service}:{REGION}:{account}:{resource}{id_}"


def _by_name(arn: Callable[[str, str], str], field: str = "name") -> Callable[[str, str], Named]:
    return lambda account, id_: Named(arn(account, id_), {field: id_}, {})


_rds_tags: Final = _read("rds", "list_tags_for_resource", "ResourceName=arn", "TagList")

_KINDS: Final = (
    AckKind(BUCKETS, "aws.s3-bucket", _by_name(lambda _, id_: f"arn:aws:s3:::{id_}"), None),
    AckKind(
        ack_crd("rds", "dbinstances", "DBInstance", "spec.dbInstanceIdentifier"), "aws.rds-instance",
        _by_name(_at("rds", "db:"), "dbInstanceIdentifier"), _rds_tags,
    ),
    AckKind(
        ack_crd("rds", "dbclusters", "DBCluster", "spec.dbClusterIdentifier"), "aws.rds-cluster",
        _by_name(_at("rds", "cluster:"), "dbClusterIdentifier"), _rds_tags,
    ),
    AckKind(
        ack_crd("iam", "roles", "Role", "spec.name"), "aws.iam-role",
        _by_name(lambda account, id_: f"arn:aws:iam::{account}:role/{id_}"),
        _read("iam", "list_role_tags", "RoleName=id", "Tags"),
    ),
    AckKind(
        ack_crd("iam", "policies", "Policy", "spec.name"), "aws.iam-policy",
        lambda _, id_: Named(id_, {"name": id_.rpartition("/")[2]}, {}),
        _read("iam", "list_policy_tags", "PolicyArn=id", "Tags"),
    ),
    AckKind(
        ack_crd("ecr", "repositories", "Repository", "spec.name", "spec.registryID"), "aws.ecr-repository",
        _by_name(_at("ecr", "repository/")),
        _read("ecr", "list_tags_for_resource", "resourceArn=arn", "tags"),
    ),
    AckKind(
        ack_crd("kms", "keys", "Key", "status.keyID"), "aws.kms-key",
        lambda account, id_: Named(_at("kms", "key/")(account, id_), {}, {"keyID": id_}),
        _read("kms", "list_resource_tags", "KeyId=id", "Tags"),
    ),
    AckKind(
        ack_crd("secretsmanager", "secrets", "Secret", "spec.name", "status.id"), "aws.secret",
        lambda _, id_: Named(id_, {"name": id_.rpartition(":")[2].rpartition("-")[0]}, {"id": id_}),
        _read("secretsmanager", "describe_secret", "SecretId=id", "Tags"),
    ),
    AckKind(
        ack_crd("cloudwatchlogs", "loggroups", "LogGroup", "spec.name"), "aws.log-group",
        _by_name(lambda account, id_: f"{_at('logs', 'log-group:')(account, id_)}:*"),
        _read("logs", "list_tags_for_resource", "resourceArn=arn", "tags"),
    ),
    AckKind(
        QUEUES, "AWS::SQS::Queue",
        lambda account, id_: Named(
            _at("sqs", "")(account, id_.rpartition("/")[2]), {"queueName": id_.rpartition("/")[2]}, {"queueURL": id_}
        ),
        _controlled("AWS::SQS::Queue"),
    ),
    AckKind(
        ack_crd("sns", "topics", "Topic", "spec.name"), "AWS::SNS::Topic",
        lambda _, id_: Named(id_, {"name": id_.rpartition(":")[2]}, {}), _controlled("AWS::SNS::Topic"),
    ),
    AckKind(
        ack_crd("dynamodb", "tables", "Table", "spec.tableName"), "AWS::DynamoDB::Table",
        _by_name(_at("dynamodb", "table/"), "tableName"),
        _controlled("AWS::DynamoDB::Table"),
    ),
)  # fmt: skip
ACK_KINDS: Final[Mapping[str, AckKind]] = {row.crd.kind: row for row in _KINDS}
"""By the kind of the object."""
