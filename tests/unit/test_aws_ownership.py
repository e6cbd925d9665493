"""Ownership: only resources with the cluster's tag, in its VPC, that are not Cluster API's or EKS's own."""

import msgspec
import pytest

from service.sources.capa import EKS_CLUSTER_NAME, capi_ownership_tag
from standins.aws.tags import by_balancer_controller, by_cloud_provider, by_cluster_api
from tests.aws_kinds import AWS_KINDS
from workers.collectors.capa.claim import CapaClaim
from workers.collectors.capa.kinds import CAPA_KINDS
from workers.collectors.capa.ownership import owner_tag, ownership_objection, removed_by
from workers.providers.aws.kinds.declaration import AwsKind
from workers.providers.aws.kinds.load_balancers import LOAD_BALANCER
from workers.providers.aws.kinds.security_groups import SECURITY_GROUP
from workers.providers.aws.kinds.volumes import VOLUME
from workers.providers.aws.model import AwsResource, CallScope

WHOSE = CallScope(source="clusters", namespace="tenant", region="eu-west-1")
OWNER = CapaClaim(scope=WHOSE, account="111122223333", name="c1", vpc="vpc-1")
LBC = CapaClaim(scope=WHOSE, account="111122223333", name="c1", vpc="vpc-1", by="lbc")


def found(tags: dict[str, str], vpc: str = "vpc-1", kind: AwsKind = SECURITY_GROUP) -> AwsResource:
    return AwsResource(kind=kind.name, id="sg-1", tags=tags, vpc=vpc)


def test_what_carries_the_clusters_tag_in_its_vpc_is_its() -> None:
    assert ownership_objection(found(by_cloud_provider("c1")), OWNER) is None
    assert ownership_objection(found(by_balancer_controller("c1")), LBC) is None
    # A volume is in no VPC.
    assert ownership_objection(found(by_cloud_provider("c1"), vpc="", kind=VOLUME), OWNER) is None


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
    assert words in (ownership_objection(found(tags), OWNER) or "")


def test_the_cloud_providers_tag_is_not_the_balancer_controllers() -> None:
    assert owner_tag(LBC) == ("elbv2.k8s.aws/cluster", "c1")
    assert "not tagged elbv2.k8s.aws/cluster=c1" in (ownership_objection(found(by_cloud_provider("c1")), LBC) or "")
    assert "not tagged" in (ownership_objection(found(by_balancer_controller("c2")), LBC) or "")


def test_a_balancer_must_be_made_for_a_service_unless_its_controller_made_it() -> None:
    assert ownership_objection(found(by_cloud_provider("c1", "default/web"), kind=LOAD_BALANCER), OWNER) is None
    assert ownership_objection(found(by_balancer_controller("c1"), kind=LOAD_BALANCER), LBC) is None
    for tags in (by_cloud_provider("c1"), {**by_cloud_provider("c1"), "kubernetes.io/service-name": ""}):
        assert "no tag kubernetes.io/service-name" in (
            ownership_objection(found(tags, kind=LOAD_BALANCER), OWNER) or ""
        )
    needing = {name for name, row in CAPA_KINDS.items() if row.needs_service_tag}
    assert needing == {row.name for row in AWS_KINDS.values() if row.has_service_tag}
    assert needing == {"aws.classic-balancer", "aws.balancer", "aws.target-group"}


@pytest.mark.invariant(2)
def test_another_vpc_or_an_unknown_one_is_another_s() -> None:
    reason = ownership_objection(found(by_cloud_provider("c1"), vpc="vpc-2"), OWNER)
    assert reason == "sg-1 is in VPC vpc-2, and cluster c1 in vpc-1"
    nowhere = CapaClaim(scope=WHOSE, account="111122223333", name="c1")
    assert "is not known" in (ownership_objection(found(by_cloud_provider("c1")), nowhere) or "")
    assert ownership_objection(found(by_cloud_provider("c1"), vpc="", kind=VOLUME), nowhere) is None


def test_a_group_that_the_spec_names_is_the_users_whatever_its_tags() -> None:
    sparing = CapaClaim(scope=WHOSE, account="111122223333", name="c1", vpc="vpc-1", spared=("sg-1",))
    reason = ownership_objection(found(by_cloud_provider("c1")), sparing)
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
