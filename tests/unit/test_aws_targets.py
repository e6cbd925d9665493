"""Order of targets in a plan on AWS, by the load balancers that use each group."""

import pytest

from workers.collectors.capa.claim import CapaClaim
from workers.collectors.capa.kinds import CAPA_KINDS
from workers.collectors.capa.resource_finder import FoundResources, OwnedResource, UnreadableKind
from workers.collectors.capa.targets import targets_of
from workers.providers.aws.errors import AwsError
from workers.providers.aws.model import AwsResource, CallScope

OWNER = CapaClaim(scope=CallScope(source="s", namespace="n", region="r"), account="1", name="prod")
DENIED = AwsError("denied", "elasticloadbalancing:DescribeLoadBalancers", "AccessDenied", "no")
BALANCER, CLASSIC, TARGETS, GROUP = "aws.balancer", "aws.classic-balancer", "aws.target-group", "aws.security-group"
FIRST, SECOND = ("network", 0), ("network", 1)


def claim(kind: str, name: str, *, groups: tuple[str, ...] = (), behind: tuple[str, ...] = ()) -> OwnedResource:
    facts = behind if kind == TARGETS else None
    return OwnedResource(
        CAPA_KINDS[kind].kind, OWNER, AwsResource(kind=kind, id=name, tags={}, groups=groups, facts=facts)
    )


def unread(kind: str, *ids: str) -> UnreadableKind:
    return UnreadableKind(CAPA_KINDS[kind].kind, OWNER, ids, DENIED)


def places(*claims: OwnedResource, denied: tuple[UnreadableKind, ...] = ()) -> dict[str, tuple[str, int]]:
    return {one.id: (one.chain, one.stage) for one in targets_of(FoundResources(owned=[*claims], unreadable=[*denied]))}


def test_a_target_group_waits_for_the_balancers_of_the_plan_that_use_it_and_for_no_others() -> None:
    found = places(
        claim(BALANCER, "net"), claim(TARGETS, "behind", behind=("net",)), claim(TARGETS, "loose"),
        claim(TARGETS, "of another", behind=("not planned",)), claim(TARGETS, "of both", behind=("other", "net")),
    )  # fmt: skip
    assert found == {
        "net": FIRST, "behind": SECOND, "loose": ("targets", 0), "of another": ("targets", 0), "of both": SECOND,
    }  # fmt: skip


def test_a_security_group_waits_for_the_balancers_of_the_plan_that_are_in_it_and_for_no_others() -> None:
    found = places(
        claim(BALANCER, "app", groups=("sg-app", "sg-both")), claim(CLASSIC, "web", groups=("sg-web", "sg-both")),
        *(claim(GROUP, name) for name in ("sg-app", "sg-web", "sg-both", "sg-loose")),
    )  # fmt: skip
    assert found["sg-app"] == found["sg-both"] == SECOND
    assert (found["web"], found["sg-web"]) == (("classic", 0), ("classic", 1))
    assert found["sg-loose"] == ("groups", 0)


def test_where_balancers_may_not_be_read_groups_go_at_once_and_target_groups_by_what_they_say_themselves() -> None:
    found = places(
        claim(GROUP, "sg-1"), claim(TARGETS, "behind", behind=("net",)), claim(TARGETS, "loose"),
        denied=(unread(BALANCER, "net"), unread(CLASSIC)),
    )  # fmt: skip
    assert found == {"net": FIRST, "sg-1": ("groups", 0), "behind": SECOND, "loose": ("targets", 0)}


def test_groups_that_may_not_be_read_are_derived_from_the_balancers_or_wait() -> None:
    found = places(
        claim(BALANCER, "app", groups=("sg-app",)),
        denied=(unread(GROUP, "sg-app", "sg-loose"), unread(TARGETS, "unknown")),
    )  # fmt: skip
    assert found == {"app": FIRST, "sg-app": SECOND, "sg-loose": ("groups", 0), "unknown": SECOND}


@pytest.mark.parametrize("name", sorted(CAPA_KINDS.keys() - {BALANCER, CLASSIC, TARGETS, GROUP}))
def test_all_others_are_where_their_kind_says(name: str) -> None:
    kind = CAPA_KINDS[name]
    assert places(claim(name, "one")) == {"one": (kind.chain, kind.stage)}


def test_a_target_has_its_lane_and_its_owner() -> None:
    (target,) = targets_of(FoundResources(owned=[claim(GROUP, "sg-1")]))
    assert (target.kind, target.lane) == (GROUP, "aws/1/r/ec2.DeleteSecurityGroup")
    assert '"name":"prod"' in target.data
