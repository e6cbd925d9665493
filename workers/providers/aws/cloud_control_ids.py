"""Ids of resources that are removed through Cloud Control: TYPE/IDENTIFIER, as in AWS::SQS::Queue/https://sqs...
Says also which types are not removed this way, and which identifiers name another account or region than the one that
is asked, whose answer would prove nothing."""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from service.sources.aws import partition_of

LONGEST_IDENTIFIER: Final = 1024

_TYPE: Final = re.compile(r"[A-Za-z0-9]{2,64}(?:::[A-Za-z0-9]{2,64}){2}")
_QUEUE_URL: Final = re.compile(r"https?://(?:sqs\.([a-z0-9-]+)|([a-z0-9-]+)\.queue)\.amazonaws\.com(?:\.cn)?/(.*)")
_ACCOUNT: Final = re.compile(r"\d{12}")

_EC2: Final = {
    "EIP": "elastic-ip", "Instance": "instance", "InternetGateway": "internet-gateway", "NatGateway": "natgateway",
    "RouteTable": "route-table", "SecurityGroup": "security-group", "Subnet": "subnet", "VPC": "vpc",
}  # fmt: skip
# Of types without an ARN among their properties; the id is the last part of the identifier.
_ARNS: Final[Mapping[str, str]] = {
    **{f"AWS::EC2::{name}": f"ec2:{{region}}:{{account}}:{type_}/{{id}}" for name, type_ in _EC2.items()},
    "AWS::ApiGatewayV2::Api": "apigateway:{region}::/apis/{id}",
    "AWS::ElastiCache::ReplicationGroup": "elasticache:{region}:{account}:replicationgroup:{id}",
    "AWS::Route53::HostedZone": "route53:::hostedzone/{id}",
}

_KEEPS_NOTHING: Final = "its handler deletes it at once, without the window in which it can be restored"
_SNAPSHOT: Final = "its handler takes a final snapshot unasked"

REFUSED_TYPES: Final[Mapping[str, str]] = {
    "AWS::SecretsManager::Secret": _KEEPS_NOTHING,
    "AWS::KMS::Key": "its handler can't be given the window in which the deletion can be cancelled",
    "AWS::RDS::DBInstance": _SNAPSHOT,
    "AWS::RDS::DBCluster": _SNAPSHOT,
    "AWS::DocDB::DBCluster": "it has no handlers",
    "AWS::S3::Bucket": "its handler fails while it has objects, and a bucket of another region is an error",
    "AWS::ECR::Repository": "its handler fails while it has images",
    "AWS::IAM::Role": "its handler fails while policies are attached",
    "AWS::IAM::ManagedPolicy": "its handler detaches it from every role, user and group, whoever owns those",
    "AWS::Logs::LogGroup": "those that still write to it create it again",
}
"""By type: why it is not removed through Cloud Control."""

NOTES: Final[Mapping[str, str]] = {
    "AWS::ElastiCache::ReplicationGroup": "AWS may leave a final snapshot of it",
}
"""By type: what the deletion may leave, for the audit. An unwanted snapshot loses nothing."""


class CloudControlId(NamedTuple):
    """The type's name, and the primary identifier as Cloud Control takes it: parts joined by `|`."""

    type: str
    identifier: str

    def __str__(self) -> str:
        return f"{self.type}/{self.identifier}"


def cloud_control_id(type_: str, identifier: str) -> str:
    """The id of a target. Raises ValueError for a type or an identifier of another form."""
    id_ = str(CloudControlId(type_, identifier))
    if split_cloud_control_id(id_) != (type_, identifier):
        raise ValueError(f"{id_!r} is not TYPE/IDENTIFIER")
    return id_


def split_cloud_control_id(id_: str) -> CloudControlId:
    """Raises ValueError."""
    type_, slash, identifier = id_.partition("/")
    if not slash or not _TYPE.fullmatch(type_):
        raise ValueError(f"{id_[:200]!r} does not begin with a type such as AWS::SQS::Queue and a slash")
    if not identifier or len(identifier) > LONGEST_IDENTIFIER:
        raise ValueError(f"the identifier of {type_} has {len(identifier)} characters, not 1 to {LONGEST_IDENTIFIER}")
    if not identifier.isprintable() or identifier != identifier.strip():
        raise ValueError(f"the identifier of {type_} has control characters or white space around it")
    return CloudControlId(type_, identifier)


def refusal(id_: CloudControlId, account: str, region: str) -> str:
    """Why nothing is asked about it in that account and region; empty if it can be."""
    if (why := REFUSED_TYPES.get(id_.type)) is not None:
        return f"{id_.type} is not removed through Cloud Control: {why}"
    for part in id_.identifier.split("|"):
        named_account, named_region = _place_of(part)
        if named_region and named_region != region:
            return f"{part} is in region {named_region}, and its owner's is {region}"
        if named_account and named_account != account:
            return f"{part} is of account {named_account}, and its owner of {account}"
    return ""


def arn_of(id_: CloudControlId, account: str, region: str) -> str:
    """Its ARN, where the identifier is one or it can be made of the identifier; else empty."""
    parts = id_.identifier.split("|")
    if parts[0].startswith("arn:"):
        return parts[0] if len(parts) == 1 else ""
    if (form := _ARNS.get(id_.type)) is None:
        return ""
    return f"arn:{partition_of(region)}:{form.format(account=account, region=region, id=parts[-1])}"


def _place_of(identifier: str) -> tuple[str, str]:
    """The account and region that a part of an identifier names; empty where it names none."""
    fields = identifier.split(":", 5)
    if len(fields) == 6 and fields[0] == "arn":
        return fields[4], fields[3]
    if (url := _QUEUE_URL.fullmatch(identifier)) is not None:
        account = url[3].partition("/")[0]
        return account if _ACCOUNT.fullmatch(account) else "", url[1] or url[2]
    return "", ""
