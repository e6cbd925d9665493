"""Kinds of AWS resources that are removed with a Cluster API cluster, one row each: the task that removes it, and where
it is in the order of a plan."""

from collections.abc import Collection
from typing import Final, NamedTuple

from service.sources.capa import Task
from workers.providers.aws.kinds.classic_load_balancers import CLASSIC_LOAD_BALANCER
from workers.providers.aws.kinds.declaration import AwsKind
from workers.providers.aws.kinds.elastic_ips import ELASTIC_IP
from workers.providers.aws.kinds.load_balancers import LOAD_BALANCER
from workers.providers.aws.kinds.nat_gateways import NAT_GATEWAY
from workers.providers.aws.kinds.network_interfaces import NETWORK_INTERFACE
from workers.providers.aws.kinds.security_groups import SECURITY_GROUP
from workers.providers.aws.kinds.target_groups import TARGET_GROUP
from workers.providers.aws.kinds.volumes import VOLUME
from workers.providers.aws.kinds.vpc_endpoints import VPC_ENDPOINT

CONTROLLER_TASK: Final[Task] = "aws-load-balancer-controller"

BALANCER_TASK: Final[Task] = "load-balancer"
"""The task without which the cloud provider's load balancers and their listeners stay."""

BOTH_GROUP_TASKS: Final = frozenset[Task]({"security-group", CONTROLLER_TASK})
"""Tasks that together delete all security groups of a cluster, under either tag."""


class CapaKind(NamedTuple):
    """`stage` orders the kinds of a `chain`; chains run side by side. `needs_service_tag`: only what was made for a
    Service is the cluster's. `made_by_lbc`: the Load Balancer Controller creates this kind, too."""

    kind: AwsKind
    task: Task
    chain: str
    stage: int = 0
    needs_service_tag: bool = False
    made_by_lbc: bool = False

    def wanted_by(self, tasks: Collection[str]) -> bool:
        """Whether any of the tasks removes it."""
        return self.task in tasks or (self.made_by_lbc and CONTROLLER_TASK in tasks)


_ROWS: Final = (
    CapaKind(CLASSIC_LOAD_BALANCER, "load-balancer", "classic", needs_service_tag=True),
    CapaKind(LOAD_BALANCER, "load-balancer", "network", needs_service_tag=True, made_by_lbc=True),
    CapaKind(TARGET_GROUP, "target-group", "network", 1, needs_service_tag=True, made_by_lbc=True),
    CapaKind(SECURITY_GROUP, "security-group", "network", 1, made_by_lbc=True),
    CapaKind(NETWORK_INTERFACE, "network-interface", "interfaces"),
    CapaKind(VPC_ENDPOINT, "vpc-endpoint", "endpoints"),
    CapaKind(NAT_GATEWAY, "nat-gateway", "addresses"),
    CapaKind(ELASTIC_IP, "elastic-ip", "addresses", 1),
    CapaKind(VOLUME, "volume", "volumes"),
)

CAPA_KINDS: Final = {row.kind.name: row for row in _ROWS}
"""By the name of the kind."""

TASKS_OUTSIDE_VPC: Final = frozenset[Task](row.task for row in _ROWS if not row.kind.in_vpc)
"""Tasks whose resources are in no VPC, so that only the tag identifies their owner."""


def kinds_of(task: Task) -> tuple[AwsKind, ...]:
    """The kinds that a task removes; the Load Balancer Controller's task has several, identified by another tag."""
    if task == CONTROLLER_TASK:
        return tuple(row.kind for row in _ROWS if row.made_by_lbc)
    return tuple(row.kind for row in _ROWS if row.task == task)
