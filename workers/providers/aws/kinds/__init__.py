"""The declared kinds of resources, one file each, and lookups by name and ARN. Begin with `elastic_ips` for a
simple kind and `volumes` for one with steps. CONTRIBUTING.md says how a kind is added."""

import re
from collections.abc import Iterable
from typing import Final

from workers.providers.aws.kinds.classic_load_balancers import CLASSIC_LOAD_BALANCER
from workers.providers.aws.kinds.cloud_control import CLOUD_CONTROL
from workers.providers.aws.kinds.declaration import AwsKind
from workers.providers.aws.kinds.ecr_repositories import ECR_REPOSITORY
from workers.providers.aws.kinds.elastic_ips import ELASTIC_IP
from workers.providers.aws.kinds.iam_policies import IAM_POLICY
from workers.providers.aws.kinds.iam_roles import IAM_ROLE
from workers.providers.aws.kinds.kms_keys import KMS_KEY
from workers.providers.aws.kinds.load_balancers import LOAD_BALANCER
from workers.providers.aws.kinds.log_groups import LOG_GROUP
from workers.providers.aws.kinds.nat_gateways import NAT_GATEWAY
from workers.providers.aws.kinds.network_interfaces import NETWORK_INTERFACE
from workers.providers.aws.kinds.rds_clusters import RDS_CLUSTER
from workers.providers.aws.kinds.rds_instances import RDS_INSTANCE
from workers.providers.aws.kinds.s3_buckets import S3_BUCKET
from workers.providers.aws.kinds.secrets import SECRET
from workers.providers.aws.kinds.security_groups import SECURITY_GROUP
from workers.providers.aws.kinds.target_groups import TARGET_GROUP
from workers.providers.aws.kinds.volumes import VOLUME
from workers.providers.aws.kinds.vpc_endpoints import VPC_ENDPOINT

__all__ = ["IDENTIFIER_KINDS", "KINDS", "kind_named", "kind_of_arn"]

KINDS: Final[tuple[AwsKind, ...]] = (
    CLASSIC_LOAD_BALANCER,
    LOAD_BALANCER,
    TARGET_GROUP,
    SECURITY_GROUP,
    NETWORK_INTERFACE,
    VPC_ENDPOINT,
    NAT_GATEWAY,
    ELASTIC_IP,
    VOLUME,
)

IDENTIFIER_KINDS: Final[tuple[AwsKind, ...]] = (
    S3_BUCKET,
    RDS_INSTANCE,
    RDS_CLUSTER,
    IAM_ROLE,
    IAM_POLICY,
    ECR_REPOSITORY,
    KMS_KEY,
    SECRET,
    LOG_GROUP,
    CLOUD_CONTROL,
)
"""Kinds whose resources are found by identifier only, not by tags. A collector adds those that it removes to the
provider, which has none of them by itself."""

_NAMED: Final = {kind.name: kind for kind in KINDS}


def kind_named(name: str) -> AwsKind | None:
    return _NAMED.get(name)


def kind_of_arn(text: str, kinds: Iterable[AwsKind] = KINDS) -> tuple[AwsKind, str] | None:
    """The kind, and the id to read it by; None if the ARN can't be parsed or is of none of these kinds."""
    for kind in kinds:
        arn = kind.arn_of_type(text)
        if arn is None or not arn.partition.startswith("aws") or not (arn.region and arn.account):
            continue
        if re.fullmatch(kind.id_pattern, arn.id):
            return kind, text if kind.id_is_arn else arn.id
    return None
