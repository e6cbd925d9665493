"""Settings of nodes on Azure: places by source, and contradictions."""

import re
from datetime import timedelta
from pathlib import Path

import pytest

from service.settings import SettingsError, load
from service.sources.karpenter_azure import AzureSettings

ONE = "0aaaaaaa-0000-4000-8000-000000000001"
SOURCES = """
clusters: {here: {}}
sources:
  nodes: {resource: nodeclaims.karpenter.sh, collector: karpenter-azure, mode: observe}
"""
PLACE = f"{{subscription: {ONE}, resource_group: MC_prod, region: westeurope, cluster: prod}}"


def written(directory: Path, text: str) -> Path:
    path = directory / "knell.yaml"
    path.write_text(text)
    return path


def refused(directory: Path, text: str, **environ: str) -> str:
    with pytest.raises(SettingsError) as caught:
        load(written(directory, text), environ)
    return str(caught.value)


def nodes(text: str) -> str:
    return f"{SOURCES}\nazure: {{nodes: {{nodes: {text}}}}}"


def test_the_defaults_are_careful(tmp_path: Path) -> None:
    azure = load(written(tmp_path, nodes(f"[{PLACE}]")), {}).section(AzureSettings)
    assert (azure.grace, azure.not_ready, azure.reserve) == (timedelta(seconds=60), timedelta(minutes=10), 0.2)
    assert (azure.sweep.enabled, azure.sweep.listing) == (True, "graph")
    assert (azure.sweep.every, azure.sweep.age) == (timedelta(minutes=5), timedelta(minutes=5))
    assert azure.endpoint == "https://management.azure.com"
    (place,) = azure.nodes["nodes"]
    assert (place.subscription, place.resource_group, place.client_id) == (ONE, "MC_prod", None)


def test_a_file_and_the_environment_set_them(tmp_path: Path) -> None:
    text = (
        SOURCES
        + f"""
azure:
  grace: 5s
  sweep: {{every: 1m, age: 0s, listing: provider}}
  nodes:
    nodes:
      - {PLACE}
      - {{subscription: {ONE}, resource_group: MC_two, region: westeurope, cluster: prod, tags: {{team: a}},
         client_id: {ONE}}}
"""
    )
    azure = load(written(tmp_path, text), {"KNELL_AZURE_GRACE": "7s", "KNELL_AZURE_RESERVE": "0"}).section(
        AzureSettings
    )
    assert (azure.grace, azure.reserve, azure.sweep.listing) == (timedelta(seconds=7), 0, "provider")
    assert [place.resource_group for place in azure.nodes["nodes"]] == ["MC_prod", "MC_two"]
    assert (azure.nodes["nodes"][1].tags, azure.nodes["nodes"][1].client_id) == ({"team": "a"}, ONE)


def test_places_are_compared_without_case(tmp_path: Path) -> None:
    (place,) = load(written(tmp_path, nodes(f"[{PLACE}]")), {}).section(AzureSettings).nodes["nodes"]
    assert place.describes(ONE.upper(), "mc_PROD")
    assert not place.describes(ONE, "MC_prod2")


def test_every_error_in_a_list_is_reported_with_its_position(tmp_path: Path) -> None:
    bad = f"""[{PLACE}, {{subscription: not-a-guid, resource_group: MC_b, region: West Europe, cluster: ""}},
              {{subscription: {ONE}, resource_grup: MC_c, region: westeurope, cluster: prod}}, 7]"""
    said = refused(tmp_path, nodes(bad))
    assert "azure.nodes.nodes[1].subscription" in said
    assert "8-4-4-4-12 hexadecimal digits" in said
    assert "azure.nodes.nodes[1].region" in said
    assert "azure.nodes.nodes[1].cluster" in said
    assert "azure.nodes.nodes[2].resource_grup" in said
    assert "resource_group" in said
    assert re.search(r"azure\.nodes\.nodes\[2\]\.resource_group .*must be given", said)
    assert "azure.nodes.nodes[3]" in said
    assert "[0]" not in said


@pytest.mark.parametrize("given", ["{a: 1}", "text", "7", PLACE])
def test_what_is_no_list_is_refused_with_what_is_allowed(tmp_path: Path, given: str) -> None:
    said = refused(tmp_path, nodes(given))
    assert "azure.nodes.nodes" in said
    assert "allowed: a list, each a mapping with the keys subscription, resource_group, region, cluster" in said


@pytest.mark.parametrize(
    "bad",
    [
        "0aaaaaaa-0000-4000-8000-00000000000",
        "0aaaaaaa00004000800000000000000001",
        "{0aaaaaaa-0000-4000-8000-000000000001}",
        "0aaaaaaa-0000-4000-8000-00000000000g",
        "../0aaaaaaa-0000-4000-8000-000000000",
    ],
)
def test_a_subscription_or_an_identity_that_is_no_guid_is_refused(tmp_path: Path, bad: str) -> None:
    for key in ("subscription", "client_id"):
        rest = {"subscription": ONE, "resource_group": "g", "region": "westeurope", "cluster": "c"} | {key: bad}
        given = ", ".join(f"{name}: '{value}'" for name, value in rest.items())
        assert f"azure.nodes.nodes[0].{key}" in refused(tmp_path, nodes(f"[{{{given}}}]"))


@pytest.mark.parametrize("bad", ["a/b", "", "x" * 91, "a b"])
def test_a_group_that_can_be_none_is_refused(tmp_path: Path, bad: str) -> None:
    given = f"[{{subscription: {ONE}, resource_group: '{bad}', region: westeurope, cluster: c}}]"
    assert "azure.nodes.nodes[0].resource_group" in refused(tmp_path, nodes(given))


def test_a_source_must_say_where_its_nodes_are(tmp_path: Path) -> None:
    for text in (SOURCES, nodes("[]")):
        assert "azure.nodes.nodes: must say where the nodes of source nodes are" in refused(tmp_path, text)


def test_nodes_of_what_is_no_source_on_azure_are_refused(tmp_path: Path) -> None:
    said = refused(tmp_path, f"{SOURCES}\nazure: {{nodes: {{nodes: [{PLACE}], nods: [{PLACE}]}}}}")
    assert "azure.nodes.nods: is not a source with collector karpenter-azure (nodes)" in said
    assert "(none)" in refused(tmp_path, f"azure: {{nodes: {{nodes: [{PLACE}]}}}}")


def test_each_group_and_cluster_belongs_to_one_source(tmp_path: Path) -> None:
    loud = PLACE.replace(ONE, ONE.upper()).replace("MC_prod", "mc_PROD")
    said = refused(tmp_path, nodes(f"[{PLACE}, {loud}]"))
    assert "azure.nodes.nodes[1]: stands under nodes already" in said
    two = """
clusters: {here: {}, there: {}}
sources:
  one: {resource: nodeclaims.karpenter.sh, collector: karpenter-azure, mode: observe, cluster: here}
  two: {resource: nodeclaims.karpenter.sh, collector: karpenter-azure, mode: observe, cluster: there}
"""
    said = refused(tmp_path, f"{two}\nazure: {{nodes: {{one: [{PLACE}], two: [{loud}]}}}}")
    assert "azure.nodes.two[0]: stands under one already" in said
    other = PLACE.replace("cluster: prod", "cluster: blue")
    both = load(written(tmp_path, f"{two}\nazure: {{nodes: {{one: [{PLACE}], two: [{other}]}}}}"), {})
    assert set(both.section(AzureSettings).nodes) == {"one", "two"}


def test_its_objects_are_never_held_back(tmp_path: Path) -> None:
    said = refused(tmp_path, nodes(f"[{PLACE}]").replace("mode: observe", "mode: finalizer"))
    assert "sources.nodes.mode: the collector karpenter-azure never holds its objects back: observe" in said


def test_its_objects_are_nodeclaims(tmp_path: Path) -> None:
    said = refused(tmp_path, nodes(f"[{PLACE}]").replace("nodeclaims.karpenter.sh", "nodepools.karpenter.sh"))
    assert "sources.nodes.resource" in said
    assert "is for nodeclaims.karpenter.sh" in said


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ("reserve: 0.95", "azure.reserve"),
        ("reserve: -0.1", "azure.reserve"),
        ("grace: -1s", "azure.grace"),
        ("sweep: {every: 0s}", "azure.sweep.every"),
        ("sweep: {listing: guess}", "azure.sweep.listing"),
        ("endpoint: management.azure.com", "azure.endpoint"),
        ("region: westeurope", "azure.region"),
    ],
)
def test_values_that_make_no_sense_are_refused(tmp_path: Path, given: str, path: str) -> None:
    assert path in refused(tmp_path, f"{SOURCES}\nazure: {{nodes: {{nodes: [{PLACE}]}}, {given}}}")
