"""Ownership is proven before anything is changed: account, VPC, namesakes, identity, and creation time.
Without proof the deletion is held, and the object says why; an operator can release it."""

import base64
import uuid
from typing import Any

import pytest

from service.sources.capa import AWS_ACCOUNT, DEFAULT_TASKS, EXTERNAL_RESOURCE_GC, EXTERNAL_RESOURCE_TASKS
from standins.aws.builder import REGION, AwsBuilder
from standins.aws.tags import by_cloud_provider
from tests.aws_kinds import AWS_KINDS
from tests.capi import AWS_CLUSTERS, MACHINES, STATIC_IDENTITIES, CapiObjects
from tests.scenarios.aws.account_contents import account_contents, assert_gone
from tests.scenarios.aws.aws_scenario import AwsScenario
from tests.scenarios.aws.capi_clusters import CapiClusters
from tests.scenarios.aws.cluster_resources import a_few

pytestmark = pytest.mark.long


def any_account() -> str:
    return str(uuid.uuid4().int)[-12:]


async def test_the_wrong_account_is_not_an_empty_account(scenario: AwsScenario) -> None:
    await scenario.start()
    async with AwsBuilder(scenario.aws.address, account=any_account(), region=REGION) as elsewhere:
        vpc = await elsewhere.vpc()
        await a_few(elsewhere, "prod", vpc)
        # The caller's account has something of that name, too.
        await a_few(scenario.builder, "prod", await scenario.builder.vpc())
        by_vpc = await scenario.unmanaged("prod", vpc)
        by_word = await scenario.unmanaged("test", annotations={AWS_ACCOUNT: elsewhere.account})
        before, theirs = await scenario.account_contents(), await account_contents(elsewhere)
        await scenario.until_marked(by_vpc, by_word)
        for infra in (by_vpc, by_word):
            await scenario.delete(infra)
        await scenario.until_told(by_vpc, f"VPC {vpc.id}", f"is not in account {scenario.account}")
        await scenario.until_told(by_word, f"caller's account is {scenario.account}", f"says {elsewhere.account}")
        for infra in (by_vpc, by_word):
            assert scenario.marked(infra)
            scenario.annotate(infra, {EXTERNAL_RESOURCE_GC: "false"})
        await scenario.until_released(by_vpc, by_word)
        assert await scenario.changes() == []
        assert_gone(before, await scenario.account_contents(), ())
        assert_gone(theirs, await account_contents(elsewhere), ())


async def test_a_cluster_waits_for_its_namesake_and_takes_only_its_own(scenario: AwsScenario) -> None:
    namespace = scenario.api.namespace()
    for source in scenario.document["sources"].values():
        source["namespaces"].append(namespace)
    await scenario.start()
    others = CapiClusters(scenario.kube, namespace, scenario.builder)
    infra, namesake = await scenario.unmanaged("prod"), await others.unmanaged("prod")
    mine = await a_few(scenario.builder, "prod", infra.vpc)
    await a_few(scenario.builder, "prod", namesake.vpc)
    before = await scenario.account_contents()
    await scenario.until_marked(infra, namesake)
    await scenario.delete(infra)
    await scenario.until_told(infra, f"{namespace}/prod", "same name")
    assert await scenario.changes() == []
    scenario.annotate(namesake, {EXTERNAL_RESOURCE_GC: "false"})
    await scenario.until("the namesake is not marked", lambda: not scenario.marked(namesake))
    scenario.kube.delete(namesake.path)
    scenario.nudge(infra)
    await scenario.until_released(infra)
    assert_gone(before, await scenario.account_contents(), mine.ids)


async def test_an_identity_that_does_not_allow_the_namespace_is_not_even_tried(scenario: AwsScenario) -> None:
    secrets, tenant, name = scenario.api.namespace(), any_account(), f"tenant-{uuid.uuid4().hex[:8]}"
    scenario.document["aws"]["identity_namespace"] = secrets
    keys = {"AccessKeyID": f"AKIA{tenant}", "SecretAccessKey": "static"}
    encoded = {key: base64.b64encode(text.encode()).decode() for key, text in keys.items()}
    scenario.kube.create(f"/api/v1/namespaces/{secrets}/secrets", {"metadata": {"name": name}, "data": encoded})
    for suffix, namespace in (("", "somewhere-else"), ("-shared", scenario.namespace)):
        allowed = {"list": [namespace]}
        scenario.capi.identity(STATIC_IDENTITIES, name + suffix, {"secretRef": name, "allowedNamespaces": allowed})
    await scenario.start()
    async with AwsBuilder(scenario.aws.address, account=tenant, region=REGION) as theirs:
        vpc = await theirs.vpc()
        had = await a_few(theirs, "prod", vpc)
        # Who took its own credentials instead would find something.
        await a_few(scenario.builder, "prod", await scenario.builder.vpc())
        infra = await scenario.unmanaged("prod", vpc, identity={"kind": STATIC_IDENTITIES.kind, "name": name})
        before, own = await account_contents(theirs), await scenario.account_contents()
        await scenario.until_marked(infra)
        await scenario.delete(infra)
        await scenario.until_told(infra, f"{name} may not be used from namespace {scenario.namespace}")
        assert [one for one in await scenario.aws.requests() if one.account == tenant] == [], (
            "the tenant's key was used"
        )
        scenario.kube.patch(infra.path, {"spec": {"identityRef": {"name": f"{name}-shared"}}})
        scenario.nudge(infra)
        await scenario.until_released(infra)
        assert_gone(before, await account_contents(theirs), had.ids)
        assert_gone(own, await scenario.account_contents(), ())


@pytest.mark.invariant(11)
async def test_a_tenant_does_not_choose_what_the_settings_do_not_allow(scenario: AwsScenario) -> None:
    """A living `prod` in a Namespace that is not watched, and a tenant who wants its volumes deleted."""
    scenario.document["aws"]["allowed_tasks"] = list(DEFAULT_TASKS)
    CapiObjects(scenario.kube, scenario.api.namespace()).unmanaged("prod", region=REGION)
    volume = await scenario.builder.volume(by_cloud_provider("prod"))
    await scenario.start()
    mine = await scenario.unmanaged("prod", annotations={EXTERNAL_RESOURCE_TASKS: "load-balancer,volume"})
    await scenario.until_marked(mine)
    scenario.kube.delete(mine.path)
    words = "names task volume, which the setting aws.allowed_tasks does not allow", f"allowed: {DEFAULT_TASKS[0]}"
    await scenario.until_told(mine, *words)

    def an_event_says_so() -> bool:
        found: Any = scenario.kube.get(f"/apis/events.k8s.io/v1/namespaces/{scenario.namespace}/events")
        return any(all(word in one.get("note", "") for word in words) for one in found["items"])

    await scenario.until("an Event says what is allowed", an_event_says_so)
    # Without the task it is held for the namesake, which is in a Namespace that is not watched.
    scenario.capi.annotate(AWS_CLUSTERS, "prod", **{EXTERNAL_RESOURCE_TASKS: "load-balancer"})

    async def held_for_the_namesake() -> bool:
        record = await scenario.record(mine)
        return record is not None and "has the same name in its tags" in record.held_why

    await scenario.until("it is held for the namesake", held_for_the_namesake)
    assert await scenario.changes() == []
    assert volume in await AWS_KINDS["aws.volume"].there(scenario.builder)


async def test_a_cluster_that_still_runs_is_waited_for_and_what_runs_is_named(scenario: AwsScenario) -> None:
    await scenario.start()
    unmanaged, managed = await scenario.unmanaged("prod"), await scenario.managed("test")
    machine = scenario.capi.machine("prod-worker-1", "prod")["metadata"]["name"]
    all_ids = set[str]()
    for infra in (unmanaged, managed):
        all_ids |= (await a_few(scenario.builder, infra.tag, infra.vpc)).ids
    before = await scenario.account_contents()
    await scenario.until_marked(unmanaged, managed)
    for infra in (unmanaged, managed):
        scenario.kube.delete(infra.path)
    await scenario.until_told(unmanaged, "CleanupWaiting", "too early", f"Machine {scenario.namespace}/{machine}")
    await scenario.until_told(managed, "CleanupWaiting", "too early", f"EKS cluster {managed.tag} is ACTIVE")
    assert await scenario.changes() == []
    scenario.capi.delete(MACHINES, machine)
    await scenario.builder.eks.delete_cluster(name=managed.tag)
    for infra in (unmanaged, managed):
        scenario.nudge(infra)
    await scenario.until_released(unmanaged, managed)
    assert_gone(before, await scenario.account_contents(), all_ids)
