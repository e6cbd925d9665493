"""What sources with resources on AWS share: the settings of calls and removals there, and the places of kept resources.
No source itself."""

from datetime import timedelta
from typing import Annotated, Final

import msgspec

from service.contract.kept import RETAINED_TAG
from service.durations import Positive
from service.sources.declaration import KeptPlaces


class AwsAccess(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A part of the section `aws`."""

    # EBS volumes (task volume): a snapshot is completed before the volume is deleted.
    snapshot_first: bool = False
    # Else a load balancer with deletion protection blocks the deletion.
    lift_deletion_protection: bool = False
    # Revoke rules of foreign security groups that refer to the cluster's own groups; no other rules.
    revoke_foreign_rules: bool = False
    # The account that the credentials of the process must belong to.
    account: Annotated[str, msgspec.Meta(pattern=r"\A\d{12}\Z", description="12 digits, in quotes")] | None = None
    # One endpoint for all services: that of a stand-in, or of a VPC endpoint.
    endpoint: Annotated[str, msgspec.Meta(pattern=r"\Ahttps?://\S+\Z", description="http(s)://host:port")] | None = None
    # How long after a deletion its absence is checked, and how often draining interfaces are checked.
    check_after: Positive = timedelta(seconds=5)
    drain_check: Positive = timedelta(seconds=3)


_EC2_UNTAG: Final = f"aws ec2 delete-tags --region {{region}} --resources {{id}} --tags Key={RETAINED_TAG}"
_ELB_UNTAG: Final = f"aws elb remove-tags --region {{region}} --load-balancer-names {{id}} --tags Key={RETAINED_TAG}"
_ELBV2_UNTAG: Final = f"aws elbv2 remove-tags --region {{region}} --resource-arns {{id}} --tag-keys {RETAINED_TAG}"

UNTAG_COMMANDS: Final = {
    "aws.balancer": _ELBV2_UNTAG,
    "aws.classic-balancer": _ELB_UNTAG,
    "aws.elastic-ip": _EC2_UNTAG,
    "aws.nat-gateway": _EC2_UNTAG,
    "aws.network-interface": _EC2_UNTAG,
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
    return command.format(region=place.split("/")[2], id=one)


AWS_PLACES: Final = KeptPlaces(
    provider="aws", form="aws/ACCOUNT/REGION", pattern=r"aws/\d{12}/[a-z0-9-]+", untag=untag_command
)
"""The settings name no region, so no place."""
