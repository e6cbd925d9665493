"""Names that Knell shares with Cluster API Provider AWS (CAPA): annotations, finalizer, tags and tasks.

Objects and resources carry them longer than any process lives, so they must not change.
"""

from typing import Final, Literal, get_args

EXTERNAL_RESOURCE_GC: Final = "aws.cluster.x-k8s.io/external-resource-gc"
"""`true` or absent: resources are deleted with the cluster. `false`: they are kept."""

EXTERNAL_RESOURCE_TASKS: Final = "aws.cluster.x-k8s.io/external-resource-tasks-gc"
"""Comma-separated tasks that replace those of the settings for this cluster."""

AWS_FINALIZER: Final = "awsexternalresourcegc.infrastructure.cluster.x-k8s.io"
"""Holds an object until its external resources are removed."""

AWS_ACCOUNT: Final = "knell.dev/aws-account"
"""The account of the object's resources; the deletion is held where the caller has another one."""

ADOPTED: Final = "knell.dev/adopted"
"""`true`: resources older than the object belong to it, as after `clusterctl move`; where the settings allow it."""

FEATURE: Final = "ExternalResourceGC"

CLUSTER_PAUSED: Final = "cluster.x-k8s.io/paused"
DELETE_FOR_MOVE: Final = "clusterctl.cluster.x-k8s.io/delete-for-move"
CLUSTER_NAME: Final = "cluster.x-k8s.io/cluster-name"
"""Label of Cluster API with the name of the Cluster that an object belongs to."""

AWS_CLUSTERS: Final = "awsclusters.infrastructure.cluster.x-k8s.io"
AWS_MANAGED_CONTROL_PLANES: Final = "awsmanagedcontrolplanes.controlplane.cluster.x-k8s.io"
CAPA: Final = "capa"
"""The collector of both resources."""

CLUSTERS: Final = "clusters.cluster.x-k8s.io"
"""The Clusters of Cluster API that own them."""

MACHINES: Final = "machines.cluster.x-k8s.io"
MACHINE_POOLS: Final = "machinepools.cluster.x-k8s.io"
"""Objects that show that a Cluster is still running."""

CAPA_NAMESPACE: Final = "capa-system"
"""The namespace of CAPA and of the Secrets of static identities."""

CAPA_MANAGER: Final = "capa-controller-manager"
"""The Deployment of CAPA."""

CONTROLLER_IDENTITY: Final = "AWSClusterControllerIdentity"
ROLE_IDENTITY: Final = "AWSClusterRoleIdentity"
STATIC_IDENTITY: Final = "AWSClusterStaticIdentity"
"""Kinds of identities in spec.identityRef."""

OWNED: Final = "owned"
SERVICE_NAME: Final = "kubernetes.io/service-name"
EKS_CLUSTER_NAME: Final = "aws:eks:cluster-name"
LBC_CLUSTER: Final = "elbv2.k8s.aws/cluster"
"""Tag of the AWS Load Balancer Controller."""

Task = Literal[
    "load-balancer", "target-group", "security-group", "aws-load-balancer-controller", "volume", "network-interface",
    "elastic-ip", "nat-gateway", "vpc-endpoint",
]  # fmt: skip
TASKS: Final[tuple[Task, ...]] = get_args(Task)
DEFAULT_TASKS: Final[tuple[Task, ...]] = ("load-balancer", "target-group", "security-group")


def ownership_tag(cluster: str) -> str:
    """The tag that the cloud provider of the workload cluster writes, with the value `owned`."""
    return f"kubernetes.io/cluster/{cluster}"


def capi_ownership_tag(cluster: str) -> str:
    """The tag of resources that Cluster API manages and deletes itself."""
    return f"sigs.k8s.io/cluster-api-provider-aws/cluster/{cluster}"
