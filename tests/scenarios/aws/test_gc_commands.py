"""`knell gc enable`, `disable` and `configure` as an operator types them, for a Cluster's name or the object itself."""

import asyncio
import time

import pytest

from service.sources.capa import AWS_ACCOUNT, EXTERNAL_RESOURCE_GC, EXTERNAL_RESOURCE_TASKS
from standins.aws.tags import by_cloud_provider
from tests.capi import AWS_CLUSTERS, reference
from tests.integration.command_line import CommandResult
from tests.scenarios.aws.account_contents import assert_gone
from tests.scenarios.aws.aws_scenario import AwsScenario
from tests.scenarios.aws.capi_clusters import Infra
from tests.scenarios.aws.cluster_resources import a_few, one_of_each

pytestmark = pytest.mark.long


async def gc(scenario: AwsScenario, *words: str) -> CommandResult:
    return await asyncio.to_thread(scenario.knell, "gc", *words, "-n", scenario.namespace)


def annotations(scenario: AwsScenario, infra: Infra) -> dict[str, str]:
    found = scenario.kube.get(infra.path) or {}
    said: dict[str, str] = found["metadata"].get("annotations") or {}
    return said


async def test_a_cluster_from_before_the_feature_is_collected_once_it_is_enabled(scenario: AwsScenario) -> None:
    old, left = await scenario.managed("old"), await scenario.unmanaged("left")
    had = await a_few(scenario.builder, old.tag, old.vpc)
    await a_few(scenario.builder, left.tag, left.vpc)
    # Objects carry whole seconds, and one of the same second would count as new.
    second = time.time() + 1
    await scenario.until("they are older than the feature", lambda: time.time() > second)
    await scenario.start()
    new = await scenario.unmanaged("new")
    await scenario.until_marked(new)
    assert not scenario.marked(old)
    assert not scenario.marked(left)
    answer = await gc(scenario, "enable", "cluster/old", "--account", scenario.account)
    assert answer.code == 0, answer.err
    assert scenario.marked(old)
    assert annotations(scenario, old) == {EXTERNAL_RESOURCE_GC: "true", AWS_ACCOUNT: scenario.account}
    before = await scenario.account_contents()
    await scenario.delete(old)
    await scenario.until_released(old)
    await scenario.delete(left)
    assert scenario.is_gone(left)
    assert_gone(before, await scenario.account_contents(), had.ids)


async def test_a_cluster_that_is_disabled_keeps_its_resources_also_in_the_middle(scenario: AwsScenario) -> None:
    await scenario.start()
    early, late = await scenario.unmanaged("early"), await scenario.managed("late")
    await a_few(scenario.builder, early.tag, early.vpc)
    had = await one_of_each(scenario.builder, late.tag, late.vpc)
    await scenario.builder.protect(had.balancers[1])
    await scenario.until_marked(early, late)
    answer = await gc(scenario, "disable", "awscluster/early")
    assert answer.code == 0, answer.err
    assert annotations(scenario, early)[EXTERNAL_RESOURCE_GC] == "false"
    assert not scenario.marked(early)
    await scenario.delete(early)
    assert scenario.is_gone(early)
    await scenario.delete(late)
    # All but the protected one, and the groups that only these or no others used.
    gone = {had.balancers[0], *had.balancers[2:], had.groups[0], had.groups[3]}
    await scenario.until_gone(*gone)
    answer = await gc(scenario, "disable", "cluster/late")
    assert answer.code == 0, answer.err
    assert "already going" in answer.out
    await scenario.until_released(late)
    standing = await scenario.builder.standing()
    assert had.ids & standing == had.ids - gone
    changed = {one for entry in await scenario.changes() if entry.status == 200 for one in entry.ids}
    # Rules are named together with the group that has them.
    assert {one for one in changed if not one.startswith("sgr-")} <= had.ids


async def test_tasks_that_are_configured_replace_those_of_the_settings(scenario: AwsScenario) -> None:
    await scenario.start()
    infra = await scenario.unmanaged("prod")
    had = await a_few(scenario.builder, infra.tag, infra.vpc)
    volume = await scenario.builder.volume(by_cloud_provider(infra.tag))
    before = await scenario.account_contents()
    await scenario.until_marked(infra)
    wrong = await gc(scenario, "configure", "cluster/prod", "--task", "load-balancer,disk")
    assert wrong.code == 2
    assert "unknown disk" in wrong.err
    assert EXTERNAL_RESOURCE_TASKS not in annotations(scenario, infra)
    for words, said in ((("--task", "target-group"), "target-group"), ((), None), (("--task", "volume"), "volume")):
        answer = await gc(scenario, "configure", "cluster/prod", *words)
        assert answer.code == 0, answer.err
        assert annotations(scenario, infra).get(EXTERNAL_RESOURCE_TASKS) == said
    await scenario.delete(infra)
    await scenario.until_released(infra)
    assert volume not in had.ids
    assert_gone(before, await scenario.account_contents(), {volume})


async def test_a_cluster_without_infrastructure_yet_gets_an_error_and_can_be_enabled_later(
    scenario: AwsScenario,
) -> None:
    await scenario.start()
    owner = scenario.capi.cluster("prod", infrastructureRef=reference(AWS_CLUSTERS, "prod-infra", old=True))
    for command in ("enable", "disable", "configure"):
        answer = await gc(scenario, command, "cluster/prod")
        assert answer.code == 1
        assert "prod-infra" in answer.err
    scenario.capi.create(AWS_CLUSTERS, "prod-infra", {"region": "eu-west-1"}, **scenario.capi.owned_by(owner))
    answer = await gc(scenario, "enable", "cluster/prod")
    assert answer.code == 0, answer.err
    assert scenario.capi.get(AWS_CLUSTERS, "prod-infra")["metadata"]["annotations"] == {EXTERNAL_RESOURCE_GC: "true"}
    missing = await gc(scenario, "enable", "cluster/nothing")
    assert missing.code == 1
    assert "there is no Cluster nothing" in missing.err
