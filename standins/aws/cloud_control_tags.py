"""Tag calls of the stand-in for the resource types of Cloud Control: TagResources and UntagResources of the tagging
API, and what moto lacks of IAM. What could not be tagged is reported in a successful answer, as at AWS."""

from collections.abc import Iterator
from typing import Any, Final

from standins.aws.calls import AwsCall
from standins.aws.cloud_control_types import TYPES, CloudControlType
from standins.aws.responses import AwsResponse, failed, succeeded, succeeded_in_json

_MOST: Final = 20
_EC2: Final = {
    "EIP": "elastic-ip", "Instance": "instance", "InternetGateway": "internet-gateway", "NatGateway": "natgateway",
    "RouteTable": "route-table", "SecurityGroup": "security-group", "Subnet": "subnet", "VPC": "vpc",
}  # fmt: skip
# ARNs of types whose properties have none, after the partition.
_ARNS: Final = {
    **{f"AWS::EC2::{name}": f"ec2:{{region}}:{{account}}:{type_}/{{key}}" for name, type_ in _EC2.items()},
    "AWS::ApiGatewayV2::Api": "apigateway:{region}::/apis/{key}",
    "AWS::CertificateManager::Certificate": "{key}",
    "AWS::ElastiCache::ReplicationGroup": "elasticache:{region}:{account}:replicationgroup:{key}",
    "AWS::Route53::HostedZone": "route53:::hostedzone/{key}",
    "AWS::SNS::Topic": "{key}",
}


def retag(call: AwsCall) -> AwsResponse:
    arns = call.params.get("ResourceARNList") or []
    if not 1 <= len(arns) <= _MOST:
        return failed(call, "InvalidParameterException", f"ResourceARNList must have 1 to {_MOST} entries")
    refused: dict[str, dict[str, Any]] = {}
    for arn in arns:
        found = next(_of_arn(call, arn), None)
        if found is None:
            said = "The resource was not found, or its type is not supported"
            refused[arn] = {"StatusCode": 400, "ErrorCode": "InvalidParameterException", "ErrorMessage": said}
            continue
        type_, key, one = found
        backend = type_.backend(call)
        tags = {name: value or "" for name, value in type_.tags.read(backend, one, key).items()}
        tags |= call.params.get("Tags") or {}
        dropped = call.params.get("TagKeys") or ()
        type_.tags.write(backend, one, key, {name: value for name, value in tags.items() if name not in dropped})
    return succeeded_in_json({"FailedResourcesMap": refused})


def instance_profile_tags(call: AwsCall) -> AwsResponse:
    """ListInstanceProfileTags, which moto lacks: Cloud Control shows no tags of instance profiles."""
    type_, name = TYPES["AWS::IAM::InstanceProfile"], call.text("InstanceProfileName")
    found = type_.find(call, name)
    if found is None:
        return failed(call, "NoSuchEntity", f"Instance Profile {name} cannot be found.", 404)
    tags = type_.read_tags(call, name, found).items()
    return succeeded(call, {"Tags": [{"Key": key, "Value": value} for key, value in tags], "IsTruncated": False})


def _of_arn(call: AwsCall, arn: str) -> Iterator[tuple[CloudControlType, str, Any]]:
    for name, type_ in TYPES.items():
        for key, one in type_.held(type_.backend(call)).items():
            if arn == (type_.arn(one) or _made(call, name, key)):
                yield type_, key, one


def _made(call: AwsCall, name: str, key: str) -> str:
    form = _ARNS.get(name, "").format(region=call.region, account=call.account, key=key)
    return form if form.startswith("arn:") else f"arn:{call.partition}:{form}"
