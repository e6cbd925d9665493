"""Parsing of AWSCluster and AWSManagedControlPlane in all the shapes that Cluster API writes."""

import json
from typing import Any

import pytest

from service.sources.capa import AWS_ACCOUNT, AWS_CLUSTERS, AWS_MANAGED_CONTROL_PLANES, DEFAULT_TASKS, AwsSettings
from service.sources.capa import EXTERNAL_RESOURCE_TASKS as TASKS
from workers.collectors.capa.accounts import account_fault
from workers.collectors.capa.capa_object import CapaObject, UnusableObject, parse_capa_object, require_complete
from workers.collectors.capa.tasks import tasks_of

OWNER = {"apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Cluster", "name": "prod", "uid": "c"}
ACCOUNT = "111122223333"


def unmanaged(spec: object = None, status: object = None, **metadata: Any) -> CapaObject:
    named = {"name": "infra", "namespace": "team", "uid": "u", "ownerReferences": [OWNER], **metadata}
    body = {"metadata": named, "spec": {"region": "eu-west-1"} if spec is None else spec, "status": status}
    return parse_capa_object(AWS_CLUSTERS, json.dumps(body).encode())


def managed(**spec: Any) -> CapaObject:
    metadata = {"name": "prod.plane", "namespace": "team", "uid": "u", "ownerReferences": [OWNER]}
    body = {"metadata": metadata, "spec": {"region": "eu-west-1", **spec}}
    return parse_capa_object(AWS_MANAGED_CONTROL_PLANES, json.dumps(body).encode())


# ---- names


def test_an_unmanaged_cluster_has_the_name_of_its_cluster_in_its_tags() -> None:
    assert require_complete(unmanaged()).name == "prod"
    assert unmanaged(ownerReferences=[], labels={"cluster.x-k8s.io/cluster-name": "by-label"}).name == "by-label"


def test_a_managed_cluster_has_the_name_of_its_eks_cluster_in_its_tags() -> None:
    assert require_complete(managed(eksClusterName="payments")).name == "payments"
    assert require_complete(managed()).name == "team_prod_plane"


def test_a_name_that_cluster_api_would_have_made_up_as_a_hash_is_not_guessed() -> None:
    metadata = {"name": "p" * 200, "namespace": "team", "uid": "u", "ownerReferences": [OWNER]}
    body = json.dumps({"metadata": metadata, "spec": {"region": "eu-west-1"}}).encode()
    with pytest.raises(UnusableObject, match=r"no spec\.eksClusterName"):
        require_complete(parse_capa_object(AWS_MANAGED_CONTROL_PLANES, body))


@pytest.mark.parametrize("name", ["*", "a=b", "a b", "a/b", "-a"])
def test_a_name_that_would_mean_something_else_in_a_filter_is_not_used(name: str) -> None:
    with pytest.raises(UnusableObject, match="can't be the name"):
        require_complete(managed(eksClusterName=name))


def test_an_object_without_a_region_or_an_owner_says_so() -> None:
    with pytest.raises(UnusableObject, match=r"no spec\.region"):
        require_complete(unmanaged(spec={}))
    with pytest.raises(UnusableObject, match="names no Cluster as its owner"):
        require_complete(unmanaged(ownerReferences=[]))
    with pytest.raises(UnusableObject, match="can't be a region"):
        require_complete(unmanaged(spec={"region": "eu/west"}))


def test_what_can_not_be_read_is_not_taken_for_empty() -> None:
    with pytest.raises(UnusableObject, match="can't be read"):
        parse_capa_object(AWS_CLUSTERS, b'{"metadata": {"name": "a"}, "spec": {"region": 7}}')


def test_the_vpc_and_the_identity_come_from_the_spec_and_may_be_missing() -> None:
    full = unmanaged(
        spec={
            "region": "eu-west-1", "network": {"vpc": {"id": "vpc-1"}},
            "identityRef": {"kind": "AWSClusterRoleIdentity", "name": "tenant"},
        }
    )  # fmt: skip
    assert (full.vpc, full.identity) == ("vpc-1", "AWSClusterRoleIdentity/tenant")
    missing: tuple[object, ...] = (None, {}, {"vpc": None}, {"vpc": {}})
    for network in missing:
        assert unmanaged(spec={"region": "eu-west-1", "network": network}).vpc == ""


def test_only_the_condition_of_cluster_api_says_that_the_vpc_was_deleted() -> None:
    def told(**condition: str) -> bool:
        return unmanaged(status={"conditions": [condition]}).vpc_deleted

    assert told(type="VpcReady", status="False", reason="Deleted")
    assert not told(type="VpcReady", status="False", reason="Deleting")
    assert not told(type="VpcReady", status="True", reason="Deleted")
    assert not told(type="SubnetsReady", status="False", reason="Deleted")


def test_every_group_that_the_spec_names_is_the_users() -> None:
    spec = {
        "region": "eu-west-1", "network": {"vpc": {"id": "vpc-1"}, "securityGroupOverrides": {"node": "sg-0a"},
        "cni": {"cniIngressRules": [{"sourceSecurityGroupIds": ["sg-0c"]}]}},
        "controlPlaneLoadBalancer": {"additionalSecurityGroups": ["sg-0b", "sg-0a"]},
    }  # fmt: skip
    status = {"networkStatus": {"securityGroups": {"node": {"id": "sg-0d"}}}}
    assert unmanaged(spec=spec, status=status).spared == ("sg-0a", "sg-0b", "sg-0c")
    assert unmanaged().spared == ()


def test_what_is_unclear_says_how_to_let_the_object_go() -> None:
    for subject in (unmanaged(spec={}), unmanaged(ownerReferences=[]), unmanaged(spec={"region": "eu/west"})):
        with pytest.raises(UnusableObject, match="external-resource-gc=false"):
            require_complete(subject)


# ---- accounts


def test_arns_in_the_status_and_the_annotation_record_the_account() -> None:
    arn = f"arn:aws-cn:elasticloadbalancing:cn-north-1:{ACCOUNT}:loadbalancer/net/api/1"
    found = unmanaged(
        status={"networkStatus": {"apiServerElb": {"arn": arn}}}, annotations={AWS_ACCOUNT: " 444455556666 "}
    )
    assert [record.account for record in found.records] == ["444455556666", ACCOUNT]
    assert found.records[1].by == "status.networkStatus.apiServerElb.arn"


def test_arns_of_the_spec_record_nothing_for_they_may_be_of_other_accounts() -> None:
    spec = {"region": "eu-west-1", "encryptionConfig": {"arn": "arn:aws:kms:eu-west-1:999999999999:key/1"}}
    assert unmanaged(spec=spec).records == ()


def test_everything_that_is_recorded_must_agree_with_the_callers_account() -> None:
    annotated = unmanaged(annotations={AWS_ACCOUNT: ACCOUNT})
    assert account_fault(annotated, ACCOUNT, "") is None
    fault = account_fault(annotated, "999999999999", "")
    assert fault is not None
    assert "999999999999" in fault
    assert ACCOUNT in fault


def test_without_a_record_and_without_a_vpc_the_account_is_unknown() -> None:
    fault = account_fault(unmanaged(), ACCOUNT, "")
    assert fault is not None
    assert f"kubectl annotate {AWS_CLUSTERS} infra -n team {AWS_ACCOUNT}={ACCOUNT}" in fault
    assert "the setting aws.account" in fault
    assert "external-resource-gc=false" in fault
    assert account_fault(unmanaged(), ACCOUNT, ACCOUNT) is None
    vpc = {"region": "eu-west-1", "network": {"vpc": {"id": "vpc-1"}}}
    assert account_fault(unmanaged(spec=vpc), ACCOUNT, "") is None


def test_the_account_of_the_settings_is_that_of_our_own_credentials_and_of_no_identity() -> None:
    static = {"region": "eu-west-1", "identityRef": {"kind": "AWSClusterStaticIdentity", "name": "tenant"}}
    fault = account_fault(unmanaged(spec=static), ACCOUNT, ACCOUNT)
    assert fault is not None
    assert f"{AWS_ACCOUNT}={ACCOUNT}" in fault
    assert "the setting aws.account says nothing of AWSClusterStaticIdentity/tenant" in fault
    role = {"region": "eu-west-1", "identityRef": {"kind": "AWSClusterRoleIdentity", "name": "tenant"}}
    assert account_fault(unmanaged(spec=role), ACCOUNT, "") is None


# ---- tasks


def test_the_annotation_chooses_among_the_allowed_tasks_in_any_order() -> None:
    settings = AwsSettings(allowed_tasks=(*DEFAULT_TASKS, "volume"))
    assert tasks_of({}, settings) == DEFAULT_TASKS
    found = tasks_of({TASKS: "security-group, volume ,load-balancer"}, settings)
    assert found == ("load-balancer", "security-group", "volume")


@pytest.mark.invariant(11)
@pytest.mark.parametrize("settings", [AwsSettings(), AwsSettings(allowed_tasks=DEFAULT_TASKS)])
def test_a_task_beyond_the_allowed_ones_is_an_error_that_names_the_setting(settings: AwsSettings) -> None:
    assert tasks_of({TASKS: "target-group"}, settings) == ("target-group",)
    with pytest.raises(
        UnusableObject, match=r"task volume, .* aws\.allowed_tasks .*; allowed: load-balancer, target-group"
    ):
        tasks_of({TASKS: "load-balancer,volume"}, settings)


@pytest.mark.parametrize("said", ["", "load-balancer,", "loadbalancer", "load-balancer,,volume"])
def test_an_unknown_task_is_an_error_that_names_the_known_ones(said: str) -> None:
    with pytest.raises(UnusableObject, match="allowed: load-balancer, target-group"):
        tasks_of({TASKS: said}, AwsSettings())
