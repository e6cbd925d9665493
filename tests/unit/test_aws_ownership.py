"""Whose a resource is: only what carries the cluster's tag, is not Cluster API's or EKS's own, and is in its VPC."""

import msgspec
import pytest

from service.contract.aws import EKS_CLUSTER_NAME, capi_ownership_tag
from standins.aws.tags import by_balancer_controller, by_cloud_provider, by_cluster_api
from workers.handlers.aws.kinds import KINDS
from workers.handlers.aws.kinds.balancers import BALANCER
from workers.handlers.aws.kinds.security_groups import SECURITY_GROUP
from workers.handlers.aws.kinds.volumes import VOLUME
from workers.handlers.aws.model import Found, Owner, Whose
from workers.handlers.aws.ownership import goes_along, mark_of, owned

WHOSE = Whose(source="clusters", namespace="tenant", region="eu-west-1")
OWNER = Owner(whose=WHOSE, account="111122223333", name="c1", vpc="vpc-1")
LBC = Owner(whose=WHOSE, account="111122223333", name="c1", vpc="vpc-1", by="lbc")


def found(tags: dict[str, str], vpc: str = "vpc-1") -> Found:
    return Found(kind="any", id="sg-1", tags=tags, vpc=vpc)


def test_what_carries_the_clusters_tag_in_its_vpc_is_its() -> None:
    assert owned(found(by_cloud_provider("c1")), OWNER, SECURITY_GROUP) is None
    assert owned(found(by_balancer_controller("c1")), LBC, SECURITY_GROUP) is None
    # A volume is in no VPC.
    assert owned(found(by_cloud_provider("c1"), vpc=""), OWNER, VOLUME) is None


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
    assert words in (owned(found(tags), OWNER, SECURITY_GROUP) or "")


def test_the_cloud_providers_tag_is_not_the_balancer_controllers() -> None:
    assert mark_of(LBC) == ("elbv2.k8s.aws/cluster", "c1")
    assert "not tagged elbv2.k8s.aws/cluster=c1" in (owned(found(by_cloud_provider("c1")), LBC, SECURITY_GROUP) or "")
    assert "not tagged" in (owned(found(by_balancer_controller("c2")), LBC, SECURITY_GROUP) or "")


def test_a_balancer_must_be_made_for_a_service_unless_its_controller_made_it() -> None:
    assert owned(found(by_cloud_provider("c1", "default/web")), OWNER, BALANCER) is None
    assert owned(found(by_balancer_controller("c1")), LBC, BALANCER) is None
    for tags in (by_cloud_provider("c1"), {**by_cloud_provider("c1"), "kubernetes.io/service-name": ""}):
        assert "no tag kubernetes.io/service-name" in (owned(found(tags), OWNER, BALANCER) or "")
    needing = {kind.name for kind in KINDS if kind.of_service}
    assert needing == {"aws.classic-balancer", "aws.balancer", "aws.target-group"}


@pytest.mark.invariant(2)
def test_another_vpc_or_an_unknown_one_is_another_s() -> None:
    reason = owned(found(by_cloud_provider("c1"), vpc="vpc-2"), OWNER, SECURITY_GROUP)
    assert reason == "sg-1 is in VPC vpc-2, and cluster c1 in vpc-1"
    nowhere = Owner(whose=WHOSE, account="111122223333", name="c1")
    assert "is not known" in (owned(found(by_cloud_provider("c1")), nowhere, SECURITY_GROUP) or "")
    assert owned(found(by_cloud_provider("c1"), vpc=""), nowhere, VOLUME) is None


def test_a_group_that_the_spec_names_is_the_users_whatever_its_tags() -> None:
    sparing = Owner(whose=WHOSE, account="111122223333", name="c1", vpc="vpc-1", spared=("sg-1",))
    reason = owned(found(by_cloud_provider("c1")), sparing, SECURITY_GROUP)
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
def test_who_else_removes_a_group_with_this_cluster_is_known_by_its_tags(tags: dict[str, str], who: str) -> None:
    assert goes_along(found(tags), OWNER) == who
    assert goes_along(found(tags), msgspec.structs.replace(OWNER, spared=(found(tags).id,))) == ""
