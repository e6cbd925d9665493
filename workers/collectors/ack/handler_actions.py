"""Permissions that Cloud Control needs of the services behind it, by type: those of the read and delete handlers in the
types' schemas. The handlers run with the caller's own permissions."""

from collections.abc import Mapping
from typing import Final, NamedTuple


class HandlerActions(NamedTuple):
    """IAM actions of one type: `reads` for its properties, `deletes` beside them."""

    reads: tuple[str, ...]
    deletes: tuple[str, ...]


HANDLER_ACTIONS: Final[Mapping[str, HandlerActions]] = {
    "AWS::ApiGatewayV2::Api": HandlerActions(("apigateway:GET", "s3:GetObject"), ("apigateway:DELETE",)),
    "AWS::CertificateManager::Certificate": HandlerActions(
        ("acm:DescribeCertificate", "acm:ListTagsForCertificate"),
        ("acm:DeleteCertificate", "acm:RemoveTagsFromCertificate"),
    ),
    "AWS::DynamoDB::Table": HandlerActions(
        (
            "dynamodb:DescribeContinuousBackups",
            "dynamodb:DescribeContributorInsights",
            "dynamodb:DescribeKinesisStreamingDestination",
            "dynamodb:DescribeTable",
            "dynamodb:DescribeTimeToLive",
            "dynamodb:GetResourcePolicy",
            "dynamodb:ListTagsOfResource",
        ),
        ("dynamodb:DeleteTable",),
    ),
    "AWS::EC2::Instance": HandlerActions(
        (
            "ec2:DescribeInstanceAttribute",
            "ec2:DescribeInstanceCreditSpecifications",
            "ec2:DescribeInstances",
            "ec2:DescribeLaunchTemplates",
            "ec2:DescribeNetworkInterfaces",
            "ec2:DescribeVolumes",
            "ssm:DescribeAssociation",
            "ssm:ListAssociations",
        ),
        ("ec2:TerminateInstances",),
    ),
    "AWS::EC2::InternetGateway": HandlerActions(("ec2:DescribeInternetGateways",), ("ec2:DeleteInternetGateway",)),
    "AWS::EC2::RouteTable": HandlerActions(("ec2:DescribeRouteTables",), ("ec2:DeleteRouteTable",)),
    "AWS::EC2::SecurityGroup": HandlerActions(
        ("ec2:DescribeInstances", "ec2:DescribeSecurityGroups"), ("ec2:DeleteSecurityGroup",)
    ),
    "AWS::EC2::Subnet": HandlerActions(("ec2:DescribeNetworkAcls", "ec2:DescribeSubnets"), ("ec2:DeleteSubnet",)),
    "AWS::EC2::VPC": HandlerActions(
        (
            "ec2:DescribeNetworkAcls",
            "ec2:DescribeSecurityGroups",
            "ec2:DescribeVpcAttribute",
            "ec2:DescribeVpcEncryptionControls",
            "ec2:DescribeVpcs",
        ),
        ("ec2:DeleteVpc",),
    ),
    "AWS::EFS::FileSystem": HandlerActions(
        (
            "elasticfilesystem:DescribeBackupPolicy",
            "elasticfilesystem:DescribeFileSystemPolicy",
            "elasticfilesystem:DescribeFileSystems",
            "elasticfilesystem:DescribeLifecycleConfiguration",
            "elasticfilesystem:DescribeReplicationConfigurations",
        ),
        ("elasticfilesystem:DeleteFileSystem", "elasticfilesystem:DeleteReplicationConfiguration"),
    ),
    "AWS::EKS::Addon": HandlerActions(("eks:DescribeAddon",), ("eks:DeleteAddon", "eks:DeletePodIdentityAssociation")),
    "AWS::EKS::Cluster": HandlerActions(("eks:DescribeCluster",), ("eks:DeleteCluster",)),
    "AWS::EKS::FargateProfile": HandlerActions(("eks:DescribeFargateProfile",), ("eks:DeleteFargateProfile",)),
    "AWS::EKS::Nodegroup": HandlerActions(("eks:DescribeNodegroup",), ("eks:DeleteNodegroup",)),
    "AWS::ElastiCache::ReplicationGroup": HandlerActions(
        ("elasticache:DescribeReplicationGroups", "elasticache:ListTagsForResource"),
        ("elasticache:CreateSnapshot", "elasticache:DeleteReplicationGroup"),
    ),
    "AWS::Events::Rule": HandlerActions(
        ("events:DescribeRule", "events:ListTagsForResource", "events:ListTargetsByRule"),
        ("events:DeleteRule", "events:RemoveTargets"),
    ),
    "AWS::IAM::InstanceProfile": HandlerActions(
        ("iam:GetInstanceProfile",), ("iam:DeleteInstanceProfile", "iam:RemoveRoleFromInstanceProfile")
    ),
    "AWS::IAM::User": HandlerActions(
        (
            "iam:GetLoginProfile",
            "iam:GetUser",
            "iam:GetUserPolicy",
            "iam:ListAccessKeys",
            "iam:ListAttachedUserPolicies",
            "iam:ListGroupsForUser",
            "iam:ListUserPolicies",
        ),
        (
            "iam:DeleteAccessKey",
            "iam:DeleteLoginProfile",
            "iam:DeleteUser",
            "iam:DeleteUserPolicy",
            "iam:DetachUserPolicy",
            "iam:RemoveUserFromGroup",
        ),
    ),
    "AWS::Lambda::Function": HandlerActions(
        (
            "ec2:DescribeNetworkInterfaces",
            "kms:Decrypt",
            "lambda:GetFunction",
            "lambda:GetFunctionCodeSigningConfig",
            "lambda:GetFunctionRecursionConfig",
            "lambda:GetFunctionScalingConfig",
            "lambda:GetRuntimeManagementConfig",
        ),
        ("lambda:DeleteFunction",),
    ),
    "AWS::MSK::Cluster": HandlerActions(("kafka:DescribeCluster",), ("kafka:DeleteCluster",)),
    "AWS::MemoryDB::Cluster": HandlerActions(
        ("memorydb:DescribeClusters", "memorydb:ListTags"), ("memorydb:DeleteCluster",)
    ),
    "AWS::OpenSearchService::Domain": HandlerActions(("es:DescribeDomain", "es:ListTags"), ("es:DeleteDomain",)),
    "AWS::Route53::HostedZone": HandlerActions(
        (
            "route53:GetChange",
            "route53:GetHostedZone",
            "route53:ListQueryLoggingConfigs",
            "route53:ListTagsForResource",
        ),
        ("route53:DeleteHostedZone", "route53:DeleteQueryLoggingConfig", "route53:UpdateHostedZoneFeatures"),
    ),
    "AWS::SNS::Topic": HandlerActions(
        (
            "sns:GetDataProtectionPolicy",
            "sns:GetTopicAttributes",
            "sns:ListSubscriptionsByTopic",
            "sns:ListTagsForResource",
        ),
        ("sns:DeleteTopic",),
    ),
    "AWS::SQS::Queue": HandlerActions(("sqs:GetQueueAttributes", "sqs:ListQueueTags"), ("sqs:DeleteQueue",)),
    "AWS::StepFunctions::StateMachine": HandlerActions(
        ("kms:Decrypt", "states:DescribeStateMachine", "states:ListTagsForResource"), ("states:DeleteStateMachine",)
    ),
}
