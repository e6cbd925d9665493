"""Resources of ACK by service, for sources that are about a whole service. A kind that is not here can be named by a
source of its own."""

from collections.abc import Mapping
from typing import Final

from service.contract.names import ACK_PREFIX

_PLURALS: Final[Mapping[str, tuple[str, ...]]] = {
    "acm": ("certificates",),
    "apigatewayv2": ("apis",),
    "cloudwatchlogs": ("loggroups",),
    "dynamodb": ("tables",),
    "ec2": (
        "elasticipaddresses", "instances", "internetgateways", "natgateways", "routetables", "securitygroups",
        "subnets", "vpcs",
    ),
    "ecr": ("repositories",),
    "efs": ("filesystems",),
    "eks": ("addons", "clusters", "fargateprofiles", "nodegroups"),
    "elasticache": ("replicationgroups",),
    "eventbridge": ("rules",),
    "iam": ("instanceprofiles", "policies", "roles", "users"),
    "kafka": ("clusters",),
    "kms": ("keys",),
    "lambda": ("functions",),
    "memorydb": ("clusters",),
    "opensearchservice": ("domains",),
    "rds": ("dbclusters", "dbinstances"),
    "route53": ("hostedzones",),
    "s3": ("buckets",),
    "secretsmanager": ("secrets",),
    "sfn": ("statemachines",),
    "sns": ("topics",),
    "sqs": ("queues",),
}  # fmt: skip

ACK_SERVICES: Final[Mapping[str, tuple[str, ...]]] = {
    f"{service}.{ACK_PREFIX}": tuple(f"{plural}.{service}.{ACK_PREFIX}" for plural in plurals)
    for service, plurals in _PLURALS.items()
}
"""By API group: the resources that are removed, as plural.group."""
