"""The declared kinds of resources, one file each, and lookups by name, task and ARN. Begin with `volumes` for a simple
kind and `security_groups` for one with steps. A new kind is a file here, its name in this list, and a test."""

import re
from typing import Final

from service.contract.aws import Task
from workers.handlers.aws.kinds.classic_load_balancers import CLASSIC_LOAD_BALANCER
from workers.handlers.aws.kinds.elastic_ips import ELASTIC_IP
from workers.handlers.aws.kinds.load_balancers import LOAD_BALANCER
from workers.handlers.aws.kinds.nat_gateways import NAT_GATEWAY
from workers.handlers.aws.kinds.network_interfaces import NETWORK_INTERFACE
from workers.handlers.aws.kinds.security_groups import SECURITY_GROUP
from workers.handlers.aws.kinds.target_groups import TARGET_GROUP
from workers.handlers.aws.kinds.volumes import VOLUME
from workers.handlers.aws.kinds.vpc_endpoints import VPC_ENDPOINT
from workers.handlers.aws.model import AwsKind

__all__ = ["KINDS", "kind_named", "kind_of_arn", "kinds_of"]

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

_NAMED: Final = {kind.name: kind for kind in KINDS}


def kind_named(name: str) -> AwsKind | None:
    return _NAMED.get(name)


def kinds_of(task: Task) -> tuple[AwsKind, ...]:
    """The kinds that a task removes; the Load Balancer Controller's task has several, identified by another tag."""
    if task == "aws-load-balancer-controller":
        return tuple(kind for kind in KINDS if kind.made_by_lbc)
    return tuple(kind for kind in KINDS if kind.task == task)


def kind_of_arn(arn: str) -> tuple[AwsKind, str] | None:
    """The kind, and the id to read it by; None if the ARN can't be parsed or is of no declared kind."""
    parts = arn.split(":", 5)
    if len(parts) != 6 or parts[0] != "arn" or not parts[1].startswith("aws") or not (parts[3] and parts[4]):
        return None
    type_, _, rest = parts[5].partition("/")
    for kind in KINDS:
        if kind.arn == (parts[2], type_) and re.fullmatch(kind.id_pattern, rest):
            return kind, arn if kind.id_is_arn else rest
    return None
