"""Whose resources they are is proven before anything is touched: account, VPC, namesakes, identity, and the moment.
What can't be proven holds, and the object says why; a word of a person lets it go."""

import base64
import uuid
from typing import Any

import pytest

from service.contract.aws import AWS_ACCOUNT, DEFAULT_TASKS, EXTERNAL_RESOURCE_GC, EXTERNAL_RESOURCE_TASKS
from service.local.aws.tags import by_cloud_provider
from service.local.aws.world import REGION, World
from tests.capi import AWS_CLUSTERS, MACHINES, STATIC_IDENTITIES, Capi
from tests.scenarios.aws.belongings import a_few
from tests.scenarios.aws.clusters import Clusters
from tests.scenarios.aws.holdings import assert_gone, holdings
from tests.scenarios.aws.stage import Stage

pytestmark = pytest.mark.long


def any_account() -> str:
    return str(uuid.uuid4().int)[-12:]


async def test_the_wrong_account_is_not_an_empty_account(stage: Stage) -> None:
    await stage.start()
    async with World(stage.aws.address, account=any_account(), region=REGION) as elsewhere:
        vpc = await elsewhere.vpc()
        await a_few(elsewhere, "prod", vpc)
        # The caller's account has something of that name, too.
        await a_few(stage.world, "prod", await stage.world.vpc())
        by_vpc = await stage.unmanaged("prod", vpc)
        by_word = await stage.unmanaged("test", annotations={AWS_ACCOUNT: elsewhere.account})
        before, theirs = await stage.holdings(), await holdings(elsewhere)
        await stage.until_marked(by_vpc, by_word)
        for infra in (by_vpc, by_word):
            await stage.delete(infra)
        await stage.until_told(by_vpc, f"VPC {vpc.id}", f"is not in account {stage.account}")
        await stage.until_told(by_word, f"caller's account is {stage.account}", f"says {elsewhere.account}")
        for infra in (by_vpc, by_word):
            assert stage.marked(infra)
            stage.annotate(infra, {EXTERNAL_RESOURCE_GC: "false"})
        await stage.until_released(by_vpc, by_word)
        assert await stage.changes() == []
        assert_gone(before, await stage.holdings(), ())
        assert_gone(theirs, await holdings(elsewhere), ())


async def test_a_cluster_waits_for_its_namesake_and_takes_only_its_own(stage: Stage) -> None:
    namespace = stage.api.namespace()
    for source in stage.document["sources"].values():
        source["namespaces"].append(namespace)
    await stage.start()
    others = Clusters(stage.kube, namespace, stage.world)
    infra, namesake = await stage.unmanaged("prod"), await others.unmanaged("prod")
    mine = await a_few(stage.world, "prod", infra.vpc)
    await a_few(stage.world, "prod", namesake.vpc)
    before = await stage.holdings()
    await stage.until_marked(infra, namesake)
    await stage.delete(infra)
    await stage.until_told(infra, f"{namespace}/prod", "same name")
    assert await stage.changes() == []
    stage.annotate(namesake, {EXTERNAL_RESOURCE_GC: "false"})
    await stage.until("the namesake is not marked", lambda: not stage.marked(namesake))
    stage.kube.delete(namesake.path)
    stage.nudge(infra)
    await stage.until_released(infra)
    assert_gone(before, await stage.holdings(), mine.ids)


async def test_an_identity_that_does_not_allow_the_namespace_is_not_even_tried(stage: Stage) -> None:
    secrets, tenant, name = stage.api.namespace(), any_account(), f"tenant-{uuid.uuid4().hex[:8]}"
    stage.document["aws"]["identity_namespace"] = secrets
    keys = {"AccessKeyID": f"AKIA{tenant}", "SecretAccessKey": "static"}
    encoded = {key: base64.b64encode(text.encode()).decode() for key, text in keys.items()}
    stage.kube.create(f"/api/v1/namespaces/{secrets}/secrets", {"metadata": {"name": name}, "data": encoded})
    for suffix, namespace in (("", "somewhere-else"), ("-shared", stage.namespace)):
        allowed = {"list": [namespace]}
        stage.capi.identity(STATIC_IDENTITIES, name + suffix, {"secretRef": name, "allowedNamespaces": allowed})
    await stage.start()
    async with World(stage.aws.address, account=tenant, region=REGION) as theirs:
        vpc = await theirs.vpc()
        had = await a_few(theirs, "prod", vpc)
        # Who took its own credentials instead would find something.
        await a_few(stage.world, "prod", await stage.world.vpc())
        infra = await stage.unmanaged("prod", vpc, identity={"kind": STATIC_IDENTITIES.kind, "name": name})
        before, own = await holdings(theirs), await stage.holdings()
        await stage.until_marked(infra)
        await stage.delete(infra)
        await stage.until_told(infra, f"{name} may not be used from namespace {stage.namespace}")
        assert [one for one in await stage.aws.requests() if one.account == tenant] == [], "the tenant's key was used"
        stage.kube.patch(infra.path, {"spec": {"identityRef": {"name": f"{name}-shared"}}})
        stage.nudge(infra)
        await stage.until_released(infra)
        assert_gone(before, await holdings(theirs), had.ids)
        assert_gone(own, await stage.holdings(), ())


@pytest.mark.invariant(11)
async def test_a_tenant_does_not_choose_what_the_settings_do_not_allow(stage: Stage) -> None:
    """The story of a living `prod` whose Namespace nobody watches, and of a tenant who wants its volumes gone."""
    stage.document["aws"]["allowed_tasks"] = list(DEFAULT_TASKS)
    Capi(stage.kube, stage.api.namespace()).unmanaged("prod", region=REGION)
    volume = await stage.world.volume(by_cloud_provider("prod"))
    await stage.start()
    mine = await stage.unmanaged("prod", annotations={EXTERNAL_RESOURCE_TASKS: "load-balancer,volume"})
    await stage.until_marked(mine)
    stage.kube.delete(mine.path)
    words = "names task volume, which the setting aws.allowed_tasks does not allow", f"allowed: {DEFAULT_TASKS[0]}"
    await stage.until_told(mine, *words)

    def an_event_says_so() -> bool:
        found: Any = stage.kube.get(f"/apis/events.k8s.io/v1/namespaces/{stage.namespace}/events")
        return any(all(word in one.get("note", "") for word in words) for one in found["items"])

    await stage.until("an Event says what is allowed", an_event_says_so)
    # Without the task it is held for the namesake, which is in a Namespace that is not watched.
    stage.capi.annotate(AWS_CLUSTERS, "prod", **{EXTERNAL_RESOURCE_TASKS: "load-balancer"})

    async def held_for_the_namesake() -> bool:
        record = await stage.record(mine)
        return record is not None and "has the same name in its tags" in record.held_why

    await stage.until("it is held for the namesake", held_for_the_namesake)
    assert await stage.changes() == []
    assert volume in {one["VolumeId"] for one in (await stage.world.ec2.describe_volumes())["Volumes"]}


async def test_a_cluster_that_still_runs_is_waited_for_and_what_runs_is_named(stage: Stage) -> None:
    await stage.start()
    unmanaged, managed = await stage.unmanaged("prod"), await stage.managed("test")
    machine = stage.capi.machine("prod-worker-1", "prod")["metadata"]["name"]
    all_ids = set[str]()
    for infra in (unmanaged, managed):
        all_ids |= (await a_few(stage.world, infra.tag, infra.vpc)).ids
    before = await stage.holdings()
    await stage.until_marked(unmanaged, managed)
    for infra in (unmanaged, managed):
        stage.kube.delete(infra.path)
    await stage.until_told(unmanaged, "CleanupWaiting", "too early", f"Machine {stage.namespace}/{machine}")
    await stage.until_told(managed, "CleanupWaiting", "too early", f"EKS cluster {managed.tag} is ACTIVE")
    assert await stage.changes() == []
    stage.capi.delete(MACHINES, machine)
    await stage.world.eks.delete_cluster(name=managed.tag)
    for infra in (unmanaged, managed):
        stage.nudge(infra)
    await stage.until_released(unmanaged, managed)
    assert_gone(before, await stage.holdings(), all_ids)
