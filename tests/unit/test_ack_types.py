"""The table of ACK's kinds: every kind of the services that it is about, the ids that it makes, and what it refuses."""

import pytest

from tests.ack import ACCOUNT
from workers.collectors.ack.handler_actions import HANDLER_ACTIONS
from workers.collectors.ack.types import CLOUD_CONTROL, TYPES, UnnamedResource, identifier_of, read_arn, type_of

A = f"eu-west-1:{ACCOUNT}"

# Kind, ARN without `arn:aws:`, fields, and the id by which it is removed.
CASES: list[tuple[str, str, dict[str, str], str]] = [
    ("s3/Bucket", "s3:::logs", {"spec.name": "logs"}, "logs"),
    ("dynamodb/Table", f"dynamodb:{A}:table/t", {"spec.tableName": "t"}, "AWS::DynamoDB::Table/t"),
    (
        "sqs/Queue", f"sqs:{A}:q", {"spec.queueName": "q", "status.queueURL": f"https://sqs/{ACCOUNT}/q"},
        f"AWS::SQS::Queue/https://sqs/{ACCOUNT}/q",
    ),
    ("sns/Topic", f"sns:{A}:t", {"spec.name": "t"}, f"AWS::SNS::Topic/arn:aws:sns:{A}:t"),
    ("rds/DBInstance", f"rds:{A}:db:d", {"spec.dbInstanceIdentifier": "d"}, "d"),
    ("rds/DBCluster", f"rds:{A}:cluster:d", {"spec.dbClusterIdentifier": "d"}, "d"),
    ("ecr/Repository", f"ecr:{A}:repository/a/b", {"spec.name": "a/b"}, "a/b"),
    ("lambda/Function", f"lambda:{A}:function:f", {"spec.name": "f"}, "AWS::Lambda::Function/f"),
    ("iam/Role", f"iam::{ACCOUNT}:role/path/r", {"spec.name": "r"}, "r"),
    ("iam/User", f"iam::{ACCOUNT}:user/u", {"spec.name": "u"}, "AWS::IAM::User/u"),
    ("iam/Policy", f"iam::{ACCOUNT}:policy/p", {"spec.name": "p"}, f"arn:aws:iam::{ACCOUNT}:policy/p"),
    (
        "iam/InstanceProfile", f"iam::{ACCOUNT}:instance-profile/p", {"spec.name": "p"},
        "AWS::IAM::InstanceProfile/p",
    ),
    ("ec2/VPC", "", {"status.vpcID": "vpc-1"}, "AWS::EC2::VPC/vpc-1"),
    ("ec2/Subnet", f"ec2:{A}:subnet/subnet-1", {"status.subnetID": "subnet-1"}, "AWS::EC2::Subnet/subnet-1"),
    (
        "ec2/SecurityGroup", f"ec2:{A}:security-group/sg-1", {"status.id": "sg-1", "spec.name": "web"},
        "AWS::EC2::SecurityGroup/sg-1",
    ),
    ("ec2/Instance", "", {"status.instanceID": "i-1"}, "AWS::EC2::Instance/i-1"),
    ("ec2/NATGateway", "", {"status.natGatewayID": "nat-1"}, "nat-1"),
    ("ec2/ElasticIPAddress", "", {"status.allocationID": "eipalloc-1", "status.publicIP": "1.2.3.4"}, "eipalloc-1"),
    ("ec2/RouteTable", "", {"status.routeTableID": "rtb-1"}, "AWS::EC2::RouteTable/rtb-1"),
    ("ec2/InternetGateway", "", {"status.internetGatewayID": "igw-1"}, "AWS::EC2::InternetGateway/igw-1"),
    (
        "elasticache/ReplicationGroup", f"elasticache:{A}:replicationgroup:g", {"spec.replicationGroupID": "g"},
        "AWS::ElastiCache::ReplicationGroup/g",
    ),
    ("eks/Cluster", f"eks:{A}:cluster/c", {"spec.name": "c"}, "AWS::EKS::Cluster/c"),
    # A reference to the cluster is never stored resolved.
    ("eks/Nodegroup", f"eks:{A}:nodegroup/c/n/1-2", {"spec.name": "n"}, "AWS::EKS::Nodegroup/c/n"),
    ("eks/Addon", f"eks:{A}:addon/c/dns/1-2", {"spec.name": "dns"}, "AWS::EKS::Addon/c|dns"),
    (
        "eks/FargateProfile", f"eks:{A}:fargateprofile/c/f/1-2", {"spec.name": "f", "spec.clusterName": "c"},
        "AWS::EKS::FargateProfile/c|f",
    ),
    (
        "secretsmanager/Secret", f"secretsmanager:{A}:secret:db/main-Ab12Cd", {"spec.name": "db/main"},
        f"arn:aws:secretsmanager:{A}:secret:db/main-Ab12Cd",
    ),
    ("kms/Key", f"kms:{A}:key/k-1", {"status.keyID": "k-1"}, "k-1"),
    ("cloudwatchlogs/LogGroup", f"logs:{A}:log-group:/a/b:*", {"spec.name": "/a/b"}, "/a/b"),
    ("route53/HostedZone", "", {"status.id": "/hostedzone/Z1"}, "AWS::Route53::HostedZone/Z1"),
    (
        "acm/Certificate", f"acm:{A}:certificate/1-2", {}, f"AWS::CertificateManager::Certificate/arn:aws:acm:{A}:"
        "certificate/1-2",
    ),
    ("apigatewayv2/API", "", {"status.apiID": "a1"}, "AWS::ApiGatewayV2::Api/a1"),
    (
        "efs/FileSystem", f"elasticfilesystem:{A}:file-system/fs-1", {"status.fileSystemID": "fs-1"},
        "AWS::EFS::FileSystem/fs-1",
    ),
    ("opensearchservice/Domain", f"es:{A}:domain/d", {"spec.name": "d"}, "AWS::OpenSearchService::Domain/d"),
    (
        "eventbridge/Rule", f"events:{A}:rule/bus/r", {"spec.name": "r", "spec.eventBusName": "bus"},
        f"AWS::Events::Rule/arn:aws:events:{A}:rule/bus/r",
    ),
    (
        "sfn/StateMachine", f"states:{A}:stateMachine:m", {"spec.name": "m"},
        f"AWS::StepFunctions::StateMachine/arn:aws:states:{A}:stateMachine:m",
    ),
    ("memorydb/Cluster", f"memorydb:{A}:cluster/m", {"spec.name": "m"}, "AWS::MemoryDB::Cluster/m"),
    (
        "kafka/Cluster", f"kafka:{A}:cluster/k/1-2", {"spec.name": "k"},
        f"AWS::MSK::Cluster/arn:aws:kafka:{A}:cluster/k/1-2",
    ),
]  # fmt: skip


def arn(text: str) -> str:
    return f"arn:aws:{text}" if text else ""


def test_the_table_has_all_kinds_and_one_that_is_only_held() -> None:
    assert {kind for kind, *_ in CASES} | {"documentdb/DBCluster"} == set(TYPES)
    assert len(TYPES) >= 35


@pytest.mark.parametrize(("kind", "text", "fields", "wanted"), CASES, ids=[kind for kind, *_ in CASES])
def test_an_object_names_the_id_by_which_its_resource_is_removed(
    kind: str, text: str, fields: dict[str, str], wanted: str
) -> None:
    service, _, name = kind.partition("/")
    row = type_of(service, name)
    assert identifier_of(row, arn(text), ACCOUNT, fields) == wanted
    if row.kind == CLOUD_CONTROL:
        assert wanted.partition("/")[0] == row.removes
        assert row.removes in HANDLER_ACTIONS


@pytest.mark.parametrize("kind", [kind for kind, *_ in CASES])
def test_an_arn_of_any_other_type_is_refused(kind: str) -> None:
    row = TYPES[kind]
    for other, its_arn, _, _ in CASES:
        if its_arn and other != kind:
            with pytest.raises(UnnamedResource):
                read_arn(row, arn(its_arn))


@pytest.mark.parametrize("kind", [kind for kind, *_ in CASES])
def test_without_arn_and_identifier_nothing_is_guessed(kind: str) -> None:
    with pytest.raises(UnnamedResource):
        identifier_of(TYPES[kind], "", ACCOUNT, {})


@pytest.mark.parametrize(
    ("kind", "text", "fields"),
    [
        ("s3/Bucket", "s3:::logs", {"spec.name": "other"}),
        ("sns/Topic", f"sns:{A}:t", {"spec.name": "other"}),
        ("eks/Nodegroup", f"eks:{A}:nodegroup/c/n/1", {"spec.name": "n", "spec.clusterName": "d"}),
        ("eks/Addon", "", {"spec.name": "n|m", "spec.clusterName": "d"}),
        ("sqs/Queue", f"sqs:{A}:q", {"status.queueURL": "https://sqs/999999999999/q"}),
        ("sqs/Queue", f"sqs:{A}:q", {"status.queueURL": f"https://sqs/{ACCOUNT}/other"}),
        ("sqs/Queue", f"sqs:{A}:q", {"status.queueURL": f"https://sqs/{ACCOUNT}/q?x=/{ACCOUNT}/q"}),
        ("ecr/Repository", f"ecr:{A}:repository/a", {"spec.name": "a", "spec.registryID": "999999999999"}),
        ("ec2/VPC", f"ec2:{A}:vpc/vpc-1", {"status.vpcID": "vpc-1"}),
        ("s3/Bucket", "", {"spec.name": "lo gs"}),
        ("s3/Bucket", "", {"spec.name": "logs\u202e"}),
    ],
)
def test_what_contradicts_itself_or_is_no_identifier_is_refused(kind: str, text: str, fields: dict[str, str]) -> None:
    with pytest.raises(UnnamedResource):
        identifier_of(TYPES[kind], arn(text), ACCOUNT, fields)


@pytest.mark.invariant(7)
def test_a_kind_without_a_row_is_named_with_the_line_to_add() -> None:
    with pytest.raises(UnnamedResource, match=r'"mq/Broker": AckType\(removes=.* to TYPES in workers/.*/types.py'):
        type_of("mq", "Broker")
    with pytest.raises(UnnamedResource, match="Cloud Control can't delete"):
        type_of("documentdb", "DBCluster")
