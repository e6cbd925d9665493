"""Ownership of Azure resources by tags; resources that their kind spares; and the progress stored between attempts."""

import pytest

from service.sources.azure import KEEP_TAG, RETAINED
from service.sources.karpenter_azure import (
    AKS_MACHINE_TAG,
    CLUSTER_TAG,
    NODEPOOL_TAG,
    node_claim_of,
    resource_name,
)
from workers.collectors.karpenter_azure.claim import STAGES
from workers.collectors.karpenter_azure.listing import is_of
from workers.collectors.karpenter_azure.ownership import ownership_of
from workers.providers.azure.kinds import DISK, NIC, VM
from workers.providers.azure.kinds.disk import of_csi
from workers.providers.azure.model import AzureResource

OURS = {CLUSTER_TAG: "prod", NODEPOOL_TAG: "default"}


def kind_of(tags: dict[str, str], wanted: dict[str, str] | None = None) -> str:
    return ownership_of(tags, "prod", wanted or {}).kind


def test_what_karpenter_tagged_for_this_cluster_is_ours() -> None:
    assert kind_of(OURS) == "ours"
    assert kind_of({**OURS, "team": "a"}) == "ours"


def test_names_of_tags_have_no_casing_of_their_own_and_their_values_have() -> None:
    assert kind_of({name.upper(): value for name, value in OURS.items()}) == "ours"
    assert kind_of({CLUSTER_TAG: "Prod", NODEPOOL_TAG: "default"}) == "left"


def test_what_another_cluster_has_is_left_for_good_and_says_whose_it_is() -> None:
    found = ownership_of({**OURS, CLUSTER_TAG: "staging"}, "prod", {})
    assert found.kind == "left"
    assert "'staging'" in found.reason


def test_a_machine_of_aks_is_left_whatever_else_it_carries() -> None:
    assert kind_of({**OURS, AKS_MACHINE_TAG: "a"}) == "left"
    assert kind_of({**OURS, AKS_MACHINE_TAG.upper(): "a"}) == "left"
    assert kind_of({**OURS, AKS_MACHINE_TAG: "", KEEP_TAG: "true"}) == "left"


@pytest.mark.parametrize("tags", [{}, {CLUSTER_TAG: "prod"}, {NODEPOOL_TAG: "default"}, {**OURS, CLUSTER_TAG: ""}])
def test_what_lacks_a_tag_of_karpenter_is_not_removed(tags: dict[str, str]) -> None:
    found = ownership_of(tags, "prod", {})
    assert found.kind == "untagged"
    assert "it has no tag karpenter" in found.reason


@pytest.mark.invariant(10)
@pytest.mark.parametrize(("value", "kind"), [("true", "kept"), ("yes", "kept"), ("False", "ours"), ("", "ours")])
def test_a_tag_keeps_a_resource(value: str, kind: str) -> None:
    assert kind_of({**OURS, KEEP_TAG: value}) == kind
    assert kind_of({**OURS, KEEP_TAG.upper(): value}) == kind


@pytest.mark.invariant(10)
def test_what_was_kept_with_an_object_before_is_left() -> None:
    found = ownership_of({**OURS, RETAINED: "uid/nodeclaims//a/1"}, "prod", {})
    assert (found.kind, "uid/nodeclaims//a/1" in found.reason) == ("left", True)


def test_tags_of_the_settings_must_be_there_too() -> None:
    wanted = {"Team": "a"}
    assert kind_of({**OURS, "team": "a"}, wanted) == "ours"
    assert kind_of({**OURS, "team": "A"}, wanted) == "untagged"
    found = ownership_of(OURS, "prod", wanted)
    assert (found.kind, found.reason) == ("untagged", "its tag Team is None, not 'a'")


@pytest.mark.parametrize(
    ("name", "tags", "csi"),
    [
        ("aks-a", {}, False),
        ("pvc-1234", {}, True),
        ("PVC-1234", {}, True),
        ("aks-a", {"kubernetes.io-created-for-pvc-name": "data"}, True),
        ("aks-a", {"Kubernetes.io-Created-For-PV-Name": "data"}, True),
        ("aks-a", {"k8s-azure-created-by": "kubernetes-azure-dd"}, True),
    ],
)
def test_volumes_of_a_csi_driver_are_known(name: str, tags: dict[str, str], csi: bool) -> None:
    assert of_csi(name, tags) is csi
    found = AzureResource(kind=DISK.name, name=name, guid="g", tags={**OURS, **tags})
    assert bool(DISK.spared(found)) is csi


def test_a_machine_that_would_take_a_data_disk_along_is_spared() -> None:
    taking = AzureResource(kind=VM.name, name="aks-a", guid="g", tags=OURS, facts=("pvc-1",))
    assert "its data disk pvc-1 would be deleted with it" in VM.spared(taking)
    assert VM.spared(AzureResource(kind=VM.name, name="aks-a", guid="g", tags=OURS)) == ""


def test_resources_are_named_after_their_claims_in_any_casing() -> None:
    assert node_claim_of(resource_name("pool-a")) == "pool-a"
    assert node_claim_of("AKS-pool-a") == "pool-a"
    assert [node_claim_of(name) for name in ("pool-a", "aks", "k8s-aks-a", "")] == ["", "", "", ""]


def test_a_list_shows_what_is_the_clusters_and_no_machine_of_aks() -> None:
    def one(**tags: str) -> AzureResource:
        return AzureResource(kind=NIC.name, name="aks-a", guid="g", tags=tags)

    assert is_of(one(**OURS), "prod")
    assert is_of(one(**{CLUSTER_TAG.upper(): "prod"}), "prod")
    assert not is_of(one(**OURS), "Prod")
    assert not is_of(one(**OURS, **{AKS_MACHINE_TAG: "x"}), "prod")
    assert not is_of(one(), "prod")


@pytest.mark.parametrize("state", ["Deleting", "deleting", "DELETING"])
def test_what_is_being_deleted_says_so_in_any_casing(state: str) -> None:
    assert AzureResource(kind=NIC.name, name="a", guid="g", tags={}, state=state).going
    assert not AzureResource(kind=NIC.name, name="a", guid="g", tags={}, state="Failed").going


def test_every_kind_has_its_place_in_the_order() -> None:
    assert STAGES[VM] < STAGES[NIC] < STAGES[DISK]
