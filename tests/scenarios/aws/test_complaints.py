"""What users of the collector in Cluster API Provider AWS complain about, one test for each, in their words."""

import asyncio
from collections.abc import Sequence

import msgspec
import pytest

from service.contract.aws import EXTERNAL_RESOURCE_TASKS, ownership_tag
from service.local.aws import Entry, Fault
from service.local.aws.tags import by_cloud_provider
from tests.scenarios.aws.belongings import SERVICE, a_few
from tests.scenarios.aws.clusters import Infra
from tests.scenarios.aws.holdings import assert_gone
from tests.scenarios.aws.stage import RATE, Stage

# What counts is that nothing is missed, not how long AWS would take.
FASTER = {"*/ec2.*": {"rate": 200}, "*/elbv2.*": {"rate": 200}, "*/tag.*": {"rate": 200}}

LEFT = "there again, or still"


async def collected(stage: Stage, *infras: Infra) -> None:
    await stage.until_marked(*infras)
    await asyncio.gather(*(stage.delete(infra) for infra in infras))
    await stage.until_released(*infras)


@pytest.mark.long
async def test_c1_nlbs_and_their_target_groups_are_left_behind(stage: Stage) -> None:
    await stage.start()
    infra = await stage.unmanaged("prod")
    served = by_cloud_provider(infra.tag, SERVICE)
    net = await stage.world.balancer(infra.vpc, served, of="net")
    behind = [await stage.world.target_group(infra.vpc, served, behind=net, port=port) for port in (80, 443)]
    before = await stage.holdings()
    assert "/net/" in net
    await collected(stage, infra)
    assert_gone(before, await stage.holdings(), {net, *behind})


@pytest.mark.long
async def test_c2_the_security_group_of_a_balancer_is_left_because_an_interface_still_drains(stage: Stage) -> None:
    await stage.start()
    infra = await stage.unmanaged("prod")
    had = await a_few(stage.world, infra.tag, infra.vpc)
    before = await stage.holdings()
    await stage.aws.behave(drain=1000 * RATE)
    await stage.until_marked(infra)
    await stage.delete(infra)
    await stage.until_told(infra, had.groups[0], "network interface eni-", "load balancer")
    await stage.aws.advance(1000 * RATE)
    await stage.until_released(infra)
    assert_gone(before, await stage.holdings(), had.ids)
    drained = max(one.at for one in await stage.aws.journal() if one.what == "drained" and had.groups[0] in one.ids)
    (deleted,) = await stage.asked("ec2.DeleteSecurityGroup")
    assert deleted.status == 200
    assert deleted.at > drained


@pytest.mark.long
async def test_c3_the_same_because_of_a_rule_in_another_group(stage: Stage) -> None:
    await stage.start()
    infra = await stage.unmanaged("prod")
    had = await a_few(stage.world, infra.tag, infra.vpc)
    theirs, users = had.groups[0], await stage.world.group(infra.vpc, name="database")
    second = await stage.world.group(infra.vpc, by_cloud_provider(infra.tag))
    await stage.world.rule(theirs, second)
    await stage.world.rule(second, theirs, egress=True)
    before = await stage.holdings()
    rule = await stage.world.rule(users, theirs, port=5432)
    await stage.until_marked(infra)
    await stage.delete(infra)
    # A rule that is not the cluster's is not ours to touch: it is named, and who owns it decides.
    await stage.until_told(infra, theirs, f"ingress rule of {users} (database) for tcp 5432")
    assert {users, rule}.isdisjoint(one for entry in await stage.changes() for one in entry.ids)
    await stage.world.ec2.revoke_security_group_ingress(GroupId=users, SecurityGroupRuleIds=[rule])
    await stage.until_released(infra)
    assert_gone(before, await stage.holdings(), {*had.ids, second})


@pytest.mark.long
@pytest.mark.parametrize("number", [150, 1000])
async def test_c4_more_than_a_page_of_tagged_resources_is_missed(stage: Stage, number: int) -> None:
    stage.document["limits"] = FASTER
    await stage.aws.behave(buckets=False)
    await stage.start()
    infra = await stage.unmanaged("prod")
    many = [stage.world.group(infra.vpc, by_cloud_provider(infra.tag)) for _ in range(number * 4 // 5)]
    some = [stage.world.target_group(infra.vpc, by_cloud_provider(infra.tag, SERVICE)) for _ in range(number // 5)]
    had = await asyncio.gather(*many, *some)
    before = await stage.holdings()
    await stage.until_marked(infra)
    await stage.delete(infra)
    await stage.until_released(infra)
    assert len(had) == number
    assert_gone(before, await stage.holdings(), had)
    assert LEFT not in await stage.audited(), "only the last look found some of them"


@pytest.mark.long
async def test_c5_throttling_when_many_clusters_are_destroyed_at_once(stage: Stage) -> None:
    # At AWS's own pace, with somebody else who draws on the same buckets.
    await stage.aws.set_rate(1)
    await stage.aws.behave(drain=1)
    await stage.aws.trouble(Fault(what="throttle", action="elb.DeleteLoadBalancer", account=stage.account, times=2))
    await stage.start()
    infras = [await stage.unmanaged(f"test-{number}") for number in range(6)]
    had = await asyncio.gather(*(stage.world.cluster_resources(one.tag, one.vpc, entangled=True) for one in infras))
    all_ids = {id_ for one in had for id_ in (*one.classic, *one.balancers, *one.target_groups, *one.groups)}
    before = await stage.holdings()
    await collected(stage, *infras)
    assert len(all_ids) == 60
    assert_gone(before, await stage.holdings(), all_ids)
    asked = await stage.asked()
    assert len(refused(asked)) <= 2 + len(asked) // 100, "budgets were exceeded"
    # Who is refused for want of quota has not failed.
    assert not [view for view in await stage.deletions() if view.state != "done"]


@pytest.mark.long
async def test_c6_there_is_no_clue_which_resource_blocks_the_vpc(stage: Stage) -> None:
    await stage.start()
    infra = await stage.unmanaged("prod")
    had = await a_few(stage.world, infra.tag, infra.vpc)
    before = await stage.holdings()
    interface = await stage.world.interface(infra.vpc, had.groups)
    await stage.until_marked(infra)
    await stage.delete(infra)
    await stage.until_told(infra, had.groups[0], f"network interface {interface}")

    def is_listed() -> bool:
        return interface in stage.knell("jobs", "list", "--output", "json").out

    # A job that changes its state while they are read, one after the other, is in none of them.
    await stage.until("the list of jobs names it", is_listed)
    await stage.world.ec2.delete_network_interface(NetworkInterfaceId=interface)
    await stage.until_released(infra)
    assert_gone(before, await stage.holdings(), had.ids)


@pytest.mark.long
async def test_c7_tasks_can_not_be_chosen_for_a_cluster_and_volumes_are_wanted(stage: Stage) -> None:
    await stage.start()
    chosen = await stage.unmanaged("chosen", annotations={EXTERNAL_RESOURCE_TASKS: "volume , target-group"})
    unknown = await stage.unmanaged("unknown", annotations={EXTERNAL_RESOURCE_TASKS: "load-balancer,disk"})
    usual = await stage.unmanaged("usual")
    volumes, targets, groups, balancers = {}, {}, {}, {}
    for infra in (chosen, unknown, usual):
        served = by_cloud_provider(infra.tag, SERVICE)
        volumes[infra] = await stage.world.volume(by_cloud_provider(infra.tag))
        targets[infra] = await stage.world.target_group(infra.vpc, served)
        groups[infra] = await stage.world.group(infra.vpc, by_cloud_provider(infra.tag))
        balancers[infra] = await stage.world.balancer(infra.vpc, served, of="net")
    before = await stage.holdings()
    await stage.until_marked(unknown)
    await stage.delete(unknown)
    await collected(stage, chosen, usual)
    await stage.until_told(unknown, "names a task 'disk'", "security-group", "volume")
    doomed = {volumes[chosen], targets[chosen], targets[usual], groups[usual], balancers[usual]}
    assert_gone(before, await stage.holdings(), doomed)


@pytest.mark.long
async def test_c8_a_region_or_network_without_the_tagging_api(stage: Stage) -> None:
    await stage.aws.trouble(Fault(what="close", action="tagging.*", account=stage.account))
    await stage.aws.behave(page_size=2)
    await stage.start()
    infra = await stage.unmanaged("prod")
    # Before the first of its own come pages of others.
    foreign = by_cloud_provider("other", SERVICE)
    await asyncio.gather(*(stage.world.target_group(infra.vpc, foreign) for _ in range(3)))
    had = await a_few(stage.world, infra.tag, infra.vpc)
    served = by_cloud_provider(infra.tag, SERVICE)
    more = await asyncio.gather(*(stage.world.target_group(infra.vpc, served) for _ in range(4)))
    before = await stage.holdings()
    await collected(stage, infra)
    assert_gone(before, await stage.holdings(), {*had.ids, *more})
    assert LEFT not in await stage.audited(), "only the last look found some of them"


@pytest.mark.long
async def test_c9_what_a_user_supplied_or_another_cluster_of_that_name_owns_is_deleted(stage: Stage) -> None:
    await stage.start()
    infra = await stage.unmanaged("prod")
    had = await a_few(stage.world, infra.tag, infra.vpc)
    # The user's, although the cloud provider has tagged it as the cluster's: the spec names it.
    supplied = await stage.world.group(infra.vpc, by_cloud_provider(infra.tag), name="from-the-user")
    stage.kube.patch(infra.path, {"spec": {"network": {"securityGroupOverrides": {"lb": supplied}}}})
    app = await stage.world.balancer(infra.vpc, by_cloud_provider(infra.tag, SERVICE), groups=[supplied])
    # Somebody else's, in the same account: its own VPC is all that tells it apart.
    await a_few(stage.world, infra.tag, await stage.world.vpc())
    before = await stage.holdings()
    await collected(stage, infra)
    assert_gone(before, await stage.holdings(), {*had.ids, app})


@pytest.mark.long
async def test_c10_volumes_are_deleted_although_nobody_asked_for_it(stage: Stage) -> None:
    stage.document["aws"]["snapshot_first"] = True
    await stage.start()
    usual = await stage.unmanaged("usual")
    chosen = await stage.unmanaged("chosen", annotations={EXTERNAL_RESOURCE_TASKS: "volume"})
    await stage.world.volume(by_cloud_provider(usual.tag))
    doomed = await stage.world.volume(by_cloud_provider(chosen.tag))
    before = await stage.holdings()
    await collected(stage, usual, chosen)
    after = dict(await stage.holdings())
    (snapshot,) = [msgspec.json.decode(after.pop(one)) for one in list(after) if one.startswith("snap-")]
    assert_gone(before, after, {doomed})
    assert (snapshot["VolumeId"], snapshot["State"]) == (doomed, "completed")
    assert ownership_tag(chosen.tag) not in {tag["Key"] for tag in snapshot["Tags"]}
    (made,), (deleted,) = await stage.asked("ec2.CreateSnapshot"), await stage.asked("ec2.DeleteVolume")
    assert deleted.at >= made.at + 5, "the volume went before its snapshot was complete"


def refused(asked: Sequence[Entry]) -> list[str]:
    """Calls that were refused for want of quota."""
    return [one.action for one in asked if one.code in ("RequestLimitExceeded", "Throttling", "ThrottledException")]
