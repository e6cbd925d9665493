"""`knell plan` for a cluster on AWS that lives: what would go with it, while nothing is touched."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from service.contract.aws import AWS_CLUSTERS, CAPA
from standins.aws.world import REGION
from tests.integration.clustered import Clustered
from tests.integration.operating import environment, invoke


async def ask(clustered: Clustered, folder: Path, *words: str, feature: bool = True) -> Any:
    clusters = {"here": {"kubeconfig": str(clustered.api.kubeconfig(folder / "admin")), "context": "local"}}
    source = {"resource": AWS_CLUSTERS, "collector": CAPA, "namespaces": [clustered.capi.namespace]}
    document = {
        "clusters": clusters, "sources": {"unmanaged": source}, "features": {"ExternalResourceGC": feature},
        "aws": {"endpoint": clustered.aws.address},
    }  # fmt: skip
    config = folder / "knell.yaml"
    config.write_bytes(msgspec.yaml.encode(document))
    named = ("--config", str(config), "plan", "awsclusters/prod", "-n", clustered.capi.namespace)
    answer = await asyncio.to_thread(invoke, environment(clustered.settings.redis), *named, *words)
    assert answer.code == 0, answer.err
    return answer.json if "json" in words else answer.out


async def test_it_shows_all_stages_and_says_what_would_still_be_waited_for(
    clustered: Clustered, tmp_path: Path
) -> None:
    vpc = await clustered.resources.vpc()
    mine = await clustered.resources.cluster_resources("prod", vpc)
    clustered.capi.unmanaged("prod", region=REGION, vpc=vpc.id)
    clustered.capi.machine("prod-1", "prod")
    before = await clustered.resources.standing()
    found = await ask(clustered, tmp_path, "--output", "json")
    assert found["held"] == ""
    assert "prod-1" in found["remark"]
    listed = [one["id"] for one in found["targets"]]
    assert set(listed) == {*mine.classic, *mine.balancers, *mine.target_groups, *mine.groups, "prod"}
    assert listed[-1] == "prod"
    assert {one["limit"] for one in found["estimate"]["limits"]} >= {f"{REGION}/ec2.DeleteSecurityGroup"}
    assert await clustered.resources.standing() == before
    shown = await ask(clustered, tmp_path)
    assert "10 resources would be removed" in shown
    assert "too early" in " ".join(shown.split())


async def test_what_holds_is_told(clustered: Clustered, tmp_path: Path) -> None:
    clustered.capi.unmanaged("prod", region=REGION, vpc="vpc-0123456789abcdef0")
    found = await ask(clustered, tmp_path, "--output", "json")
    assert "vpc-0123456789abcdef0" in found["held"]
    assert found["targets"] == []


async def test_with_the_feature_off_it_says_so_and_asks_aws_nothing(clustered: Clustered, tmp_path: Path) -> None:
    clustered.capi.unmanaged("prod", region=REGION, vpc="vpc-0123456789abcdef0")
    found = await ask(clustered, tmp_path, "--output", "json", feature=False)
    assert "ExternalResourceGC" in found["decision"]["reason"]
    assert await clustered.calls() == 0


@pytest.mark.parametrize("paused", [True, False])
async def test_a_paused_cluster_would_be_left_alone(clustered: Clustered, tmp_path: Path, *, paused: bool) -> None:
    vpc = await clustered.resources.vpc()
    clustered.capi.unmanaged("prod", region=REGION, vpc=vpc.id, paused=paused)
    found = await ask(clustered, tmp_path, "--output", "json")
    assert bool(found["held"]) == paused
