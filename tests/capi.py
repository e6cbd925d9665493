"""Objects of Cluster API and its AWS provider on an API server: their CRDs in all served versions, and instances.
The CRDs are shared by all tests of a server; each test has a Namespace of its own."""

from typing import Any, Final

from tests.kube import Crd, Kube

CORE: Final = "cluster.x-k8s.io"
INFRASTRUCTURE: Final = "infrastructure.cluster.x-k8s.io"
CONTROL_PLANE: Final = "controlplane.cluster.x-k8s.io"
# The first is the one that is stored.
VERSIONS: Final = ("v1beta2", "v1beta1")

CLUSTERS: Final = Crd(CORE, "clusters", versions=VERSIONS, called="Cluster")
MACHINES: Final = Crd(CORE, "machines", versions=VERSIONS, called="Machine")
MACHINE_POOLS: Final = Crd(CORE, "machinepools", versions=VERSIONS, called="MachinePool")
AWS_CLUSTERS: Final = Crd(INFRASTRUCTURE, "awsclusters", versions=VERSIONS, called="AWSCluster")
AWS_MANAGED_CLUSTERS: Final = Crd(INFRASTRUCTURE, "awsmanagedclusters", versions=VERSIONS, called="AWSManagedCluster")
AWS_MANAGED_CONTROL_PLANES: Final = Crd(
    CONTROL_PLANE, "awsmanagedcontrolplanes", versions=VERSIONS, called="AWSManagedControlPlane"
)
CONTROLLER_IDENTITIES: Final = Crd(
    INFRASTRUCTURE, "awsclustercontrolleridentities", "Cluster", VERSIONS, "AWSClusterControllerIdentity"
)
ROLE_IDENTITIES: Final = Crd(INFRASTRUCTURE, "awsclusterroleidentities", "Cluster", VERSIONS, "AWSClusterRoleIdentity")
STATIC_IDENTITIES: Final = Crd(
    INFRASTRUCTURE, "awsclusterstaticidentities", "Cluster", VERSIONS, "AWSClusterStaticIdentity"
)
KINDS: Final = (
    CLUSTERS, MACHINES, MACHINE_POOLS, AWS_CLUSTERS, AWS_MANAGED_CLUSTERS, AWS_MANAGED_CONTROL_PLANES,
    CONTROLLER_IDENTITIES, ROLE_IDENTITIES, STATIC_IDENTITIES,
)  # fmt: skip


def install(kube: Kube) -> None:
    """All kinds, unless they are there: they stay as long as the server, for other tests may be about them, too."""
    missing = [crd for crd in KINDS if kube.get(crd.own_path) is None]
    for crd in missing:
        kube.define(crd)
    for crd in missing:
        kube.wait_until_served(crd)


def clear(kube: Kube) -> None:
    """Takes away what earlier tests left of the server's clusters: namesakes are looked for in all Namespaces."""
    for crd in (AWS_CLUSTERS, AWS_MANAGED_CONTROL_PLANES):
        found: Any = kube.request("GET", crd.path()).body
        for item in found.get("items") or [] if isinstance(found, dict) else []:
            path = crd.path(item["metadata"]["namespace"], item["metadata"]["name"])
            if item["metadata"].get("finalizers"):
                kube.request("PATCH", path, {"metadata": {"finalizers": None}}, patch="merge")
            kube.request("DELETE", path)


def reference(crd: Crd, name: str, *, old: bool = False) -> dict[str, str]:
    """As a Cluster's spec names another object: since v1beta2 by its group, before that by a version of it."""
    where = {"apiVersion": f"{crd.group}/{crd.versions[-1]}"} if old else {"apiGroup": crd.group}
    return {**where, "kind": crd.kind, "name": name}


class CapiObjects:
    """Clusters in one Namespace. What is given as `metadata` is laid over what is made."""

    def __init__(self, kube: Kube, namespace: str) -> None:
        self.kube, self.namespace = kube, namespace
        install(kube)

    # ---- objects

    def unmanaged(
        self,
        name: str,
        *,
        infra: str = "",
        region: str = "us-east-1",
        vpc: str = "",
        identity: dict[str, str] | None = None,
        paused: bool = False,
        old: bool = False,
        **metadata: object,
    ) -> Any:
        """A Cluster and its AWSCluster, which has the Cluster's name unless `infra` says another; the AWSCluster."""
        refs = {"infrastructureRef": reference(AWS_CLUSTERS, infra or name, old=old)}
        owner = self.cluster(name, paused=paused, **refs)
        spec: dict[str, object] = {"region": region}
        if vpc:
            spec["network"] = {"vpc": {"id": vpc}}
        if identity:
            spec["identityRef"] = identity
        return self.create(AWS_CLUSTERS, infra or name, spec, **{**self.owned_by(owner), **metadata})

    def managed(
        self,
        name: str,
        *,
        infra: str = "",
        eks: str = "",
        region: str = "us-east-1",
        vpc: str = "",
        identity: dict[str, str] | None = None,
        paused: bool = False,
        old: bool = False,
        **metadata: object,
    ) -> Any:
        """A Cluster on EKS and its AWSManagedControlPlane `infra`; `eks` is the EKS cluster's name. The control plane
        is what comes back."""
        plane = infra or f"{name}-control-plane"
        refs = {
            "infrastructureRef": reference(AWS_MANAGED_CLUSTERS, name, old=old),
            "controlPlaneRef": reference(AWS_MANAGED_CONTROL_PLANES, plane, old=old),
        }
        owner = self.cluster(name, paused=paused, **refs)
        self.create(AWS_MANAGED_CLUSTERS, name, {}, **self.owned_by(owner))
        spec: dict[str, object] = {"region": region, "eksClusterName": eks or f"{self.namespace}_{plane}"}
        if vpc:
            spec["network"] = {"vpc": {"id": vpc}}
        if identity:
            spec["identityRef"] = identity
        return self.create(AWS_MANAGED_CONTROL_PLANES, plane, spec, **{**self.owned_by(owner), **metadata})

    def cluster(
        self, name: str, *, paused: bool = False, annotations: dict[str, str] | None = None, **spec: Any
    ) -> Any:
        """A Cluster alone; what is given by name besides is its spec."""
        return self.create(CLUSTERS, name, {"paused": True, **spec} if paused else spec, annotations=annotations or {})

    def machine(self, name: str, cluster: str, *, pool: bool = False) -> Any:
        labels = {"cluster.x-k8s.io/cluster-name": cluster}
        return self.create(MACHINE_POOLS if pool else MACHINES, name, {"clusterName": cluster}, labels=labels)

    def identity(self, crd: Crd, name: str, spec: dict[str, object]) -> Any:
        """One of the three kinds; they have no Namespace, so their names are to be the test's own."""
        return self.kube.create(crd.path(), {**crd.body(name), "spec": spec})

    def create(self, crd: Crd, name: str, spec: dict[str, object], **metadata: object) -> Any:
        return self.kube.create(crd.path(self.namespace), {**crd.body(name, **metadata), "spec": spec})

    def owned_by(self, cluster: Any) -> dict[str, object]:
        """The metadata by which Cluster API ties an object to its Cluster."""
        name, uid = cluster["metadata"]["name"], cluster["metadata"]["uid"]
        owner = {"apiVersion": f"{CORE}/{VERSIONS[0]}", "kind": "Cluster", "name": name, "uid": uid}
        return {"ownerReferences": [owner], "labels": {"cluster.x-k8s.io/cluster-name": name}}

    # ---- reading and changing them

    def get(self, crd: Crd, name: str) -> Any:
        return self.kube.get(crd.path(self.namespace, name))

    def patch(self, crd: Crd, name: str, patch: dict[str, object]) -> Any:
        return self.kube.patch(crd.path(self.namespace, name), patch)

    def annotate(self, crd: Crd, name: str, **annotations: str | None) -> Any:
        return self.patch(crd, name, {"metadata": {"annotations": annotations}})

    def pause(self, name: str, *, paused: bool = True) -> None:
        """As `clusterctl` and people do."""
        self.patch(CLUSTERS, name, {"spec": {"paused": paused}})

    def delete(self, crd: Crd, name: str) -> None:
        self.kube.delete(crd.path(self.namespace, name))

    def finalizers(self, crd: Crd, name: str) -> list[str]:
        """None at all where it is gone."""
        found = self.get(crd, name)
        return [] if found is None else list(found["metadata"].get("finalizers", []))
