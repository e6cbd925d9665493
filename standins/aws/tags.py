"""Tags of cluster resources, as the controllers that create them write them.
Test resources carry the same tags and unique names."""

import uuid
from typing import Final

from service.sources.capa import LBC_CLUSTER, OWNED, SERVICE_NAME, capi_ownership_tag, ownership_tag

Tags = dict[str, str]
_LONGEST_NAME: Final = 32


def by_cloud_provider(cluster: str, service: str = "") -> Tags:
    """Tags of the cloud provider in the workload cluster; load balancers and target groups also name their Service."""
    tags = {ownership_tag(cluster): OWNED}
    return {**tags, SERVICE_NAME: service} if service else tags


def by_balancer_controller(cluster: str, stack: str = "default/web") -> Tags:
    """Tags of the AWS Load Balancer Controller, which does not write the ownership tag of the cluster."""
    return {LBC_CLUSTER: cluster, "service.k8s.aws/stack": stack, "service.k8s.aws/resource": "LoadBalancer"}


def by_cluster_api(cluster: str, role: str = "apiserver") -> Tags:
    """Tags of Cluster API itself: such a resource may carry the ownership tag too, and must not be collected."""
    tags = {capi_ownership_tag(cluster): OWNED, "sigs.k8s.io/cluster-api-provider-aws/role": role}
    return {**tags, ownership_tag(cluster): OWNED}


def pairs(tags: Tags) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def named(front: str) -> str:
    """A unique name, short enough for a load balancer."""
    return f"{front}-{uuid.uuid4().hex}"[:_LONGEST_NAME]
