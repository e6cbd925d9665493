"""Clusters, nodes and objects of ACK of the demo, and what must have become of each at the end.
Most are deleted with everything they own; a few are protected, retained or not deleted at all."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from service.contract.names import ACK_PREFIX, DELETION_POLICY, PREFIX, PREVENT_DELETE

PROTECTION: Final = f"{PREFIX}/{PREVENT_DELETE}"
RETENTION: Final = f"{PREFIX}/{DELETION_POLICY}"
ACK_RETENTION: Final = f"{ACK_PREFIX}/{DELETION_POLICY}"
POOL: Final = "web"

Outcome = Literal["removed", "retained", "untouched"]
"""Of the resources: removed with the object, kept although the object is deleted, or kept with the object."""
Leftover = Literal["machine", "interface and disk", "interface and address", "interface"]


@dataclass(frozen=True, slots=True)
class DemoCluster:
    """A Cluster API cluster on AWS. `late`: deleted only after a replica was killed."""

    name: str
    outcome: Outcome = "removed"
    late: bool = False
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DemoNode:
    """A Karpenter node on Azure: its NodeClaim has this name, and `leftover` is what exists of it on Azure."""

    name: str
    leftover: Leftover
    outcome: Outcome = "removed"
    late: bool = False


@dataclass(frozen=True, slots=True)
class DemoAckObject:
    """An object of AWS Controllers for Kubernetes, whose resource on AWS has the same name. No controller runs."""

    kind: Literal["Bucket", "Queue"]
    name: str
    outcome: Outcome = "removed"
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Fleet:
    """`protected` is a cluster that nothing may be deleted of before its annotation is removed; `reserved` is a node
    whose network interface Azure reserves for another VM at first. The rest are objects of ACK."""

    clusters: tuple[DemoCluster, ...]
    nodes: tuple[DemoNode, ...]
    protected: DemoCluster
    retained: DemoCluster
    reserved: DemoNode
    queue: DemoAckObject
    bucket: DemoAckObject
    live_queue: DemoAckObject

    @property
    def ack(self) -> tuple[DemoAckObject, ...]:
        return self.queue, self.bucket, self.live_queue

    @property
    def deleted_ack(self) -> list[DemoAckObject]:
        return [one for one in self.ack if one.outcome != "untouched"]

    @property
    def deleted_clusters(self) -> list[DemoCluster]:
        return [one for one in self.clusters if one.outcome != "untouched"]

    @property
    def deleted_nodes(self) -> list[DemoNode]:
        return [one for one in self.nodes if one.outcome != "untouched"]

    @property
    def deletions(self) -> int:
        return len(self.deleted_clusters) + len(self.deleted_nodes) + len(self.deleted_ack)


def make_fleet(clusters: int, nodes: int) -> Fleet:
    """So many clusters and nodes are deleted; one more of each is not."""
    protected = DemoCluster("billing", annotations={PROTECTION: "true"})
    retained = DemoCluster("archive", "retained", annotations={RETENTION: "retain"})
    reserved = DemoNode(f"{POOL}-reserved", "interface")
    plain_clusters, plain_nodes = clusters - 2, nodes - 1
    late_clusters, late_nodes = max(1, plain_clusters // 5), max(1, plain_nodes // 5)
    # A machine that is deleted takes its interface and disk along; without one they are deleted by themselves.
    leftovers: tuple[Leftover, ...] = ("machine", "interface and disk", "interface and address")
    return Fleet(
        clusters=(
            *(DemoCluster(f"shop-{n + 1:02}", late=n >= plain_clusters - late_clusters) for n in range(plain_clusters)),
            protected,
            retained,
            DemoCluster("live", "untouched"),
        ),
        nodes=(
            reserved,
            *(
                DemoNode(f"{POOL}-{n + 1:02}", leftovers[n % len(leftovers)], late=n >= plain_nodes - late_nodes)
                for n in range(plain_nodes)
            ),
            DemoNode(f"{POOL}-live", "machine", "untouched"),
        ),
        protected=protected,
        retained=retained,
        reserved=reserved,
        queue=DemoAckObject("Queue", "orders"),
        bucket=DemoAckObject("Bucket", "invoices", "retained", {ACK_RETENTION: "retain"}),
        live_queue=DemoAckObject("Queue", "returns", "untouched"),
    )
