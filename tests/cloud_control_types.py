"""Registry of the resource types of Cloud Control for tests: one row per type of the stand-in, that says how such a
resource is created there, with tags, through the API of its service."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from standins.aws.builder import Vpc
from standins.aws.tags import Tags, named, pairs
from tests.aws import AwsTestAccount


class NewByIdentifier(NamedTuple):
    """The account, the VPC and the tags that a resource is created with."""

    cloud: AwsTestAccount
    vpc: Vpc
    tags: Tags

    async def call(self, service: str, operation: str, **arguments: Any) -> dict[str, Any]:
        client = await self.cloud.client(service)
        answer: dict[str, Any] = await getattr(client, operation)(**arguments)
        return answer

    @property
    def listed(self) -> list[dict[str, str]]:
        return pairs(self.tags)

    @property
    def specified(self) -> Callable[[str], list[dict[str, Any]]]:
        return lambda kind: [{"ResourceType": kind, "Tags": self.listed}]

    def arn(self, service: str, resource: str) -> str:
        return f"arn:aws:{service}::{self.cloud.account}:{resource}"


Create = Callable[[NewByIdentifier], Awaitable[str]]


async def _queue(new: NewByIdentifier) -> str:
    return str((await new.call("sqs", "create_queue", QueueName=named("queue"), tags=new.tags))["QueueUrl"])


async def _topic(new: NewByIdentifier) -> str:
    return str((await new.call("sns", "create_topic", Name=named("topic"), Tags=new.listed))["TopicArn"])


async def _table(new: NewByIdentifier, *, protected: bool = False) -> str:
    made = await new.call(
        "dynamodb", "create_table", TableName=named("table"), BillingMode="PAY_PER_REQUEST", Tags=new.listed,
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}], DeletionProtectionEnabled=protected,
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
    )  # fmt: skip
    return str(made["TableDescription"]["TableName"])


async def protected_table(new: NewByIdentifier) -> str:
    """A DynamoDB table with deletion protection."""
    return await _table(new, protected=True)


async def _role(new: NewByIdentifier) -> str:
    document = msgspec.json.encode({"Version": "2012-10-17", "Statement": []}).decode()
    made = await new.call("iam", "create_role", RoleName=named("role"), AssumeRolePolicyDocument=document)
    return str(made["Role"]["Arn"])


async def _function(new: NewByIdentifier) -> str:
    made = await new.call(
        "lambda", "create_function", FunctionName=named("function"), Role=await _role(new), Tags=new.tags,
        PackageType="Image", Code={"ImageUri": f"{new.cloud.account}.dkr.ecr.eu-west-1.amazonaws.com/a:b"},
    )  # fmt: skip
    return str(made["FunctionName"])


async def _vpc(new: NewByIdentifier) -> str:
    tags = new.specified("vpc")
    return str((await new.call("ec2", "create_vpc", CidrBlock="10.1.0.0/16", TagSpecifications=tags))["Vpc"]["VpcId"])


async def _subnet(new: NewByIdentifier) -> str:
    vpc = await _vpc(new)
    made = await new.call(
        "ec2", "create_subnet", VpcId=vpc, CidrBlock="10.1.0.0/24", TagSpecifications=new.specified("subnet")
    )
    return str(made["Subnet"]["SubnetId"])


async def _gateway(new: NewByIdentifier) -> str:
    made = await new.call("ec2", "create_internet_gateway", TagSpecifications=new.specified("internet-gateway"))
    return str(made["InternetGateway"]["InternetGatewayId"])


async def _route_table(new: NewByIdentifier) -> str:
    tags = new.specified("route-table")
    made = await new.call("ec2", "create_route_table", VpcId=new.vpc.id, TagSpecifications=tags)
    return str(made["RouteTable"]["RouteTableId"])


async def _address(new: NewByIdentifier) -> str:
    made = await new.call(
        "ec2", "allocate_address", Domain="vpc", TagSpecifications=new.specified("elastic-ip")
    )  # fmt: skip
    return f"{made['PublicIp']}|{made['AllocationId']}"


async def _nat_gateway(new: NewByIdentifier) -> str:
    build = new.cloud.builder
    return await build.nat_gateway(new.vpc, await build.elastic_ip(), new.tags)


async def _user(new: NewByIdentifier) -> str:
    made = await new.call("iam", "create_user", UserName=named("user"), Tags=new.listed)
    return str(made["User"]["UserName"])


async def _profile(new: NewByIdentifier) -> str:
    made = await new.call("iam", "create_instance_profile", InstanceProfileName=named("profile"), Tags=new.listed)
    return str(made["InstanceProfile"]["InstanceProfileName"])


async def _cluster(new: NewByIdentifier) -> str:
    made = await new.call(
        "eks", "create_cluster", name=named("cluster"), roleArn=new.arn("iam", "role/eks"), tags=new.tags,
        resourcesVpcConfig={"subnetIds": list(new.vpc.subnets)},
    )  # fmt: skip
    return str(made["cluster"]["name"])


async def nodegroup_of(new: NewByIdentifier, cluster: str) -> str:
    """A node group of an EKS cluster."""
    made = await new.call(
        "eks", "create_nodegroup", clusterName=cluster, nodegroupName=named("nodes"), tags=new.tags,
        subnets=list(new.vpc.subnets), nodeRole=new.arn("iam", "role/nodes"),
    )  # fmt: skip
    return f"{cluster}/{made['nodegroup']['nodegroupName']}"


async def _nodegroup(new: NewByIdentifier) -> str:
    return await nodegroup_of(new, await _cluster(new))


async def _fargate_profile(new: NewByIdentifier) -> str:
    cluster = await _cluster(new)
    made = await new.call(
        "eks", "create_fargate_profile", clusterName=cluster, fargateProfileName=named("fargate"), tags=new.tags,
        podExecutionRoleArn=new.arn("iam", "role/pods"), selectors=[{"namespace": "default"}],
    )  # fmt: skip
    return f"{cluster}|{made['fargateProfile']['fargateProfileName']}"


async def _replication_group(new: NewByIdentifier) -> str:
    made = await new.call(
        "elasticache", "create_replication_group", ReplicationGroupId=named("redis"), Tags=new.listed,
        ReplicationGroupDescription="of a test",
    )  # fmt: skip
    return str(made["ReplicationGroup"]["ReplicationGroupId"])


async def _zone(new: NewByIdentifier) -> str:
    made = await new.call("route53", "create_hosted_zone", Name=f"{named('zone')}.test", CallerReference=named("zone"))
    zone = str(made["HostedZone"]["Id"]).removeprefix("/hostedzone/")
    await new.call(
        "route53", "change_tags_for_resource", ResourceType="hostedzone", ResourceId=zone, AddTags=new.listed
    )
    return zone


async def _certificate(new: NewByIdentifier) -> str:
    made = await new.call("acm", "request_certificate", DomainName=f"{named('of')}.test", Tags=new.listed)
    return str(made["CertificateArn"])


async def _api(new: NewByIdentifier) -> str:
    made = await new.call("apigatewayv2", "create_api", Name=named("api"), ProtocolType="HTTP", Tags=new.tags)
    return str(made["ApiId"])


async def _file_system(new: NewByIdentifier) -> str:
    made = await new.call("efs", "create_file_system", CreationToken=named("files"), Tags=new.listed)
    return str(made["FileSystemId"])


async def _domain(new: NewByIdentifier) -> str:
    made = await new.call("opensearch", "create_domain", DomainName=named("domain"), TagList=new.listed)
    return str(made["DomainStatus"]["DomainName"])


async def _rule(new: NewByIdentifier) -> str:
    name = named("rule")
    made = await new.call("events", "put_rule", Name=name, ScheduleExpression="rate(1 day)", Tags=new.listed)
    target = {"Id": "1", "Arn": f"arn:aws:sqs:eu-west-1:{new.cloud.account}:queue"}
    await new.call("events", "put_targets", Rule=name, Targets=[target])
    return str(made["RuleArn"])


async def _state_machine(new: NewByIdentifier) -> str:
    definition = msgspec.json.encode({"StartAt": "End", "States": {"End": {"Type": "Succeed"}}}).decode()
    made = await new.call(
        "stepfunctions", "create_state_machine", name=named("machine"), definition=definition,
        roleArn=new.arn("iam", "role/steps"), tags=[{"key": key, "value": value} for key, value in new.tags.items()],
    )  # fmt: skip
    return str(made["stateMachineArn"])


async def _memory_cluster(new: NewByIdentifier) -> str:
    made = await new.call(
        "memorydb", "create_cluster", ClusterName=named("memory"), NodeType="db.t4g.small", ACLName="open-access",
        Tags=new.listed,
    )  # fmt: skip
    return str(made["Cluster"]["Name"])


async def _kafka_cluster(new: NewByIdentifier) -> str:
    made = await new.call(
        "kafka", "create_cluster", ClusterName=named("kafka"), KafkaVersion="3.6.0", NumberOfBrokerNodes=2,
        Tags=new.tags,
        BrokerNodeGroupInfo={"InstanceType": "kafka.t3.small", "ClientSubnets": list(new.vpc.subnets)},
    )  # fmt: skip
    return str(made["ClusterArn"])


CLOUD_CONTROL_TYPES: Final[Mapping[str, Create]] = {
    "AWS::SQS::Queue": _queue,
    "AWS::SNS::Topic": _topic,
    "AWS::DynamoDB::Table": _table,
    "AWS::Lambda::Function": _function,
    "AWS::EC2::VPC": _vpc,
    "AWS::EC2::Subnet": _subnet,
    "AWS::EC2::SecurityGroup": lambda new: new.cloud.builder.group(new.vpc, new.tags),
    "AWS::EC2::InternetGateway": _gateway,
    "AWS::EC2::RouteTable": _route_table,
    "AWS::EC2::EIP": _address,
    "AWS::EC2::NatGateway": _nat_gateway,
    "AWS::EC2::Instance": lambda new: new.cloud.builder.instance(new.vpc, tags=new.tags),
    "AWS::IAM::User": _user,
    "AWS::IAM::InstanceProfile": _profile,
    "AWS::EKS::Cluster": _cluster,
    "AWS::EKS::Nodegroup": _nodegroup,
    "AWS::EKS::FargateProfile": _fargate_profile,
    "AWS::ElastiCache::ReplicationGroup": _replication_group,
    "AWS::Route53::HostedZone": _zone,
    "AWS::CertificateManager::Certificate": _certificate,
    "AWS::ApiGatewayV2::Api": _api,
    "AWS::EFS::FileSystem": _file_system,
    "AWS::OpenSearchService::Domain": _domain,
    "AWS::Events::Rule": _rule,
    "AWS::StepFunctions::StateMachine": _state_machine,
    "AWS::MemoryDB::Cluster": _memory_cluster,
    "AWS::MSK::Cluster": _kafka_cluster,
}
"""By type: creates one, and returns its identifier."""

WITHOUT_TAGS: Final = frozenset({"AWS::IAM::InstanceProfile"})
"""Types whose properties have no tags."""
