"""What users of the collector in Cluster API Provider AWS complain about, one test for each, in their words."""

import asyncio
from collections.abc import Sequence

import msgspec
import pytest

from service.sources.capa import EXTERNAL_RESOURCE_TASKS, ownership_tag
from standins.aws import AwsFault, AwsJournalEntry
from standins.aws.tags import by_cloud_provider
from tests.scenarios.aws.account_contents import assert_gone
from tests.scenarios.aws.aws_scenario import RATE, AwsScenario
from tests.scenarios.aws.capi_clusters import Infra
from tests.scenarios.aws.cluster_resources import SERVICE, a_few

# What counts is that nothing is missed, not how long AWS would take.
FASTER = {"*/ec2.*": {"rate": 200}, "*/elbv2.*": {"rate": 200}, "*/tag.*": {"rate": 200}}

LEFT = "there again, or still"


async def collected(scenario: AwsScenario, *infras: Infra) -> None:
    await scenario.until_marked(*infras)
    await asyncio.gather(*(scenario.delete(infra) for infra in infras))
    await scenario.until_released(*infras)


@pytest.mark.long
async def test_c1_nlbs_and_their_target_groups_are_left_behind(scenario: AwsScenario) -> None:
    await scenario.start()
    infra = await scenario.unmanaged("prod")
    served = by_cloud_provider(infra.tag, SERVICE)
    net = await scenario.builder.balancer(infra.vpc, served, of="net")
    behind = [await scenario.builder.target_group(infra.vpc, served, behind=net, port=port) for port in (80, 443)]
    before = await scenario.account_contents()
    assert "/net/" in net
    await collected(scenario, infra)
    assert_gone(before, await scenario.account_contents(), {net, *behind})


@pytest.mark.long
async def test_c2_the_security_group_of_a_balancer_is_left_because_an_interface_still_drains(
    scenario: AwsScenario,
) -> None:
    await scenario.start()
    infra = await scenario.unmanaged("prod")
    had = await a_few(scenario.builder, infra.tag, infra.vpc)
    before = await scenario.account_contents()
    await scenario.aws.behave(drain=1000 * RATE)
    await scenario.until_marked(infra)
    await scenario.delete(infra)
    await scenario.until_told(infra, had.groups[0], "network interface eni-", "load balancer")
    await scenario.aws.advance(1000 * RATE)
    await scenario.until_released(infra)
    assert_gone(before, await scenario.account_contents(), had.ids)
    drained = max(one.at for one in await scenario.aws.journal() if one.what == "drained" and had.groups[0] in one.ids)
    (deleted,) = await scenario.asked("ec2.DeleteSecurityGroup")
    assert deleted.status == 200
    assert deleted.at > drained


@pytest.mark.long
async def test_c3_the_same_because_of_a_rule_in_another_group(scenario: AwsScenario) -> None:
    await scenario.start()
    infra = await scenario.unmanaged("prod")
    had = await a_few(scenario.builder, infra.tag, infra.vpc)
    theirs, users = had.groups[0], await scenario.builder.group(infra.vpc, name="database")
    second = await scenario.builder.group(infra.vpc, by_cloud_provider(infra.tag))
    await scenario.builder.rule(theirs, second)
    await scenario.builder.rule(second, theirs, egress=True)
    before = await scenario.account_contents()
    rule = await scenario.builder.rule(users, theirs, port=5432)
    await scenario.until_marked(infra)
    await scenario.delete(infra)
    # A rule that is not the cluster's is not ours to touch: it is named, and who owns it decides.
    await scenario.until_told(infra, theirs, f"ingress rule of {users} (database) for tcp 5432")
    assert {users, rule}.isdisjoint(one for entry in await scenario.changes() for one in entry.ids)
    await scenario.builder.ec2.revoke_security_group_ingress(GroupId=users, SecurityGroupRuleIds=[rule])
    await scenario.until_released(infra)
    assert_gone(before, await scenario.account_contents(), {*had.ids, second})


@pytest.mark.long
@pytest.mark.parametrize("number", [150, 1000])
async def test_c4_more_than_a_page_of_tagged_resources_is_missed(scenario: AwsScenario, number: int) -> None:
    scenario.document["limits"] = FASTER
    await scenario.aws.behave(buckets=False)
    await scenario.start()
    infra = await scenario.unmanaged("prod")
    many = [scenario.builder.group(infra.vpc, by_cloud_provider(infra.tag)) for _ in range(number * 4 // 5)]
    some = [scenario.builder.target_group(infra.vpc, by_cloud_provider(infra.tag, SERVICE)) for _ in range(number // 5)]
    had = await asyncio.gather(*many, *some)
    before = await scenario.account_contents()
    await scenario.until_marked(infra)
    await scenario.delete(infra)
    await scenario.until_released(infra)
    assert len(had) == number
    assert_gone(before, await scenario.account_contents(), had)
    assert LEFT not in await scenario.audited(), "only the last look found some of them"


@pytest.mark.long
async def test_c5_throttling_when_many_clusters_are_destroyed_at_once(scenario: AwsScenario) -> None:
    # At AWS's own pace, with another client that draws on the same buckets.
    await scenario.aws.set_rate(1)
    await scenario.aws.behave(drain=1)
    await scenario.aws.set_faults(
        AwsFault(what="throttle", action="elb.DeleteLoadBalancer", account=scenario.account, times=2)
    )
    await scenario.start()
    infras = [await scenario.unmanaged(f"test-{number}") for number in range(6)]
    had = await asyncio.gather(
        *(scenario.builder.cluster_resources(one.tag, one.vpc, entangled=True) for one in infras)
    )
    all_ids = {id_ for one in had for id_ in (*one.classic, *one.balancers, *one.target_groups, *one.groups)}
    before = await scenario.account_contents()
    await collected(scenario, *infras)
    assert len(all_ids) == 60
    assert_gone(before, await scenario.account_contents(), all_ids)
    asked = await scenario.asked()
    assert len(refused(asked)) <= 2 + len(asked) // 100, "budgets were exceeded"
    # Who is refused for want of quota has not failed.
    assert not [view for view in await scenario.deletions() if view.state != "done"]


@pytest.mark.long
async def test_c6_there_is_no_clue_which_resource_blocks_the_vpc(scenario: AwsScenario) -> None:
    await scenario.start()
    infra = await scenario.unmanaged("prod")
    had = await a_few(scenario.builder, infra.tag, infra.vpc)
    before = await scenario.account_contents()
    interface = await scenario.builder.interface(infra.vpc, had.groups)
    await scenario.until_marked(infra)
    await scenario.delete(infra)
    await scenario.until_told(infra, had.groups[0], f"network interface {interface}")

    def is_listed() -> bool:
        return interface in scenario.knell("jobs", "list", "--output", "json").out

    # A job that changes its state while they are read, one after the other, is in none of them.
    await scenario.until("the list of jobs names it", is_listed)
    await scenario.builder.ec2.delete_network_interface(NetworkInterfaceId=interface)
    await scenario.until_released(infra)
    assert_gone(before, await scenario.account_contents(), had.ids)


@pytest.mark.long
async def test_c7_tasks_can_not_be_chosen_for_a_cluster_and_volumes_are_wanted(scenario: AwsScenario) -> None:
    await scenario.start()
    chosen = await scenario.unmanaged("chosen", annotations={EXTERNAL_RESOURCE_TASKS: "volume , target-group"})
    unknown = await scenario.unmanaged("unknown", annotations={EXTERNAL_RESOURCE_TASKS: "load-balancer,disk"})
    usual = await scenario.unmanaged("usual")
    volumes, targets, groups, balancers = {}, {}, {}, {}
    for infra in (chosen, unknown, usual):
        served = by_cloud_provider(infra.tag, SERVICE)
        volumes[infra] = await scenario.builder.volume(by_cloud_provider(infra.tag))
        targets[infra] = await scenario.builder.target_group(infra.vpc, served)
        groups[infra] = await scenario.builder.group(infra.vpc, by_cloud_provider(infra.tag))
        balancers[infra] = await scenario.builder.balancer(infra.vpc, served, of="net")
    before = await scenario.account_contents()
    await scenario.until_marked(unknown)
    await scenario.delete(unknown)
    await collected(scenario, chosen, usual)
    await scenario.until_told(unknown, "names a task 'disk'", "security-group", "volume")
    doomed = {volumes[chosen], targets[chosen], targets[usual], groups[usual], balancers[usual]}
    assert_gone(before, await scenario.account_contents(), doomed)


@pytest.mark.long
async def test_c8_a_region_or_network_without_the_tagging_api(scenario: AwsScenario) -> None:
    await scenario.aws.set_faults(AwsFault(what="close", action="tagging.*", account=scenario.account))
    await scenario.aws.behave(page_size=2)
    await scenario.start()
    infra = await scenario.unmanaged("prod")
    # Before the first of its own come pages of others.
    foreign = by_cloud_provider("other", SERVICE)
    await asyncio.gather(*(scenario.builder.target_group(infra.vpc, foreign) for _ in range(3)))
    had = await a_few(scenario.builder, infra.tag, infra.vpc)
    served = by_cloud_provider(infra.tag, SERVICE)
    more = await asyncio.gather(*(scenario.builder.target_group(infra.vpc, served) for _ in range(4)))
    before = await scenario.account_contents()
    await collected(scenario, infra)
    assert_gone(before, await scenario.account_contents(), {*had.ids, *more})
    assert LEFT not in await scenario.audited(), "only the last look found some of them"


@pytest.mark.long
async def test_c9_what_a_user_supplied_or_another_cluster_of_that_name_owns_is_deleted(scenario: AwsScenario) -> None:
    await scenario.start()
    infra = await scenario.unmanaged("prod")
    had = await a_few(scenario.builder, infra.tag, infra.vpc)
    # The user's, although the cloud provider has tagged it as the cluster's: the spec names it.
    supplied = await scenario.builder.group(infra.vpc, by_cloud_provider(infra.tag), name="from-the-user")
    scenario.kube.patch(infra.path, {"spec": {"network": {"securityGroupOverrides": {"lb": supplied}}}})
    app = await scenario.builder.balancer(infra.vpc, by_cloud_provider(infra.tag, SERVICE), groups=[supplied])
    # Another owner's, in the same account: its own VPC is all that tells it apart.
    await a_few(scenario.builder, infra.tag, await scenario.builder.vpc())
    before = await scenario.account_contents()
    await collected(scenario, infra)
    assert_gone(before, await scenario.account_contents(), {*had.ids, app})


@pytest.mark.long
async def test_c10_volumes_are_deleted_although_no_setting_asks_for_it(scenario: AwsScenario) -> None:
    scenario.document["aws"]["snapshot_first"] = True
    await scenario.start()
    usual = await scenario.unmanaged("usual")
    chosen = await scenario.unmanaged("chosen", annotations={EXTERNAL_RESOURCE_TASKS: "volume"})
    await scenario.builder.volume(by_cloud_provider(usual.tag))
    doomed = await scenario.builder.volume(by_cloud_provider(chosen.tag))
    before = await scenario.account_contents()
    await collected(scenario, usual, chosen)
    after = dict(await scenario.account_contents())
    (snapshot,) = [msgspec.json.decode(after.pop(one)) for one in list(after) if one.startswith("snap-")]
    assert_gone(before, after, {doomed})
    assert (snapshot["VolumeId"], snapshot["State"]) == (doomed, "completed")
    assert ownership_tag(chosen.tag) not in {tag["Key"] for tag in snapshot["Tags"]}
    (made,), (deleted,) = await scenario.asked("ec2.CreateSnapshot"), await scenario.asked("ec2.DeleteVolume")
    assert deleted.at >= made.at + 5, "the volume went before its snapshot was complete"


def refused(asked: Sequence[AwsJournalEntry]) -> list[str]:
    """Calls that were refused for want of quota."""
    return [one.action for one in asked if one.code in ("RequestLimitExceeded", "Throttling", "ThrottledException")]
