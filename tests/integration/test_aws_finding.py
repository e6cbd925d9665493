"""What is found for a cluster: with the tagging API and without it, over many pages, confirmed, and nothing foreign."""

import asyncio
from collections import Counter
from collections.abc import Collection

import pytest

from service.contract import FINALLY, Plan, Target
from service.contract.aws import EXTERNAL_RESOURCE_TASKS
from service.local.aws.behaviour import Fault, Stray
from service.local.aws.networks import Vpc
from service.local.aws.tags import by_balancer_controller, by_cloud_provider, by_cluster_api
from service.local.aws.world import REGION
from tests.integration.clustered import Clustered

TAGGING = "tagging.GetResources"


def ids(targets: Collection[Target]) -> set[str]:
    return {target.id for target in targets if target.chain != FINALLY}


async def make_foreign(clustered: Clustered, vpc: Vpc, other: Vpc) -> None:
    """Everything that looks like the cluster's and is not."""
    world = clustered.resources
    served = by_cloud_provider("prod", "default/web")
    await world.cluster_resources("other", other)
    await world.cluster_resources("prod-2", other)
    await world.group(vpc, name="k8s-elb-prod")
    await world.group(vpc, {"kubernetes.io/cluster/prod": "shared"})
    await world.group(vpc, by_cluster_api("prod", "lb"))
    await world.group(vpc, by_cloud_provider("prod") | {"aws:eks:cluster-name": "prod"})
    await world.group(other, by_cloud_provider("prod"))
    await world.balancer(other, served)
    # The balancer of the API server has no Service.
    await world.balancer(vpc, by_cloud_provider("prod"), of="net")
    await world.classic(vpc, by_cluster_api("prod"))


@pytest.mark.parametrize("finding", ["tagging", "describe"])
async def test_all_of_the_cluster_and_nothing_else_is_found(clustered: Clustered, finding: str) -> None:
    world = clustered.resources
    vpc, other = await world.vpc(), await world.vpc()
    mine = await world.cluster_resources("prod", vpc)
    gateway = await world.balancer(vpc, by_cloud_provider("prod", "default/gw"), of="gwy")
    await make_foreign(clustered, vpc, other)
    clustered.set(finding=finding)
    targets = await clustered.planned(clustered.delete_marked("prod", vpc))
    assert ids(targets) == {*mine.classic, *mine.balancers, *mine.target_groups, *mine.groups, gateway}
    kinds = Counter(target.kind for target in targets)
    assert kinds == {
        "aws.classic-balancer": 1, "aws.balancer": 3, "aws.target-group": 3, "aws.security-group": 4, "aws.settled": 1,
    }  # fmt: skip
    assert bool(await clustered.calls(TAGGING)) == (finding == "tagging")


@pytest.mark.parametrize("trouble", ["deny", "close"])
async def test_c8_without_the_tagging_api_describe_calls_find_the_same(clustered: Clustered, trouble: str) -> None:
    vpc = await clustered.resources.vpc()
    mine = await clustered.resources.cluster_resources("prod", vpc)
    found = clustered.delete_marked("prod", vpc)
    await clustered.aws.trouble(Fault(what=trouble, action=TAGGING, account=clustered.account))  # type: ignore[arg-type]
    async with clustered.side() as side:
        for _ in range(3):
            targets = await clustered.planned(found, side)
            assert ids(targets) == {*mine.classic, *mine.balancers, *mine.target_groups, *mine.groups}
    # Once known, it is left alone for a while.
    assert await clustered.calls(TAGGING) == 1


@pytest.mark.parametrize("status", [403, 407, 502, 503])
async def test_c8_where_a_proxy_answers_for_the_tagging_api_describe_calls_find_the_same(
    clustered: Clustered, status: int
) -> None:
    vpc = await clustered.resources.vpc()
    mine = await clustered.resources.cluster_resources("prod", vpc)
    found = clustered.delete_marked("prod", vpc)
    await clustered.aws.trouble(Fault(what="html", action=TAGGING, account=clustered.account, status=status))
    targets = await clustered.planned(found)
    assert ids(targets) == {*mine.classic, *mine.balancers, *mine.target_groups, *mine.groups}
    assert await clustered.calls(TAGGING) == 1


async def test_with_the_tagging_api_demanded_a_denial_holds_and_names_the_permission(clustered: Clustered) -> None:
    vpc = await clustered.resources.vpc()
    found = clustered.delete_marked("prod", vpc)
    clustered.set(finding="tagging")
    await clustered.aws.trouble(Fault(what="deny", action=TAGGING, account=clustered.account))
    assert "tag:GetResources is denied" in (await clustered.held(found)).reason


@pytest.mark.long
async def test_an_answer_that_is_none_is_not_an_empty_list(clustered: Clustered) -> None:
    vpc = await clustered.resources.vpc()
    clustered.set(finding="tagging")
    found = clustered.delete_marked("prod", vpc)
    await clustered.aws.trouble(Fault(what="html", action=TAGGING, account=clustered.account))
    assert "no answer of AWS" in (await clustered.held(found)).reason
    await clustered.aws.trouble(Fault(what="throttle", action=TAGGING, account=clustered.account))
    hold = await clustered.held(found)
    assert hold.after is not None


@pytest.mark.long
@pytest.mark.parametrize("finding", ["tagging", "describe"])
async def test_c4_a_thousand_resources_over_many_pages_are_all_found(clustered: Clustered, finding: str) -> None:
    world = clustered.resources
    vpc = await world.vpc()
    number, made = (1000, set[str]()) if finding == "tagging" else (250, set[str]())
    for first in range(0, number, 50):
        made |= set(await asyncio.gather(*(world.group(vpc, by_cloud_provider("prod")) for _ in range(50))))
        assert len(made) == first + 50
    clustered.set(finding=finding)
    targets = await clustered.planned(clustered.delete_marked("prod", vpc))
    assert ids(targets) == made
    if finding == "tagging":
        assert await clustered.calls(TAGGING) >= number // 100


async def test_what_is_long_deleted_is_not_planned_and_what_can_not_be_parsed_is_left(clustered: Clustered) -> None:
    world = clustered.resources
    vpc = await world.vpc()
    group = await world.group(vpc, by_cloud_provider("prod"))
    owned = by_cloud_provider("prod", "default/web")
    front, account = f"arn:aws:elasticloadbalancing:{REGION}", clustered.account
    deleted = [
        f"{front}:{account}:loadbalancer/app/long-gone/0123456789abcdef",
        f"{front}:{account}:loadbalancer/long-gone",
        f"{front}:{account}:targetgroup/long-gone/0123456789abcdef",
        f"arn:aws:ec2:{REGION}:{account}:security-group/sg-0123456789abcdef0",
    ]
    odd = ["arn:aws:elasticloadbalancing", f"{front}:{account}:loadbalancer/new/kind/of/thing"]
    strays = tuple(Stray(arn=arn, tags=owned, account=account) for arn in (*deleted, *odd))
    await clustered.aws.behave(strays=strays)
    plan = await clustered.collect(clustered.delete_marked("prod", vpc))
    assert isinstance(plan, Plan)
    assert ids(list(plan.targets)) == {group}
    assert all(arn in plan.why for arn in odd)
    assert not any(arn in plan.why for arn in deleted)


async def test_a_denied_service_does_not_keep_the_others_from_being_planned(clustered: Clustered) -> None:
    """What may not be read is planned as the tagging API named it: its job shows the permission that is wanting."""
    vpc = await clustered.resources.vpc()
    mine = await clustered.resources.cluster_resources("prod", vpc)
    found = clustered.delete_marked("prod", vpc)
    await clustered.aws.trouble(
        Fault(what="deny", action="elbv2.DescribeTargetGroups", account=clustered.account),
    )
    plan = await clustered.collect(found)
    assert isinstance(plan, Plan)
    assert ids(list(plan.targets)) == {*mine.classic, *mine.balancers, *mine.target_groups, *mine.groups}
    assert "elasticloadbalancing:DescribeTargetGroups is denied" in plan.why


async def test_in_the_describe_mode_a_denied_service_is_left_to_the_last_look(clustered: Clustered) -> None:
    vpc = await clustered.resources.vpc()
    mine = await clustered.resources.cluster_resources("prod", vpc)
    found = clustered.delete_marked("prod", vpc)
    clustered.set(finding="describe")
    await clustered.aws.trouble(
        Fault(what="deny", action="elbv2.DescribeTargetGroups", account=clustered.account),
    )
    plan = await clustered.collect(found)
    assert isinstance(plan, Plan)
    assert ids(list(plan.targets)) == {*mine.classic, *mine.balancers, *mine.groups}
    assert "elasticloadbalancing:DescribeTargetGroups is denied" in plan.why


@pytest.mark.long
async def test_one_list_of_the_account_serves_all_clusters_that_wait_for_it(clustered: Clustered) -> None:
    vpc = await clustered.resources.vpc()
    names = [f"c{number}" for number in range(4)]
    made = [await clustered.resources.cluster_resources(name, vpc) for name in names]
    objects = [clustered.delete_marked(name, vpc) for name in names]
    clustered.set(finding="describe")
    # The first list of each takes long enough for the others to come while it is under way.
    lists = ("elb.DescribeLoadBalancers", "elbv2.DescribeTargetGroups")
    slow = [Fault(what="slow", action=one, account=clustered.account, seconds=8, times=1) for one in lists]
    await clustered.aws.trouble(*slow)
    async with clustered.side() as side:
        planned = await asyncio.gather(*(clustered.planned(one, side) for one in objects))
    for mine, targets in zip(made, planned, strict=True):
        assert ids(targets) == {*mine.classic, *mine.balancers, *mine.target_groups, *mine.groups}
    actions = await clustered.actions()
    for one in lists:
        assert actions[one] < 4


async def test_without_a_vpc_in_the_spec_what_is_in_one_is_neither_taken_nor_forgotten(clustered: Clustered) -> None:
    vpc = await clustered.resources.vpc()
    found = clustered.delete_marked("prod", None)
    clustered.set(account=clustered.account)
    await clustered.planned(found)
    group = await clustered.resources.group(vpc, by_cloud_provider("prod"))
    hold = await clustered.held(found)
    assert group in hold.reason
    assert "spec.network.vpc.id" in hold.reason


# ---- tasks


@pytest.mark.long
@pytest.mark.parametrize("finding", ["tagging", "describe"])
async def test_c7_the_annotation_chooses_other_tasks(clustered: Clustered, finding: str) -> None:
    world = clustered.resources
    vpc = await world.vpc()
    mine = await world.cluster_resources("prod", vpc)
    owned = by_cloud_provider("prod")
    volume, address = await world.volume(owned), await world.elastic_ip(owned)
    interface = await world.interface(vpc, tags=owned)
    clustered.set(finding=finding)
    found = clustered.delete_marked(
        "prod", vpc, annotations={EXTERNAL_RESOURCE_TASKS: "elastic-ip,volume,network-interface,load-balancer"}
    )
    targets = await clustered.planned(found)
    assert ids(targets) == {*mine.classic, *mine.balancers, volume, address, interface}


async def test_c10_volumes_are_not_touched_unless_they_are_chosen(clustered: Clustered) -> None:
    vpc = await clustered.resources.vpc()
    await clustered.resources.volume(by_cloud_provider("prod"))
    found = clustered.delete_marked("prod", vpc)
    assert ids(await clustered.planned(found)) == set()


@pytest.mark.long
@pytest.mark.parametrize("finding", ["tagging", "describe"])
async def test_what_the_load_balancer_controller_made_is_found_by_its_own_tag(
    clustered: Clustered, finding: str
) -> None:
    world = clustered.resources
    vpc = await world.vpc()
    tags, others = by_balancer_controller("prod"), by_balancer_controller("other")
    balancer, group = await world.balancer(vpc, tags), await world.group(vpc, tags)
    await world.balancer(vpc, others)
    await world.group(vpc, others)
    targets = await world.target_group(vpc, tags, behind=balancer)
    clustered.set(finding=finding)
    found = clustered.delete_marked("prod", vpc)
    assert ids(await clustered.planned(found)) == set()
    clustered.set(tasks=(*clustered.settings.aws.tasks, "aws-load-balancer-controller"))
    assert ids(await clustered.planned(found)) == {balancer, group, targets}


@pytest.mark.invariant(11)
async def test_an_unknown_task_holds_and_names_those_there_are(clustered: Clustered) -> None:
    vpc = await clustered.resources.vpc()
    found = clustered.delete_marked("prod", vpc, annotations={EXTERNAL_RESOURCE_TASKS: "loadbalancer"})
    hold = await clustered.held(found)
    assert "'loadbalancer'" in hold.reason
    assert "load-balancer, target-group, security-group" in hold.reason
