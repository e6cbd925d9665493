"""`knell plan` for a live cluster on AWS: what would be deleted with it, while nothing is changed."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from service.sources.capa import AWS_CLUSTERS, CAPA
from standins.aws.builder import REGION
from tests.integration.capi_fixture import CapiFixture
from tests.integration.command_line import environment, invoke


async def ask(clusters: CapiFixture, folder: Path, *words: str, feature: bool = True) -> Any:
    declared = {"here": {"kubeconfig": str(clusters.api.kubeconfig(folder / "admin")), "context": "local"}}
    source = {"resource": AWS_CLUSTERS, "collector": CAPA, "namespaces": [clusters.capi.namespace]}
    document = {
        "clusters": declared, "sources": {"unmanaged": source}, "features": {"ExternalResourceGC": feature},
        "aws": {"endpoint": clusters.aws.address},
    }  # fmt: skip
    config = folder / "knell.yaml"
    config.write_bytes(msgspec.yaml.encode(document))
    named = ("--config", str(config), "plan", "awsclusters/prod", "-n", clusters.capi.namespace)
    answer = await asyncio.to_thread(invoke, environment(clusters.settings.redis), *named, *words)
    assert answer.code == 0, answer.err
    return answer.json if "json" in words else answer.out


async def test_it_shows_all_stages_and_says_what_would_still_be_waited_for(
    clusters: CapiFixture, tmp_path: Path
) -> None:
    vpc = await clusters.resources.vpc()
    mine = await clusters.resources.cluster_resources("prod", vpc)
    clusters.capi.unmanaged("prod", region=REGION, vpc=vpc.id)
    clusters.capi.machine("prod-1", "prod")
    before = await clusters.resources.standing()
    found = await ask(clusters, tmp_path, "--output", "json")
    assert found["held"] == ""
    assert "prod-1" in found["remark"]
    listed = [one["id"] for one in found["targets"]]
    assert set(listed) == {*mine.classic, *mine.balancers, *mine.target_groups, *mine.groups, "prod"}
    assert listed[-1] == "prod"
    assert {one["limit"] for one in found["estimate"]["limits"]} >= {f"{REGION}/ec2.DeleteSecurityGroup"}
    assert await clusters.resources.standing() == before
    shown = await ask(clusters, tmp_path)
    assert "10 resources would be removed" in shown
    assert "too early" in " ".join(shown.split())


async def test_the_reason_of_a_hold_is_shown(clusters: CapiFixture, tmp_path: Path) -> None:
    clusters.capi.unmanaged("prod", region=REGION, vpc="vpc-0123456789abcdef0")
    found = await ask(clusters, tmp_path, "--output", "json")
    assert "vpc-0123456789abcdef0" in found["held"]
    assert found["targets"] == []


async def test_with_the_feature_off_it_says_so_and_makes_no_aws_call(clusters: CapiFixture, tmp_path: Path) -> None:
    clusters.capi.unmanaged("prod", region=REGION, vpc="vpc-0123456789abcdef0")
    found = await ask(clusters, tmp_path, "--output", "json", feature=False)
    assert "ExternalResourceGC" in found["decision"]["reason"]
    assert await clusters.calls() == 0


@pytest.mark.parametrize("paused", [True, False])
async def test_a_paused_cluster_would_be_left_alone(clusters: CapiFixture, tmp_path: Path, *, paused: bool) -> None:
    vpc = await clusters.resources.vpc()
    clusters.capi.unmanaged("prod", region=REGION, vpc=vpc.id, paused=paused)
    found = await ask(clusters, tmp_path, "--output", "json")
    assert bool(found["held"]) == paused
