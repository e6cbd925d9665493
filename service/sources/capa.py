"""Source of clusters on AWS, by Cluster API Provider AWS (CAPA): its names, settings, permissions and declaration.

Objects and resources carry the names longer than any process lives, so they must not change.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Final, Literal, get_args

import msgspec

from service.durations import NotNegative
from service.policy.capi import (
    CLUSTER_PAUSED,
    CLUSTERS,
    DELETE_FOR_MOVE,
    MACHINE_POOLS,
    MACHINES,
    pause_or_move,
    pause_reason,
    read_owning_cluster,
)
from service.sources.aws import AWS_PLACES, AwsAccess
from service.sources.declaration import (
    AccessRules,
    AccountAnnotation,
    CannotRead,
    ConfiguredSource,
    MarkingRule,
    NamespaceRules,
    ReadObject,
    Rule,
    Section,
    Sections,
    Source,
    Switch,
    TaskChoice,
)

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

AWS_CLUSTERS: Final = "awsclusters.infrastructure.cluster.x-k8s.io"
AWS_MANAGED_CONTROL_PLANES: Final = "awsmanagedcontrolplanes.controlplane.cluster.x-k8s.io"
CAPA: Final = "capa"
"""The collector of both resources."""

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


class AwsSettings(AwsAccess, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of clusters on AWS. The defaults are cautious; a cluster's annotation may choose among the allowed
    tasks."""

    # Kinds of resources that are deleted with a cluster, unless its annotation names others.
    tasks: tuple[Task, ...] = DEFAULT_TASKS
    # Tasks that a cluster's annotation may choose; default: those in `tasks`.
    allowed_tasks: tuple[Task, ...] | None = None
    # Through the tagging API, through describe calls, or (auto) the former where it is available.
    finding: Literal["auto", "tagging", "describe"] = "auto"
    # How long after the last removal a fresh list must be empty before the finalizer is removed.
    settle: NotNegative = timedelta(seconds=60)
    # Retained, abandoned or dropped resources get the tag knell.dev/retained, where permissions allow it.
    mark_retained: bool = True
    # Else a resource more than an hour older than its object is held: it may belong to an earlier one of that name.
    accept_older: bool = False
    # Whether the annotation knell.dev/adopted may allow the same for one object.
    allow_adopted: bool = False
    # The namespace of Cluster API Provider AWS, with the Secrets of static identities.
    identity_namespace: Annotated[str, msgspec.Meta(min_length=1)] = CAPA_NAMESPACE

    @property
    def allowed(self) -> tuple[Task, ...]:
        return self.tasks if self.allowed_tasks is None else self.allowed_tasks

    def contradictions(self, _sources: Mapping[str, ConfiguredSource]) -> list[tuple[str, str]]:
        if not self.tasks:
            return [("aws.tasks", "names no task; where nothing is to be removed, take the source out or pause it")]
        if beyond := [task for task in self.tasks if task not in self.allowed]:
            return [("aws.tasks", f"names {', '.join(beyond)}, which aws.allowed_tasks does not allow")]
        return []


async def _marking_objection(read: ReadObject, namespace: str, owner: str | None) -> str:
    """`clusterctl move` pauses the Cluster and removes the finalizers of its objects: one that was added after that
    would block the move, and have a cluster collected that lives on elsewhere. An object without a Cluster is not
    collected, so it does not get a finalizer; it is seen again when it gets an owner."""
    if owner is None:
        return "its owner references do not say which Cluster it belongs to"
    if not owner:
        return "it belongs to no Cluster yet"
    try:
        found = await read(CLUSTERS, namespace, owner)
    except CannotRead as error:
        return f"it belongs to Cluster {namespace}/{owner}, which can't be read: {error}"
    if found is None:
        return f"it belongs to Cluster {namespace}/{owner}, and there is none"
    why = pause_reason(found)
    return "" if why is None else f"its Cluster {namespace}/{owner} is paused ({why})"


def _allowed_tasks(settings: Sections) -> tuple[Task, ...]:
    return settings.section(AwsSettings).allowed


def _chosen_tasks(settings: Sections) -> tuple[Task, ...]:
    return settings.section(AwsSettings).tasks


def _identity_namespace(settings: Sections) -> str:
    return settings.section(AwsSettings).identity_namespace


def _rules() -> AccessRules:
    clusters, _, core = CLUSTERS.partition(".")
    aws_clusters, _, infrastructure = AWS_CLUSTERS.partition(".")
    planes, _, control_plane = AWS_MANAGED_CONTROL_PLANES.partition(".")
    machines = tuple(resource.partition(".")[0] for resource in (MACHINE_POOLS, MACHINES))
    identities = ("awsclustercontrolleridentities", "awsclusterroleidentities", "awsclusterstaticidentities")
    return AccessRules(
        definitions=(AWS_CLUSTERS, AWS_MANAGED_CONTROL_PLANES, MACHINE_POOLS),
        # Identities have no namespace, and a cluster of the same name may be in any namespace.
        cluster=(
            Rule(control_plane, (planes,), ("list",)),
            Rule(infrastructure, (aws_clusters,), ("list",)),
            Rule(infrastructure, identities, ("get",)),
        ),
        objects=(Rule(core, (clusters,), ("get",)), Rule(core, machines, ("list",))),
        # Secrets of static identities, whose names are only in the identities; and the CAPA Deployment, for `knell
        # doctor`.
        namespaces=(
            NamespaceRules(
                "aws",
                _identity_namespace,
                (Rule("", ("secrets",), ("get",)), Rule("apps", ("deployments",), ("get",), (CAPA_MANAGER,))),
            ),
        ),
    )


SOURCE: Final = Source(
    name=CAPA,
    components="workers.collectors.capa.components",
    aws_policy="workers.collectors.capa.permissions",
    resources=(AWS_CLUSTERS, AWS_MANAGED_CONTROL_PLANES),
    finalizer=AWS_FINALIZER,
    # AWS resources are identified by the live object, which has our finalizer until all of them are gone.
    modes=("finalizer",),
    switch=Switch(EXTERNAL_RESOURCE_GC, enabled="true", disabled="false"),
    tasks=TaskChoice(EXTERNAL_RESOURCE_TASKS, TASKS, "aws.allowed_tasks", _allowed_tasks, _chosen_tasks),
    account=AccountAnnotation(AWS_ACCOUNT, r"\d{12}", "12 digits"),
    feature=FEATURE,
    sections=(Section("aws", AwsSettings),),
    annotations=frozenset({EXTERNAL_RESOURCE_GC, EXTERNAL_RESOURCE_TASKS, CLUSTER_PAUSED, DELETE_FOR_MOVE}),
    pause=pause_or_move,
    rules=_rules(),
    may_mark=MarkingRule(read_owning_cluster, _marking_objection),
    kept=AWS_PLACES,
    capi_kinds={"AWSCluster": AWS_CLUSTERS, "AWSManagedControlPlane": AWS_MANAGED_CONTROL_PLANES},
)
