"""What sources with resources on AWS share: the settings of calls and removals there, and the places of kept resources.
No source itself."""

from datetime import timedelta
from typing import Annotated, Final

import msgspec

from service.contract.kept import RETAINED_TAG
from service.durations import DurationBounds, Positive
from service.sources.declaration import KeptPlaces

RecoveryWindow = Annotated[timedelta, DurationBounds(least=timedelta(days=7), most=timedelta(days=30))]
"""What AWS accepts, in whole days."""


class AwsAccess(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A part of the section `aws`."""

    # EBS volumes (task volume): a snapshot is completed before the volume is deleted. RDS: AWS takes a final snapshot
    # when it deletes, and the deletion is done once that is complete.
    snapshot_first: bool = False
    # Else a load balancer, database or log group with deletion protection blocks the deletion.
    lift_deletion_protection: bool = False
    # Revoke rules of foreign security groups that refer to the cluster's own groups; no other rules.
    revoke_foreign_rules: bool = False
    # Else an S3 bucket that is not empty blocks the deletion. Its objects are deleted in all versions, for good.
    empty_buckets: bool = False
    # Else an ECR repository that is not empty blocks the deletion. Its images are deleted with it.
    delete_images: bool = False
    # Else an IAM policy that is attached blocks the deletion. It is detached from all roles, users and groups.
    detach_policies: bool = False
    # How long KMS keys and Secrets Manager secrets can be restored after their deletion, rounded up to days.
    recovery_window: RecoveryWindow = timedelta(days=30)
    # The account that the credentials of the process must belong to.
    account: Annotated[str, msgspec.Meta(pattern=r"\A\d{12}\Z", description="12 digits, in quotes")] | None = None
    # One endpoint for all services: that of a stand-in, or of a VPC endpoint.
    endpoint: Annotated[str, msgspec.Meta(pattern=r"\Ahttps?://\S+\Z", description="http(s)://host:port")] | None = None
    # How long after a deletion its absence is checked, and how often draining interfaces are checked.
    check_after: Positive = timedelta(seconds=5)
    drain_check: Positive = timedelta(seconds=3)


_PARTITIONS: Final = {
    "cn-": "aws-cn", "us-gov-": "aws-us-gov", "us-iso-": "aws-iso", "us-isob-": "aws-iso-b", "eu-isoe-": "aws-iso-e",
    "us-isof-": "aws-iso-f", "eusc-": "aws-eusc",
}  # fmt: skip


def partition_of(region: str) -> str:
    """The partition in the ARNs of a region, by its name."""
    return next((partition for front, partition in _PARTITIONS.items() if region.startswith(front)), "aws")


_EC2_UNTAG: Final = f"aws ec2 delete-tags --region {{region}} --resources {{id}} --tags Key={RETAINED_TAG}"
_ELB_UNTAG: Final = f"aws elb remove-tags --region {{region}} --load-balancer-names {{id}} --tags Key={RETAINED_TAG}"
_ELBV2_UNTAG: Final = f"aws elbv2 remove-tags --region {{region}} --resource-arns {{id}} --tag-keys {RETAINED_TAG}"
_RDS_UNTAG: Final = (
    f"aws rds remove-tags-from-resource --region {{region}} --resource-name "
    f"arn:{{partition}}:rds:{{region}}:{{account}}:{{type}}:{{id}} --tag-keys {RETAINED_TAG}"
)
_KMS_UNTAG: Final = f"aws kms untag-resource --region {{region}} --key-id {{id}} --tag-keys {RETAINED_TAG}"
_SECRET_UNTAG: Final = (
    f"aws secretsmanager untag-resource --region {{region}} --secret-id {{id}} --tag-keys {RETAINED_TAG}"
)
_ECR_UNTAG: Final = (
    f"aws ecr untag-resource --region {{region}} --resource-arn "
    f"arn:{{partition}}:ecr:{{region}}:{{account}}:repository/{{id}} --tag-keys {RETAINED_TAG}"
)
_LOGS_UNTAG: Final = (
    f"aws logs untag-resource --region {{region}} --resource-arn "
    f"arn:{{partition}}:logs:{{region}}:{{account}}:log-group:{{id}} --tag-keys {RETAINED_TAG}"
)
# Knell writes no tags on buckets; a person may.
_S3_UNTAG: Final = (
    f"aws s3control untag-resource --region {{region}} --account-id {{account}} --resource-arn "
    f"arn:{{partition}}:s3:::{{id}} --tag-keys {RETAINED_TAG}"
)
# The tagging API takes ARNs, and an identifier may be none.
_CLOUD_CONTROL_UNTAG: Final = (
    f"aws resourcegroupstaggingapi untag-resources --region {{region}} --tag-keys {RETAINED_TAG} "
    f"--resource-arn-list $ARN  # the ARN of {{id}}"
)

UNTAG_COMMANDS: Final = {
    "aws.balancer": _ELBV2_UNTAG,
    "aws.classic-balancer": _ELB_UNTAG,
    "aws.cloud-control": _CLOUD_CONTROL_UNTAG,
    "aws.ecr-repository": _ECR_UNTAG,
    "aws.elastic-ip": _EC2_UNTAG,
    "aws.iam-policy": f"aws iam untag-policy --region {{region}} --policy-arn {{id}} --tag-keys {RETAINED_TAG}",
    "aws.iam-role": f"aws iam untag-role --region {{region}} --role-name {{id}} --tag-keys {RETAINED_TAG}",
    "aws.kms-key": _KMS_UNTAG,
    "aws.log-group": _LOGS_UNTAG,
    "aws.nat-gateway": _EC2_UNTAG,
    "aws.network-interface": _EC2_UNTAG,
    "aws.rds-cluster": _RDS_UNTAG.replace("{type}", "cluster"),
    "aws.rds-instance": _RDS_UNTAG.replace("{type}", "db"),
    "aws.s3-bucket": _S3_UNTAG,
    "aws.secret": _SECRET_UNTAG,
    "aws.security-group": _EC2_UNTAG,
    "aws.target-group": _ELBV2_UNTAG,
    "aws.volume": _EC2_UNTAG,
    "aws.vpc-endpoint": _EC2_UNTAG,
}
"""By kind, every kind of the AWS provider: the command by which a person takes the tag off."""


def untag_command(place: str, kind: str, one: str) -> str:
    command = UNTAG_COMMANDS.get(kind)
    if command is None:
        return f"remove the tag {RETAINED_TAG} from {one} with the command of its service"
    _, account, region = place.split("/")
    return command.format(region=region, account=account, partition=partition_of(region), id=one)


AWS_PLACES: Final = KeptPlaces(
    provider="aws", form="aws/ACCOUNT/REGION", pattern=r"aws/\d{12}/[a-z0-9-]+", untag=untag_command
)
"""The settings name no region, so no place."""
