"""Table of ACK's kinds: how the resource of each is removed, where its object says which one it is, and what its ARN
looks like. A kind without a row is held; a new one is one row."""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

FILE: Final = "workers/collectors/ack/types.py"
CLOUD_CONTROL: Final = "aws.cloud-control"
"""The kind that removes whatever type of CloudFormation it is given: its ids are TYPE/IDENTIFIER."""

WHOLE_ARN: Final = "arn"


class AckType(msgspec.Struct, frozen=True, kw_only=True):
    """How resources of one kind are removed.

    removes: a kind of the AWS provider, or a type of CloudFormation, which Cloud Control removes.
    id: the parts of the identifier, joined by `separator`. A part is `arn` for the whole ARN, or `NAME=PATH`: the text
        that the object has at that path, or that the group NAME of `arn` matches. They must agree.
    arn: SERVICE and what follows the account in its ARN, as a pattern; empty if the object never has an ARN.
    checks: further texts that must agree with a group of `arn`, or with the account.
    prefix: what is left out of a text at its beginning.
    tagged: whether the tags of its resources can be read.
    held: why it is not removed.
    """

    removes: str
    id: tuple[str, ...] = ()
    arn: str = ""
    separator: str = "|"
    checks: tuple[str, ...] = ()
    prefix: str = ""
    tagged: bool = True
    held: str = ""

    @property
    def kind(self) -> str:
        """The kind of the AWS provider."""
        return CLOUD_CONTROL if self.removes.startswith("AWS::") else self.removes


_NAME: Final = "(?P<name>[^/:]+)"
_IAM: Final = r"(?:.+/)?(?P<name>[^/]+)"
_EKS: Final = r"/(?P<cluster>[^/]+)/(?P<name>[^/]+)/[^/]+"


def _by_name(removes: str, arn: str, path: str = "spec.name") -> AckType:
    return AckType(removes=removes, id=(f"name={path}",), arn=arn)


def _by_arn(removes: str, arn: str, *checks: str) -> AckType:
    return AckType(removes=removes, id=(WHOLE_ARN,), arn=arn, checks=checks)


def _by_id(removes: str, path: str, arn: str = "") -> AckType:
    return AckType(removes=removes, id=(f"id={path}",), arn=arn)


def _of_cluster(removes: str, arn: str, separator: str = "|") -> AckType:
    """A reference to the cluster is never stored resolved: then the ARN names it."""
    return AckType(removes=removes, id=("cluster=spec.clusterName", "name=spec.name"), arn=arn, separator=separator)


TYPES: Final[Mapping[str, AckType]] = {
    "acm/Certificate": _by_arn("AWS::CertificateManager::Certificate", "acm:certificate/.+"),
    "apigatewayv2/API": _by_id("AWS::ApiGatewayV2::Api", "status.apiID"),
    "cloudwatchlogs/LogGroup": _by_name("aws.log-group", r"logs:log-group:(?P<name>[^:*]+)(?::\*)?"),
    "documentdb/DBCluster": AckType(
        removes="AWS::DocDB::DBCluster",
        held="Cloud Control can't delete AWS::DocDB::DBCluster, and there is no kind of its own for it",
    ),
    "dynamodb/Table": _by_name("AWS::DynamoDB::Table", f"dynamodb:table/{_NAME}", "spec.tableName"),
    "ec2/ElasticIPAddress": _by_id("aws.elastic-ip", "status.allocationID"),
    "ec2/Instance": _by_id("AWS::EC2::Instance", "status.instanceID"),
    "ec2/InternetGateway": _by_id("AWS::EC2::InternetGateway", "status.internetGatewayID"),
    "ec2/NATGateway": _by_id("aws.nat-gateway", "status.natGatewayID"),
    "ec2/RouteTable": _by_id("AWS::EC2::RouteTable", "status.routeTableID"),
    "ec2/SecurityGroup": _by_id("AWS::EC2::SecurityGroup", "status.id", "ec2:security-group/(?P<id>.+)"),
    "ec2/Subnet": _by_id("AWS::EC2::Subnet", "status.subnetID", "ec2:subnet/(?P<id>.+)"),
    "ec2/VPC": _by_id("AWS::EC2::VPC", "status.vpcID"),
    "ecr/Repository": AckType(
        removes="aws.ecr-repository", id=("name=spec.name",), arn="ecr:repository/(?P<name>.+)",
        checks=("account=spec.registryID",),
    ),
    "efs/FileSystem": _by_id("AWS::EFS::FileSystem", "status.fileSystemID", "elasticfilesystem:file-system/(?P<id>.+)"),
    "eks/Addon": _of_cluster("AWS::EKS::Addon", f"eks:addon{_EKS}"),
    "eks/Cluster": _by_name("AWS::EKS::Cluster", f"eks:cluster/{_NAME}"),
    "eks/FargateProfile": _of_cluster("AWS::EKS::FargateProfile", f"eks:fargateprofile{_EKS}"),
    "eks/Nodegroup": _of_cluster("AWS::EKS::Nodegroup", f"eks:nodegroup{_EKS}", separator="/"),
    "elasticache/ReplicationGroup": _by_name(
        "AWS::ElastiCache::ReplicationGroup", f"elasticache:replicationgroup:{_NAME}", "spec.replicationGroupID"
    ),
    "eventbridge/Rule": _by_arn("AWS::Events::Rule", f"events:rule/(?:(?P<bus>[^/]+)/)?{_NAME}", "name=spec.name"),
    "iam/InstanceProfile": AckType(
        removes="AWS::IAM::InstanceProfile", id=("name=spec.name",), arn=f"iam:instance-profile/{_IAM}", tagged=False
    ),
    "iam/Policy": _by_arn("aws.iam-policy", f"iam:policy/{_IAM}", "name=spec.name"),
    "iam/Role": _by_name("aws.iam-role", f"iam:role/{_IAM}"),
    "iam/User": _by_name("AWS::IAM::User", f"iam:user/{_IAM}"),
    "kafka/Cluster": _by_arn("AWS::MSK::Cluster", "kafka:cluster/(?P<name>[^/]+)/.+", "name=spec.name"),
    "kms/Key": _by_id("aws.kms-key", "status.keyID", "kms:key/(?P<id>.+)"),
    "lambda/Function": _by_name("AWS::Lambda::Function", f"lambda:function:{_NAME}"),
    "memorydb/Cluster": _by_name("AWS::MemoryDB::Cluster", f"memorydb:cluster/{_NAME}"),
    "opensearchservice/Domain": _by_name("AWS::OpenSearchService::Domain", f"es:domain/{_NAME}"),
    "rds/DBCluster": _by_name("aws.rds-cluster", f"rds:cluster:{_NAME}", "spec.dbClusterIdentifier"),
    "rds/DBInstance": _by_name("aws.rds-instance", f"rds:db:{_NAME}", "spec.dbInstanceIdentifier"),
    "route53/HostedZone": AckType(
        removes="AWS::Route53::HostedZone", id=("id=status.id",), prefix="/hostedzone/"
    ),
    "s3/Bucket": _by_name("aws.s3-bucket", f"s3:{_NAME}"),
    "secretsmanager/Secret": _by_arn(
        "aws.secret", r"secretsmanager:secret:(?P<name>.+)-[A-Za-z0-9]{6}", "name=spec.name"
    ),
    "sfn/StateMachine": _by_arn("AWS::StepFunctions::StateMachine", f"states:stateMachine:{_NAME}", "name=spec.name"),
    "sns/Topic": _by_arn("AWS::SNS::Topic", f"sns:{_NAME}", "name=spec.name"),
    "sqs/Queue": AckType(
        removes="AWS::SQS::Queue", id=("url=status.queueURL",), arn=f"sqs:{_NAME}", checks=("name=spec.queueName",)
    ),
}  # fmt: skip
"""By SERVICE/KIND, as in SERVICE.services.k8s.aws and the kind of the object."""


class UnnamedResource(ValueError):
    """The object does not say which resource it means, or contradicts itself; the message says how."""


class ArnParts(NamedTuple):
    """An ARN of the expected type: partition, region and account (empty where the service has none), and the groups of
    the pattern."""

    partition: str
    region: str
    account: str
    groups: Mapping[str, str]


def type_of(service: str, kind: str) -> AckType:
    """Raises UnnamedResource for a kind without a row, or one that is not removed."""
    found = TYPES.get(f"{service}/{kind}")
    if found is None:
        raise UnnamedResource(
            f"{kind} of {service} is not in the table of ACK's kinds: add a line "
            f'"{service}/{kind}": AckType(removes=..., id=..., arn=...) to TYPES in {FILE}'
        )
    if found.held:
        raise UnnamedResource(f"{kind} of {service} is not removed: {found.held}")
    return found


def read_arn(row: AckType, text: str) -> ArnParts:
    """Raises UnnamedResource for a text that is no ARN of the kind's type."""
    if not row.arn:
        raise UnnamedResource(f"its status has the ARN {text}, and resources of {row.removes} get none there")
    wanted, _, pattern = row.arn.partition(":")
    parts = text.split(":", 5)
    if len(parts) != 6 or parts[0] != "arn":
        raise UnnamedResource(f"{text!r} is no ARN")
    _, partition, service, region, account, resource = parts
    match = re.fullmatch(pattern, resource) if service == wanted else None
    if match is None:
        raise UnnamedResource(f"{text} is an ARN of another type than {row.removes}")
    groups = {name: value for name, value in match.groupdict().items() if value}
    return ArnParts(partition, region, account, groups)


def identifier_of(row: AckType, arn: str, account: str, fields: Mapping[str, str]) -> str:
    """The id by which a resource is removed. Raises UnnamedResource if a part is missing, or differs from the ARN."""
    groups: dict[str, str] = {"account": account}
    if arn:
        groups |= read_arn(row, arn).groups
    for check in row.checks:
        _part(row, check, groups, fields, required=False)
    parts = [arn if part == WHOLE_ARN else _part(row, part, groups, fields) for part in row.id]
    if not all(parts):
        raise UnnamedResource("its status has no ARN (status.ackResourceMetadata.arn), by which it is removed")
    if len(parts) > 1 and any(row.separator in part for part in parts):
        raise UnnamedResource(f"a part of {parts} has {row.separator!r} in it, which separates them")
    found = row.separator.join(parts)
    if any(character.isspace() or not character.isprintable() for character in found):
        raise UnnamedResource(f"{found!r} can't be an identifier")
    _check_queue(row, found, account, groups)
    return f"{row.removes}/{found}" if row.kind == CLOUD_CONTROL else found


def _part(
    row: AckType, part: str, groups: Mapping[str, str], fields: Mapping[str, str], *, required: bool = True
) -> str:
    name, _, path = part.partition("=")
    said, of_arn = fields.get(path, "").removeprefix(row.prefix), groups.get(name, "")
    if said and of_arn and said != of_arn:
        raise UnnamedResource(f"{path} is {said!r}, and its ARN or account says {of_arn!r}")
    if required and not (said or of_arn):
        raise UnnamedResource(f"it says neither {path} nor an ARN that names it")
    return said or of_arn


_QUEUE: Final = re.compile(r"https?://[^/]+/(?:queue/)?(?P<account>\d{12})/(?P<name>[^/?#]+)")


def _check_queue(row: AckType, url: str, account: str, groups: Mapping[str, str]) -> None:
    """The URL of a queue names account and queue, as its ARN does."""
    if row.removes != "AWS::SQS::Queue":
        return
    found = _QUEUE.fullmatch(url)
    if found is None or found["account"] != account or groups.get("name", found["name"]) != found["name"]:
        raise UnnamedResource(f"status.queueURL is {url!r}, which is no queue of account {account} with its ARN's name")
