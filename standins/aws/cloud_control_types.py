"""Resource types of Cloud Control in the stand-in: where moto keeps each, its tags and its ARN, and how moto deletes
it. Handlers of AWS do more than the API of the service, and say so here."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace as changed
from typing import Any, Final, NamedTuple

from moto.backends import get_backend

from standins.aws.calls import AwsCall
from standins.aws.dependencies import CHECKS
from standins.aws.moto_backends import Refusals
from standins.aws.slow_operations import nat_gateway_gone

_GLOBAL: Final = ("iam", "route53")
_MESSAGE: Final = re.compile(rb"<Message>(.*?)</Message>", re.DOTALL)

Tags = dict[str, str]


class HandlerFailed(Exception):
    """A handler failed: the error code of Cloud Control, and the message."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code, self.message = code, message


class TagStore(NamedTuple):
    """Where moto keeps the tags of a resource, given its backend, the resource and its key."""

    read: Callable[[Any, Any, str], Mapping[str, Any]]
    write: Callable[[Any, Any, str, Tags], None]


class CloudControlType(NamedTuple):
    """`held` are the resources by key, `key` is that of an identifier. `names` are the properties of the identifier's
    parts. `arn` is empty where the properties of the type have none; `shape` is the property with the tags, a list
    unless it ends in a star, and empty where the type shows none."""

    service: str
    names: tuple[str, ...]
    held: Callable[[Any], Mapping[str, Any]]
    delete: Callable[[Any, str, AwsCall], object]
    tags: TagStore
    arn: Callable[[Any], str] = lambda _: ""
    key: Callable[[str], str] = lambda identifier: identifier
    shape: str = "Tags"

    def backend(self, call: AwsCall) -> Any:
        return get_backend(self.service)[call.account][call.partition if self.service in _GLOBAL else call.region]

    def find(self, call: AwsCall, identifier: str) -> Any:
        """None if there is none."""
        return self.held(self.backend(call)).get(self.key(identifier))

    def properties(self, call: AwsCall, identifier: str, found: Any) -> dict[str, Any]:
        parts = identifier.split("|") if len(self.names) > 1 else [identifier]
        shown: dict[str, Any] = dict(zip(self.names, parts, strict=True))
        if arn := self.arn(found):
            shown["Arn"] = arn
        tags = {name: value or "" for name, value in self.read_tags(call, identifier, found).items()}
        if self.shape and tags:
            in_list = [{"Key": name, "Value": value} for name, value in tags.items()]
            shown[self.shape.rstrip("*")] = tags if self.shape.endswith("*") else in_list
        return shown

    def read_tags(self, call: AwsCall, identifier: str, found: Any) -> Mapping[str, Any]:
        return self.tags.read(self.backend(call), found, self.key(identifier))

    def run_delete(self, call: AwsCall, identifier: str) -> None:
        """Raises HandlerFailed."""
        if self.find(call, identifier) is None:
            raise HandlerFailed("NotFound", f"Resource of type with identifier '{identifier}' was not found.")
        try:
            self.delete(self.backend(call), self.key(identifier), call)
        except Refusals as error:
            code = str(getattr(error, "error_type", "") or getattr(error, "code", ""))
            raise _failure(code, str(getattr(error, "message", "") or error)) from None


def _failure(code: str, message: str) -> HandlerFailed:
    if re.search("NotFound|NoSuch|DoesNotExist|NonExistent", code):
        return HandlerFailed("NotFound", message)
    if re.search("DependencyViolation|InUse|HostedZoneNotEmpty|CannotDelete", code):
        return HandlerFailed("ResourceConflict", f"{message} ({code})")
    # IAM's conflicts are known by their text alone.
    status = 409 if code == "DeleteConflict" else 400
    said = f"{message} (Service: Knell, Status Code: {status}, Request ID: 11111111)"
    return HandlerFailed("InvalidRequest" if code.endswith("ValidationException") else "GeneralServiceException", said)


# ---- tags


def _own(name: str = "tags") -> TagStore:
    """A dictionary of the resource itself."""

    def write(_backend: Any, one: Any, _key: str, tags: Tags) -> None:
        held = getattr(one, name) or {}
        held.clear()
        held.update(tags)
        setattr(one, name, held)

    return TagStore(lambda _backend, one, _key: getattr(one, name) or {}, write)


def _listed(name: str = "tags") -> TagStore:
    """A list of the resource itself."""

    def write(_backend: Any, one: Any, _key: str, tags: Tags) -> None:
        setattr(one, name, [{"Key": key, "Value": value} for key, value in tags.items()])

    return TagStore(lambda _backend, one, _key: {tag["Key"]: tag["Value"] for tag in getattr(one, name) or ()}, write)


def _tagger(attribute: str = "tagger", name: Callable[[Any, str], str] = lambda one, _key: str(one.arn)) -> TagStore:
    """moto's tagging service, by a name of the resource."""

    def write(backend: Any, resource: Any, key: str, tags: Tags) -> None:
        tagger, named = getattr(backend, attribute), name(resource, key)
        tagger.delete_all_tags_for_resource(named)
        tagger.tag_resource(named, [{tagger.key_name: one, tagger.value_name: tags[one]} for one in tags])

    return TagStore(
        lambda backend, one, key: getattr(backend, attribute).get_tag_dict_for_resource(name(one, key)), write
    )


_BY_ID: Final = TagStore(
    lambda backend, _one, key: backend.tags.get(key, {}),
    lambda backend, _one, key, tags: backend.tags.update({key: dict(tags)}),
)
_OF_ZONE: Final = TagStore(
    lambda backend, _one, key: backend.resource_tags.get(key, {}),
    lambda backend, _one, key, tags: backend.resource_tags.update({key: dict(tags)}),
)


# ---- EC2


def _ec2(
    name: str, held: Callable[[Any], Mapping[str, Any]], delete: Callable[[Any, str], object], *, checked: str = ""
) -> CloudControlType:
    """`checked` is the parameter of the service's own delete call, whose dependency checks apply."""
    action = {"VpcId": "DeleteVpc", "SubnetId": "DeleteSubnet", "GroupId": "DeleteSecurityGroup"}.get(checked, "")

    def run(backend: Any, key: str, call: AwsCall) -> None:
        if checked:
            answer = CHECKS[f"ec2.{action}"](changed(call, service="ec2", action=action, params={checked: key}))
            if answer is not None:
                message = _MESSAGE.search(answer.body)
                raise _failure(answer.code, message[1].decode() if message else answer.code)
        delete(backend, key)
        backend.tags.pop(key, None)

    return CloudControlType("ec2", (name,), held, run, _BY_ID)


def _inner(outer: Callable[[Any], Mapping[str, Any]]) -> Callable[[Any], Mapping[str, Any]]:
    """Resources that moto keeps in dictionaries by something else."""
    return lambda backend: {key: one for group in outer(backend).values() for key, one in group.items()}


def _nat_gateways(backend: Any) -> Mapping[str, Any]:
    return {key: one for key, one in backend.nat_gateways.items() if one.state != "deleted"}


def _instances(backend: Any) -> Mapping[str, Any]:
    return {one.id: one for one in backend.all_instances() if one._state.name != "terminated"}


# ---- others


def _in_cluster(name: str) -> Callable[[Any], Mapping[str, Any]]:
    def held(backend: Any) -> Mapping[str, Any]:
        return {f"{it}/{key}": one for it, by in backend.clusters.items() for key, one in getattr(by, name).items()}

    return held


def _rules(backend: Any) -> Mapping[str, Any]:
    return {rule.arn: rule for bus in backend.event_buses.values() for rule in bus.rules.values()}


def _delete_rule(backend: Any, key: str, _call: AwsCall) -> None:
    """The handler removes its targets first."""
    rule = _rules(backend)[key]
    rule.targets.clear()
    backend.delete_rule(rule.name, rule.event_bus_name)


def _delete_replication_group(backend: Any, key: str, _call: AwsCall) -> None:
    """In moto it stays `deleting` for ever."""
    del backend.replication_groups[key]


TYPES: Final[Mapping[str, CloudControlType]] = {
    "AWS::SQS::Queue": CloudControlType(
        "sqs", ("QueueUrl",), lambda b: b.queues, lambda b, key, _: b.delete_queue(key), _own(),
        lambda one: str(one.queue_arn), lambda url: url.rpartition("/")[2],
    ),
    # Its ARN is the identifier.
    "AWS::SNS::Topic": CloudControlType(
        "sns", ("TopicArn",), lambda b: b.topics, lambda b, key, _: b.delete_topic(key), _own("_tags")
    ),
    "AWS::DynamoDB::Table": CloudControlType(
        "dynamodb", ("TableName",), lambda b: b.tables, lambda b, key, _: b.delete_table(key), _listed(),
        lambda one: str(one.table_arn),
    ),
    "AWS::Lambda::Function": CloudControlType(
        "awslambda", ("FunctionName",), lambda b: {one.function_name: one for one in b.list_functions()},
        lambda b, key, _: b.delete_function(key), _own(), lambda one: str(one.function_arn).removesuffix(":$LATEST"),
    ),
    "AWS::EC2::VPC": _ec2("VpcId", lambda b: b.vpcs, lambda b, key: b.delete_vpc(key), checked="VpcId"),
    "AWS::EC2::Subnet": _ec2(
        "SubnetId", _inner(lambda b: b.subnets), lambda b, key: b.delete_subnet(key), checked="SubnetId"
    ),
    "AWS::EC2::SecurityGroup": _ec2(
        "Id", _inner(lambda b: b.groups), lambda b, key: b.delete_security_group(group_id=key), checked="GroupId"
    ),
    "AWS::EC2::InternetGateway": _ec2(
        "InternetGatewayId", lambda b: b.internet_gateways, lambda b, key: b.delete_internet_gateway(key)
    ),
    "AWS::EC2::RouteTable": _ec2("RouteTableId", lambda b: b.route_tables, lambda b, key: b.delete_route_table(key)),
    # The handler disassociates it first, as moto does.
    "AWS::EC2::EIP": _ec2(
        "AllocationId", lambda b: {one.allocation_id: one for one in b.addresses},
        lambda b, key: b.release_address(allocation_id=key),
    )._replace(names=("PublicIp", "AllocationId"), key=lambda identifier: identifier.rpartition("|")[2]),
    "AWS::EC2::NatGateway": _ec2("NatGatewayId", _nat_gateways, nat_gateway_gone),
    "AWS::EC2::Instance": _ec2("InstanceId", _instances, lambda b, key: b.terminate_instances([key])),
    "AWS::IAM::User": CloudControlType(
        "iam", ("UserName",), lambda b: b.users, lambda b, key, _: b.delete_user(key), _tagger(),
        lambda one: str(one.arn),
    ),
    "AWS::IAM::InstanceProfile": CloudControlType(
        "iam", ("InstanceProfileName",), lambda b: b.instance_profiles,
        lambda b, key, _: b.delete_instance_profile(key), _listed(), lambda one: str(one.arn), shape="",
    ),
    "AWS::EKS::Cluster": CloudControlType(
        "eks", ("Name",), lambda b: b.clusters, lambda b, key, _: b.delete_cluster(key), _own(),
        lambda one: str(one.arn),
    ),
    "AWS::EKS::Nodegroup": CloudControlType(
        "eks", ("Id",), _in_cluster("nodegroups"), lambda b, key, _: b.delete_nodegroup(*key.split("/")), _own(),
        lambda one: str(one.arn), shape="Tags*",
    ),
    "AWS::EKS::FargateProfile": CloudControlType(
        "eks", ("ClusterName", "FargateProfileName"), _in_cluster("fargate_profiles"),
        lambda b, key, _: b.delete_fargate_profile(*key.split("/")), _own(), lambda one: str(one.fargate_profile_arn),
        key=lambda identifier: identifier.replace("|", "/"),
    ),
    "AWS::ElastiCache::ReplicationGroup": CloudControlType(
        "elasticache", ("ReplicationGroupId",), lambda b: b.replication_groups, _delete_replication_group,
        _tagger("tagging_service"),
    ),
    "AWS::Route53::HostedZone": CloudControlType(
        "route53", ("Id",), lambda b: b.zones, lambda b, key, _: b.delete_hosted_zone(key), _OF_ZONE,
        shape="HostedZoneTags",
    ),
    "AWS::CertificateManager::Certificate": CloudControlType(
        "acm", ("CertificateArn",), lambda b: b._certificates, lambda b, key, _: b.delete_certificate(key), _own()
    ),
    "AWS::ApiGatewayV2::Api": CloudControlType(
        "apigatewayv2", ("ApiId",), lambda b: b.apis, lambda b, key, _: b.delete_api(key), _tagger(), shape="Tags*"
    ),
    "AWS::EFS::FileSystem": CloudControlType(
        "efs", ("FileSystemId",), lambda b: b.file_systems_by_id, lambda b, key, _: b.delete_file_system(key),
        _tagger("tagging_service", lambda _one, key: key), lambda one: str(one.file_system_arn),
        shape="FileSystemTags",
    ),
    "AWS::OpenSearchService::Domain": CloudControlType(
        "opensearch", ("DomainName",), lambda b: b.domains, lambda b, key, _: b.delete_domain(key), _tagger(),
        lambda one: str(one.arn),
    ),
    "AWS::Events::Rule": CloudControlType(
        "events", ("Arn",), _rules, _delete_rule, _tagger(), lambda one: str(one.arn)
    ),
    "AWS::StepFunctions::StateMachine": CloudControlType(
        "stepfunctions", ("Arn",), lambda b: {one.arn: one for one in b.state_machines},
        lambda b, key, _: b.delete_state_machine(key), _tagger(), lambda one: str(one.arn),
    ),
    "AWS::MemoryDB::Cluster": CloudControlType(
        "memorydb", ("ClusterName",), lambda b: b.clusters, lambda b, key, _: b.delete_cluster(key, None), _tagger(),
        lambda one: str(one.arn),
    ),
    "AWS::MSK::Cluster": CloudControlType(
        "kafka", ("Arn",), lambda b: b.clusters, lambda b, key, _: b.delete_cluster(key, ""), _tagger(),
        lambda one: str(one.arn), shape="Tags*",
    ),
}  # fmt: skip

UNSUPPORTED: Final = frozenset({"AWS::DocDB::DBCluster"})
"""Types without handlers."""
