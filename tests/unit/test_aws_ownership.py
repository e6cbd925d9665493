"""Ownership: only resources with the cluster's tag, in its VPC, that are not Cluster API's or EKS's own."""

import msgspec
import pytest

from service.contract.aws import EKS_CLUSTER_NAME, capi_ownership_tag
from standins.aws.tags import by_balancer_controller, by_cloud_provider, by_cluster_api
from workers.handlers.aws.capa.ownership import owner_tag, ownership_objection, removed_by
from workers.handlers.aws.kinds import KINDS
from workers.handlers.aws.kinds.load_balancers import LOAD_BALANCER
from workers.handlers.aws.kinds.security_groups import SECURITY_GROUP
from workers.handlers.aws.kinds.volumes import VOLUME
from workers.handlers.aws.model import AwsResource, CallScope, CapaCluster

WHOSE = CallScope(source="clusters", namespace="tenant", region="eu-west-1")
OWNER = CapaCluster(scope=WHOSE, account="111122223333", name="c1", vpc="vpc-1")
LBC = CapaCluster(scope=WHOSE, account="111122223333", name="c1", vpc="vpc-1", by="lbc")


def found(tags: dict[str, str], vpc: str = "vpc-1") -> AwsResource:
    return AwsResource(kind="any", id="sg-1", tags=tags, vpc=vpc)


def test_what_carries_the_clusters_tag_in_its_vpc_is_its() -> None:
    assert ownership_objection(found(by_cloud_provider("c1")), OWNER, SECURITY_GROUP) is None
    assert ownership_objection(found(by_balancer_controller("c1")), LBC, SECURITY_GROUP) is None
    # A volume is in no VPC.
    assert ownership_objection(found(by_cloud_provider("c1"), vpc=""), OWNER, VOLUME) is None


@pytest.mark.parametrize(
    ("tags", "words"),
    [
        ({}, "not tagged kubernetes.io/cluster/c1=owned"),
        ({"kubernetes.io/cluster/c1": "shared"}, "not tagged kubernetes.io/cluster/c1=owned"),
        ({"kubernetes.io/cluster/c1": ""}, "not tagged kubernetes.io/cluster/c1=owned"),
        (by_cloud_provider("c11"), "not tagged kubernetes.io/cluster/c1=owned"),
        (by_cloud_provider("c"), "not tagged kubernetes.io/cluster/c1=owned"),
        (by_balancer_controller("c1"), "not tagged kubernetes.io/cluster/c1=owned"),
        (by_cluster_api("c1"), "Cluster API's own"),
        ({**by_cloud_provider("c1"), **by_cluster_api("c2")}, "Cluster API's own"),
        ({**by_cloud_provider("c1"), "aws:eks:cluster-name": "c1"}, "EKS's own"),
    ],
)
def test_other_tags_make_it_another_s(tags: dict[str, str], words: str) -> None:
    assert words in (ownership_objection(found(tags), OWNER, SECURITY_GROUP) or "")


def test_the_cloud_providers_tag_is_not_the_balancer_controllers() -> None:
    assert owner_tag(LBC) == ("elbv2.k8s.aws/cluster", "c1")
    assert "not tagged elbv2.k8s.aws/cluster=c1" in (
        ownership_objection(found(by_cloud_provider("c1")), LBC, SECURITY_GROUP) or ""
    )
    assert "not tagged" in (ownership_objection(found(by_balancer_controller("c2")), LBC, SECURITY_GROUP) or "")


def test_a_balancer_must_be_made_for_a_service_unless_its_controller_made_it() -> None:
    assert ownership_objection(found(by_cloud_provider("c1", "default/web")), OWNER, LOAD_BALANCER) is None
    assert ownership_objection(found(by_balancer_controller("c1")), LBC, LOAD_BALANCER) is None
    for tags in (by_cloud_provider("c1"), {**by_cloud_provider("c1"), "kubernetes.io/service-name": ""}):
        assert "no tag kubernetes.io/service-name" in (ownership_objection(found(tags), OWNER, LOAD_BALANCER) or "")
    needing = {kind.name for kind in KINDS if kind.needs_service_tag}
    assert needing == {"aws.classic-balancer", "aws.balancer", "aws.target-group"}


@pytest.mark.invariant(2)
def test_another_vpc_or_an_unknown_one_is_another_s() -> None:
    reason = ownership_objection(found(by_cloud_provider("c1"), vpc="vpc-2"), OWNER, SECURITY_GROUP)
    assert reason == "sg-1 is in VPC vpc-2, and cluster c1 in vpc-1"
    nowhere = CapaCluster(scope=WHOSE, account="111122223333", name="c1")
    assert "is not known" in (ownership_objection(found(by_cloud_provider("c1")), nowhere, SECURITY_GROUP) or "")
    assert ownership_objection(found(by_cloud_provider("c1"), vpc=""), nowhere, VOLUME) is None


def test_a_group_that_the_spec_names_is_the_users_whatever_its_tags() -> None:
    sparing = CapaCluster(scope=WHOSE, account="111122223333", name="c1", vpc="vpc-1", spared=("sg-1",))
    reason = ownership_objection(found(by_cloud_provider("c1")), sparing, SECURITY_GROUP)
    assert "names it as the user's" in (reason or "")


@pytest.mark.parametrize(
    ("tags", "who"),
    [
        (by_cluster_api("c1"), "Cluster API"),
        ({capi_ownership_tag("c1"): "owned"}, "Cluster API"),
        # A managed cluster's name in tags need not be its Cluster's.
        ({**by_cloud_provider("c1"), capi_ownership_tag("another"): "owned"}, "Cluster API"),
        ({EKS_CLUSTER_NAME: "c1"}, "EKS"),
        ({EKS_CLUSTER_NAME: "c2"}, ""),
        ({capi_ownership_tag("c1"): "shared"}, ""),
        (by_cluster_api("c2"), ""),
        (by_cloud_provider("c1"), ""),
        ({}, ""),
    ],
)
def test_tags_tell_which_controller_removes_a_group_with_this_cluster(tags: dict[str, str], who: str) -> None:
    assert removed_by(found(tags), OWNER) == who
    assert removed_by(found(tags), msgspec.structs.replace(OWNER, spared=(found(tags).id,))) == ""
