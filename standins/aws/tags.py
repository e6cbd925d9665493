"""The tags by which resources of a cluster are known, as those who make them write them.
A world that is built for tests carries the same ones, under names of its own."""

import uuid
from typing import Final

from service.contract.aws import LBC_CLUSTER, OWNED, SERVICE_NAME, capi_ownership_tag, ownership_tag

Tags = dict[str, str]
_LONGEST_NAME: Final = 32


def by_cloud_provider(cluster: str, service: str = "") -> Tags:
    """Of the cloud provider of the tenant cluster; balancers and target groups name the Service they are for."""
    tags = {ownership_tag(cluster): OWNED}
    return {**tags, SERVICE_NAME: service} if service else tags


def by_balancer_controller(cluster: str, stack: str = "default/web") -> Tags:
    """Of the AWS Load Balancer Controller, which does not write the cluster's ownership tag."""
    return {LBC_CLUSTER: cluster, "service.k8s.aws/stack": stack, "service.k8s.aws/resource": "LoadBalancer"}


def by_cluster_api(cluster: str, role: str = "apiserver") -> Tags:
    """Of Cluster API itself: such a resource may carry the ownership tag as well, and is not to be collected."""
    tags = {capi_ownership_tag(cluster): OWNED, "sigs.k8s.io/cluster-api-provider-aws/role": role}
    return {**tags, ownership_tag(cluster): OWNED}


def pairs(tags: Tags) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def named(front: str) -> str:
    """A name that nothing else has, within what balancers may be called."""
    return f"{front}-{uuid.uuid4().hex}"[:_LONGEST_NAME]
