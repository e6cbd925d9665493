"""The names that Cluster API on AWS and Knell share: annotations, finalizer, tags, tasks.

They are a contract with objects and resources that outlive any process, and with Cluster API Provider AWS (CAPA).
"""

from typing import Final, Literal, get_args

EXTERNAL_RESOURCE_GC: Final = "aws.cluster.x-k8s.io/external-resource-gc"
"""`true`, or absent: collected. `false`: left alone."""

EXTERNAL_RESOURCE_TASKS: Final = "aws.cluster.x-k8s.io/external-resource-tasks-gc"
"""A comma list of tasks that replaces the ones of the settings for this cluster."""

AWS_FINALIZER: Final = "awsexternalresourcegc.infrastructure.cluster.x-k8s.io"
"""Shows that an object is marked for collection, and holds it until that is done."""

AWS_ACCOUNT: Final = "knell.dev/aws-account"
"""The account that the object's resources are in; collection holds where the caller's is another."""

ADOPTED: Final = "knell.dev/adopted"
"""`true`: what is older than the object is its own, as after `clusterctl move`; counts where settings allow it."""

FEATURE: Final = "ExternalResourceGC"

CLUSTER_PAUSED: Final = "cluster.x-k8s.io/paused"
DELETE_FOR_MOVE: Final = "clusterctl.cluster.x-k8s.io/delete-for-move"
CLUSTER_NAME: Final = "cluster.x-k8s.io/cluster-name"
"""The label by which Cluster API names the Cluster that an object belongs to."""

AWS_CLUSTERS: Final = "awsclusters.infrastructure.cluster.x-k8s.io"
AWS_MANAGED_CONTROL_PLANES: Final = "awsmanagedcontrolplanes.controlplane.cluster.x-k8s.io"
CAPA: Final = "capa"
"""The collector of both kinds."""

CLUSTERS: Final = "clusters.cluster.x-k8s.io"
"""Cluster API's own, to which both belong."""

MACHINES: Final = "machines.cluster.x-k8s.io"
MACHINE_POOLS: Final = "machinepools.cluster.x-k8s.io"
"""What still runs of a Cluster."""

CAPA_NAMESPACE: Final = "capa-system"
"""Where CAPA runs, and where it looks for the Secrets of static identities."""

CAPA_MANAGER: Final = "capa-controller-manager"
"""The Deployment that CAPA is, there."""

CONTROLLER_IDENTITY: Final = "AWSClusterControllerIdentity"
ROLE_IDENTITY: Final = "AWSClusterRoleIdentity"
STATIC_IDENTITY: Final = "AWSClusterStaticIdentity"
"""The kinds of identity that an object's spec.identityRef may name."""

OWNED: Final = "owned"
SERVICE_NAME: Final = "kubernetes.io/service-name"
EKS_CLUSTER_NAME: Final = "aws:eks:cluster-name"
LBC_CLUSTER: Final = "elbv2.k8s.aws/cluster"
"""By which the AWS Load Balancer Controller knows its resources."""

Task = Literal[
    "load-balancer", "target-group", "security-group", "aws-load-balancer-controller", "volume", "network-interface",
    "elastic-ip", "nat-gateway", "vpc-endpoint",
]  # fmt: skip
TASKS: Final[tuple[Task, ...]] = get_args(Task)
DEFAULT_TASKS: Final[tuple[Task, ...]] = ("load-balancer", "target-group", "security-group")


def ownership_tag(cluster: str) -> str:
    """What the cloud provider of the tenant cluster writes, with the value `owned`."""
    return f"kubernetes.io/cluster/{cluster}"


def capi_ownership_tag(cluster: str) -> str:
    """What Cluster API's own resources carry; those go with the cluster, not with us."""
    return f"sigs.k8s.io/cluster-api-provider-aws/cluster/{cluster}"
