"""Resources found for a cluster: with and without the tagging API, over many pages, confirmed, and nothing foreign."""

import asyncio
from collections import Counter
from collections.abc import Collection

import pytest

from service.contract import FINALLY, Plan, Target
from service.sources.capa import EXTERNAL_RESOURCE_TASKS, AwsSettings
from standins.aws.behaviour import AwsFault, StrayTagMapping
from standins.aws.builder import REGION, Vpc
from standins.aws.tags import by_balancer_controller, by_cloud_provider, by_cluster_api
from tests.integration.capi_fixture import CapiFixture

TAGGING = "tagging.GetResources"


def ids(targets: Collection[Target]) -> set[str]:
    return {target.id for target in targets if target.chain != FINALLY}


async def make_foreign(clusters: CapiFixture, vpc: Vpc, other: Vpc) -> None:
    """Everything that looks like the cluster's and is not."""
    builder = clusters.resources
    served = by_cloud_provider("prod", "default/web")
    await builder.cluster_resources("other", other)
    await builder.cluster_resources("prod-2", other)
    await builder.group(vpc, name="k8s-elb-prod")
    await builder.group(vpc, {"kubernetes.io/cluster/prod": "shared"})
    await builder.group(vpc, by_cluster_api("prod", "lb"))
    await builder.group(vpc, by_cloud_provider("prod") | {"aws:eks:cluster-name": "prod"})
    await builder.group(other, by_cloud_provider("prod"))
    await builder.balancer(other, served)
    # The load balancer of the API server has no Service.
    await builder.balancer(vpc, by_cloud_provider("prod"), of="net")
    await builder.classic(vpc, by_cluster_api("prod"))


@pytest.mark.parametrize("finding", ["tagging", "describe"])
async def test_all_of_the_cluster_and_nothing_else_is_found(clusters: CapiFixture, finding: str) -> None:
    builder = clusters.resources
    vpc, other = await builder.vpc(), await builder.vpc()
    mine = await builder.cluster_resources("prod", vpc)
    gateway = await builder.balancer(vpc, by_cloud_provider("prod", "default/gw"), of="gwy")
    await make_foreign(clusters, vpc, other)
    clusters.set(finding=finding)
    targets = await clusters.planned(clusters.delete_marked("prod", vpc))
    assert ids(targets) == {*mine.classic, *mine.balancers, *mine.target_groups, *mine.groups, gateway}
    kinds = Counter(target.kind for target in targets)
    assert kinds == {
        "aws.classic-balancer": 1, "aws.balancer": 3, "aws.target-group": 3, "aws.security-group": 4, "aws.settled": 1,
    }  # fmt: skip
    assert bool(await clusters.calls(TAGGING)) == (finding == "tagging")


@pytest.mark.parametrize("trouble", ["deny", "close"])
async def test_c8_without_the_tagging_api_describe_calls_find_the_same(clusters: CapiFixture, trouble: str) -> None:
    vpc = await clusters.resources.vpc()
    mine = await clusters.resources.cluster_resources("prod", vpc)
    found = clusters.delete_marked("prod", vpc)
    await clusters.aws.set_faults(AwsFault(what=trouble, action=TAGGING, account=clusters.account))  # type: ignore[arg-type]
    async with clusters.side() as side:
        for _ in range(3):
            targets = await clusters.planned(found, side)
            assert ids(targets) == {*mine.classic, *mine.balancers, *mine.target_groups, *mine.groups}
    # Once unavailable, it is not called for a while.
    assert await clusters.calls(TAGGING) == 1


@pytest.mark.parametrize("status", [403, 407, 502, 503])
async def test_c8_where_a_proxy_answers_for_the_tagging_api_describe_calls_find_the_same(
    clusters: CapiFixture, status: int
) -> None:
    vpc = await clusters.resources.vpc()
    mine = await clusters.resources.cluster_resources("prod", vpc)
    found = clusters.delete_marked("prod", vpc)
    await clusters.aws.set_faults(AwsFault(what="html", action=TAGGING, account=clusters.account, status=status))
    targets = await clusters.planned(found)
    assert ids(targets) == {*mine.classic, *mine.balancers, *mine.target_groups, *mine.groups}
    assert await clusters.calls(TAGGING) == 1


async def test_with_the_tagging_api_demanded_a_denial_holds_and_names_the_permission(clusters: CapiFixture) -> None:
    vpc = await clusters.resources.vpc()
    found = clusters.delete_marked("prod", vpc)
    clusters.set(finding="tagging")
    await clusters.aws.set_faults(AwsFault(what="deny", action=TAGGING, account=clusters.account))
    assert "tag:GetResources is denied" in (await clusters.held(found)).reason


@pytest.mark.long
async def test_an_answer_that_is_none_is_not_an_empty_list(clusters: CapiFixture) -> None:
    vpc = await clusters.resources.vpc()
    clusters.set(finding="tagging")
    found = clusters.delete_marked("prod", vpc)
    await clusters.aws.set_faults(AwsFault(what="html", action=TAGGING, account=clusters.account))
    assert "no answer of AWS" in (await clusters.held(found)).reason
    await clusters.aws.set_faults(AwsFault(what="throttle", action=TAGGING, account=clusters.account))
    hold = await clusters.held(found)
    assert hold.after is not None


@pytest.mark.long
@pytest.mark.parametrize("finding", ["tagging", "describe"])
async def test_c4_a_thousand_resources_over_many_pages_are_all_found(clusters: CapiFixture, finding: str) -> None:
    builder = clusters.resources
    vpc = await builder.vpc()
    number, made = (1000, set[str]()) if finding == "tagging" else (250, set[str]())
    for first in range(0, number, 50):
        made |= set(await asyncio.gather(*(builder.group(vpc, by_cloud_provider("prod")) for _ in range(50))))
        assert len(made) == first + 50
    clusters.set(finding=finding)
    targets = await clusters.planned(clusters.delete_marked("prod", vpc))
    assert ids(targets) == made
    if finding == "tagging":
        assert await clusters.calls(TAGGING) >= number // 100


async def test_what_is_long_deleted_is_not_planned_and_what_can_not_be_parsed_is_left(clusters: CapiFixture) -> None:
    builder = clusters.resources
    vpc = await builder.vpc()
    group = await builder.group(vpc, by_cloud_provider("prod"))
    owned = by_cloud_provider("prod", "default/web")
    front, account = f"arn:aws:elasticloadbalancing:{REGION}", clusters.account
    deleted = [
        f"{front}:{account}:loadbalancer/app/long-gone/0123456789abcdef",
        f"{front}:{account}:loadbalancer/long-gone",
        f"{front}:{account}:targetgroup/long-gone/0123456789abcdef",
        f"arn:aws:ec2:{REGION}:{account}:security-group/sg-0123456789abcdef0",
    ]
    odd = ["arn:aws:elasticloadbalancing", f"{front}:{account}:loadbalancer/new/kind/of/thing"]
    strays = tuple(StrayTagMapping(arn=arn, tags=owned, account=account) for arn in (*deleted, *odd))
    await clusters.aws.behave(strays=strays)
    plan = await clusters.collect(clusters.delete_marked("prod", vpc))
    assert isinstance(plan, Plan)
    assert ids(list(plan.targets)) == {group}
    assert all(arn in plan.why for arn in odd)
    assert not any(arn in plan.why for arn in deleted)


async def test_a_denied_service_does_not_keep_the_others_from_being_planned(clusters: CapiFixture) -> None:
    """An unreadable kind is planned by the ids of the tagging API: its job shows the missing permission."""
    vpc = await clusters.resources.vpc()
    mine = await clusters.resources.cluster_resources("prod", vpc)
    found = clusters.delete_marked("prod", vpc)
    await clusters.aws.set_faults(
        AwsFault(what="deny", action="elbv2.DescribeTargetGroups", account=clusters.account),
    )
    plan = await clusters.collect(found)
    assert isinstance(plan, Plan)
    assert ids(list(plan.targets)) == {*mine.classic, *mine.balancers, *mine.target_groups, *mine.groups}
    assert "elasticloadbalancing:DescribeTargetGroups is denied" in plan.why


async def test_in_the_describe_mode_a_denied_service_is_left_to_the_final_check(clusters: CapiFixture) -> None:
    vpc = await clusters.resources.vpc()
    mine = await clusters.resources.cluster_resources("prod", vpc)
    found = clusters.delete_marked("prod", vpc)
    clusters.set(finding="describe")
    await clusters.aws.set_faults(
        AwsFault(what="deny", action="elbv2.DescribeTargetGroups", account=clusters.account),
    )
    plan = await clusters.collect(found)
    assert isinstance(plan, Plan)
    assert ids(list(plan.targets)) == {*mine.classic, *mine.balancers, *mine.groups}
    assert "elasticloadbalancing:DescribeTargetGroups is denied" in plan.why


@pytest.mark.long
async def test_one_list_of_the_account_serves_all_clusters_that_wait_for_it(clusters: CapiFixture) -> None:
    vpc = await clusters.resources.vpc()
    names = [f"c{number}" for number in range(4)]
    made = [await clusters.resources.cluster_resources(name, vpc) for name in names]
    objects = [clusters.delete_marked(name, vpc) for name in names]
    clusters.set(finding="describe")
    # The first list of each takes long enough for the others to arrive meanwhile.
    lists = ("elb.DescribeLoadBalancers", "elbv2.DescribeTargetGroups")
    slow = [AwsFault(what="slow", action=one, account=clusters.account, seconds=8, times=1) for one in lists]
    await clusters.aws.set_faults(*slow)
    async with clusters.side() as side:
        planned = await asyncio.gather(*(clusters.planned(one, side) for one in objects))
    for mine, targets in zip(made, planned, strict=True):
        assert ids(targets) == {*mine.classic, *mine.balancers, *mine.target_groups, *mine.groups}
    actions = await clusters.actions()
    for one in lists:
        assert actions[one] < 4


async def test_without_a_vpc_in_the_spec_what_is_in_one_is_neither_taken_nor_forgotten(clusters: CapiFixture) -> None:
    vpc = await clusters.resources.vpc()
    found = clusters.delete_marked("prod", None)
    clusters.set(account=clusters.account)
    await clusters.planned(found)
    group = await clusters.resources.group(vpc, by_cloud_provider("prod"))
    hold = await clusters.held(found)
    assert group in hold.reason
    assert "spec.network.vpc.id" in hold.reason


# ---- tasks


@pytest.mark.long
@pytest.mark.parametrize("finding", ["tagging", "describe"])
async def test_c7_the_annotation_chooses_other_tasks(clusters: CapiFixture, finding: str) -> None:
    builder = clusters.resources
    vpc = await builder.vpc()
    mine = await builder.cluster_resources("prod", vpc)
    owned = by_cloud_provider("prod")
    volume, address = await builder.volume(owned), await builder.elastic_ip(owned)
    interface = await builder.interface(vpc, tags=owned)
    clusters.set(finding=finding)
    found = clusters.delete_marked(
        "prod", vpc, annotations={EXTERNAL_RESOURCE_TASKS: "elastic-ip,volume,network-interface,load-balancer"}
    )
    targets = await clusters.planned(found)
    assert ids(targets) == {*mine.classic, *mine.balancers, volume, address, interface}


async def test_c10_volumes_are_not_touched_unless_they_are_chosen(clusters: CapiFixture) -> None:
    vpc = await clusters.resources.vpc()
    await clusters.resources.volume(by_cloud_provider("prod"))
    found = clusters.delete_marked("prod", vpc)
    assert ids(await clusters.planned(found)) == set()


@pytest.mark.long
@pytest.mark.parametrize("finding", ["tagging", "describe"])
async def test_what_the_load_balancer_controller_made_is_found_by_its_own_tag(
    clusters: CapiFixture, finding: str
) -> None:
    builder = clusters.resources
    vpc = await builder.vpc()
    tags, others = by_balancer_controller("prod"), by_balancer_controller("other")
    balancer, group = await builder.balancer(vpc, tags), await builder.group(vpc, tags)
    await builder.balancer(vpc, others)
    await builder.group(vpc, others)
    targets = await builder.target_group(vpc, tags, behind=balancer)
    clusters.set(finding=finding)
    found = clusters.delete_marked("prod", vpc)
    assert ids(await clusters.planned(found)) == set()
    clusters.set(tasks=(*clusters.settings.section(AwsSettings).tasks, "aws-load-balancer-controller"))
    assert ids(await clusters.planned(found)) == {balancer, group, targets}


@pytest.mark.invariant(11)
async def test_an_unknown_task_holds_and_names_those_there_are(clusters: CapiFixture) -> None:
    vpc = await clusters.resources.vpc()
    found = clusters.delete_marked("prod", vpc, annotations={EXTERNAL_RESOURCE_TASKS: "loadbalancer"})
    hold = await clusters.held(found)
    assert "'loadbalancer'" in hold.reason
    assert "load-balancer, target-group, security-group" in hold.reason
