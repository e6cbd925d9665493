"""`knell gc enable`, `disable` and `configure` as an operator types them, for a Cluster's name or the object itself."""

import asyncio
import time

import pytest

from service.contract.aws import AWS_ACCOUNT, EXTERNAL_RESOURCE_GC, EXTERNAL_RESOURCE_TASKS
from standins.aws.tags import by_cloud_provider
from tests.capi import AWS_CLUSTERS, reference
from tests.integration.operating import Answer
from tests.scenarios.aws.belongings import a_few, one_of_each
from tests.scenarios.aws.clusters import Infra
from tests.scenarios.aws.holdings import assert_gone
from tests.scenarios.aws.stage import Stage

pytestmark = pytest.mark.long


async def gc(stage: Stage, *words: str) -> Answer:
    return await asyncio.to_thread(stage.knell, "gc", *words, "-n", stage.namespace)


def annotations(stage: Stage, infra: Infra) -> dict[str, str]:
    found = stage.kube.get(infra.path) or {}
    said: dict[str, str] = found["metadata"].get("annotations") or {}
    return said


async def test_a_cluster_from_before_the_feature_is_collected_once_it_is_enabled(stage: Stage) -> None:
    old, left = await stage.managed("old"), await stage.unmanaged("left")
    had = await a_few(stage.world, old.tag, old.vpc)
    await a_few(stage.world, left.tag, left.vpc)
    # Objects carry whole seconds, and one of the same second would count as new.
    second = time.time() + 1
    await stage.until("they are older than the feature", lambda: time.time() > second)
    await stage.start()
    new = await stage.unmanaged("new")
    await stage.until_marked(new)
    assert not stage.marked(old)
    assert not stage.marked(left)
    answer = await gc(stage, "enable", "cluster/old", "--account", stage.account)
    assert answer.code == 0, answer.err
    assert stage.marked(old)
    assert annotations(stage, old) == {EXTERNAL_RESOURCE_GC: "true", AWS_ACCOUNT: stage.account}
    before = await stage.holdings()
    await stage.delete(old)
    await stage.until_released(old)
    await stage.delete(left)
    assert stage.is_gone(left)
    assert_gone(before, await stage.holdings(), had.ids)


async def test_a_cluster_that_is_disabled_keeps_its_resources_also_in_the_middle(stage: Stage) -> None:
    await stage.start()
    early, late = await stage.unmanaged("early"), await stage.managed("late")
    await a_few(stage.world, early.tag, early.vpc)
    had = await one_of_each(stage.world, late.tag, late.vpc)
    await stage.world.protect(had.balancers[1])
    await stage.until_marked(early, late)
    answer = await gc(stage, "disable", "awscluster/early")
    assert answer.code == 0, answer.err
    assert annotations(stage, early)[EXTERNAL_RESOURCE_GC] == "false"
    assert not stage.marked(early)
    await stage.delete(early)
    assert stage.is_gone(early)
    await stage.delete(late)
    # All but the protected one, and the groups that only these or nobody used.
    gone = {had.balancers[0], *had.balancers[2:], had.groups[0], had.groups[3]}
    await stage.until_gone(*gone)
    answer = await gc(stage, "disable", "cluster/late")
    assert answer.code == 0, answer.err
    assert "already going" in answer.out
    await stage.until_released(late)
    standing = await stage.world.standing()
    assert had.ids & standing == had.ids - gone
    changed = {one for entry in await stage.changes() if entry.status == 200 for one in entry.ids}
    # Rules are named together with the group that has them.
    assert {one for one in changed if not one.startswith("sgr-")} <= had.ids


async def test_tasks_that_are_configured_replace_those_of_the_settings(stage: Stage) -> None:
    await stage.start()
    infra = await stage.unmanaged("prod")
    had = await a_few(stage.world, infra.tag, infra.vpc)
    volume = await stage.world.volume(by_cloud_provider(infra.tag))
    before = await stage.holdings()
    await stage.until_marked(infra)
    wrong = await gc(stage, "configure", "cluster/prod", "--task", "load-balancer,disk")
    assert wrong.code == 2
    assert "unknown disk" in wrong.err
    assert EXTERNAL_RESOURCE_TASKS not in annotations(stage, infra)
    for words, said in ((("--task", "target-group"), "target-group"), ((), None), (("--task", "volume"), "volume")):
        answer = await gc(stage, "configure", "cluster/prod", *words)
        assert answer.code == 0, answer.err
        assert annotations(stage, infra).get(EXTERNAL_RESOURCE_TASKS) == said
    await stage.delete(infra)
    await stage.until_released(infra)
    assert volume not in had.ids
    assert_gone(before, await stage.holdings(), {volume})


async def test_a_cluster_whose_infrastructure_is_not_there_yet_is_told_so_and_can_be_enabled_later(
    stage: Stage,
) -> None:
    await stage.start()
    owner = stage.capi.cluster("prod", infrastructureRef=reference(AWS_CLUSTERS, "prod-infra", old=True))
    for command in ("enable", "disable", "configure"):
        answer = await gc(stage, command, "cluster/prod")
        assert answer.code == 1
        assert "prod-infra" in answer.err
    stage.capi.create(AWS_CLUSTERS, "prod-infra", {"region": "eu-west-1"}, **stage.capi.owned_by(owner))
    answer = await gc(stage, "enable", "cluster/prod")
    assert answer.code == 0, answer.err
    assert stage.capi.get(AWS_CLUSTERS, "prod-infra")["metadata"]["annotations"] == {EXTERNAL_RESOURCE_GC: "true"}
    missing = await gc(stage, "enable", "cluster/nothing")
    assert missing.code == 1
    assert "there is no Cluster nothing" in missing.err
