"""Reads and lists of the kinds: everything that is there, with its tags, over many pages and in few calls."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from service.contract.aws import ownership_tag
from standins.aws.tags import by_cloud_provider
from tests.integration.aws_removing import Removing, named, removing
from workers.handlers.aws.errors import AwsError
from workers.handlers.aws.kinds import KINDS
from workers.handlers.aws.model import Calls, Found, Whose
from workers.handlers.aws.ownership import owned

__all__ = ["removing"]

OURS = by_cloud_provider("c1")
SERVED = by_cloud_provider("c1", "default/web")
THEIRS = by_cloud_provider("c2", "default/web")
KEYS = (ownership_tag("c1"), ownership_tag("c0"))


async def listed(removing: Removing, kind: str, keys: Sequence[str] = KEYS) -> dict[str, Found]:
    calls = await removing.reach.calls(removing.owner().whose)
    return {found.id: found async for found in named(kind).list_all(calls, keys)}


async def test_every_kind_is_listed_with_its_tags_and_read_by_the_id_that_the_list_gives(removing: Removing) -> None:
    build = removing.cloud.world
    vpc = await build.vpc()
    address = await build.elastic_ip(OURS)
    balancer = await build.balancer(vpc, SERVED)
    made = {
        "aws.classic-balancer": await build.classic(vpc, SERVED),
        "aws.balancer": balancer,
        "aws.target-group": await build.target_group(vpc, SERVED),
        "aws.security-group": await build.group(vpc, OURS),
        "aws.network-interface": await build.interface(vpc, (), OURS),
        "aws.vpc-endpoint": await build.endpoint(vpc, (), OURS),
        "aws.nat-gateway": await build.nat_gateway(vpc, address, OURS),
        "aws.elastic-ip": address,
        "aws.volume": await build.volume(OURS),
    }
    assert set(made) == {kind.name for kind in KINDS}
    calls = await removing.reach.calls(removing.owner().whose)
    for kind in KINDS:
        id_ = made[kind.name]
        found = (await listed(removing, kind.name))[id_]
        assert owned(found, removing.owner(vpc), kind) is None
        assert (await kind.read(calls, [id_]))[id_] == found


async def test_a_list_of_ec2_has_what_carries_one_of_the_keys_and_nothing_else(removing: Removing) -> None:
    build = removing.cloud.world
    ours, _theirs, _nobodys = [await build.volume(tags) for tags in (OURS, THEIRS, None)]
    assert set(await listed(removing, "aws.volume")) == {ours}
    assert await listed(removing, "aws.volume", [ownership_tag("c3")]) == {}


async def test_a_list_of_balancers_is_whole_over_many_pages(removing: Removing) -> None:
    build = removing.cloud.world
    await removing.cloud.aws.behave(page_size=20)
    vpc = await build.vpc()
    ours = [await build.target_group(vpc, SERVED) for _ in range(45)]
    theirs = await build.target_group(vpc, THEIRS)
    found = await listed(removing, "aws.target-group")
    assert set(found) == {*ours, theirs}
    assert found[theirs].tags == THEIRS
    # What comes and goes between pages can hide something, so it is made twice; nobody is asked its tags again.
    twice = ["elbv2.DescribeTargetGroups"] * 3
    assert await removing.asked() == ["elbv2.DescribeTargetGroups", "elbv2.DescribeTags"] * 3 + twice


async def test_many_are_read_twenty_at_a_time_and_missing_ones_by_one_list(removing: Removing) -> None:
    build = removing.cloud.world
    vpc = await build.vpc()
    arns = [await build.target_group(vpc, SERVED) for _ in range(45)]
    calls = await removing.reach.calls(removing.owner().whose)
    assert set(await named("aws.target-group").read(calls, arns)) == set(arns)
    assert len(await removing.asked()) == 6
    missing = [f"{arn[:-4]}none" for arn in arns[:10]]
    assert set(await named("aws.target-group").read(calls, [*missing, *arns])) == set(arns)
    # The one that failed, a list of one page, and the tags of those that are there.
    assert len(await removing.asked()) == 6 + 1 + 1 + 3


async def test_where_a_list_is_long_few_are_asked_for_one_by_one(removing: Removing) -> None:
    build = removing.cloud.world
    await removing.cloud.aws.behave(page_size=10)
    vpc = await build.vpc()
    arns = [await build.target_group(vpc, SERVED) for _ in range(45)]
    await listed(removing, "aws.target-group")
    before = len(await removing.asked())
    calls = await removing.reach.calls(removing.owner().whose)
    exists = named("aws.target-group").exists
    assert exists is not None
    assert set(await exists(calls, [arns[0], f"{arns[1][:-4]}none", arns[2]])) == {arns[0], arns[2]}
    assert len(await removing.asked()) - before == 3


async def test_what_a_list_of_many_pages_lacks_is_absent_only_if_its_name_says_so(removing: Removing) -> None:
    build = removing.cloud.world
    await removing.cloud.aws.behave(page_size=10)
    vpc = await build.vpc()
    arns = [await build.target_group(vpc, SERVED) for _ in range(25)]
    calls = Changed(await removing.reach.calls(removing.owner().whose), hides=arns[3])
    kind = named("aws.target-group")
    assert kind.exists is not None
    missing = f"{arns[0][:-4]}none"
    assert set(await kind.exists(calls, [*arns, missing])) == set(arns)
    assert set(await kind.read(calls, [*arns, missing])) == set(arns)


@pytest.mark.parametrize("tags", [{}, {"TagDescriptions": []}])
async def test_an_answer_that_lacks_somebodys_tags_says_nothing_of_him(
    removing: Removing, tags: dict[str, list[str]]
) -> None:
    build = removing.cloud.world
    arn = await build.target_group(await build.vpc(), SERVED)
    calls = Changed(await removing.reach.calls(removing.owner().whose), tags=tags)
    with pytest.raises(AwsError, match=r"no empty list|lacks 1 of 1") as raised:
        await named("aws.target-group").read(calls, [arn])
    assert raised.value.what == "unreadable"


@pytest.mark.invariant(1)
async def test_the_answer_to_another_question_proves_no_absence(removing: Removing) -> None:
    build = removing.cloud.world
    vpc = await build.vpc()
    asked, other = await build.group(vpc, OURS), await build.group(vpc, OURS)
    calls = Misled(await removing.reach.calls(removing.owner().whose), [other])
    with pytest.raises(AwsError, match="not asked for") as raised:
        await named("aws.security-group").read(calls, [asked])
    assert raised.value.what == "unreadable"


class Changed:
    """Real answers of which something is taken out on the way, as by what goes while pages are turned, or a proxy."""

    def __init__(self, calls: Calls, *, hides: str = "", tags: dict[str, list[str]] | None = None) -> None:
        self._calls, self._hides, self._tags = calls, hides, tags

    @property
    def whose(self) -> Whose:
        return self._calls.whose

    @property
    def account(self) -> str:
        return self._calls.account

    async def call(self, service: str, operation: str, /, **arguments: Any) -> dict[str, Any]:
        answer = await self._calls.call(service, operation, **arguments)
        return self._tags if self._tags is not None and operation == "describe_tags" else answer

    async def pages(
        self, service: str, operation: str, key: str, /, **arguments: Any
    ) -> AsyncIterator[list[dict[str, Any]]]:
        async for page in self._calls.pages(service, operation, key, **arguments):
            unnamed = "PageSize" in arguments
            yield [item for item in page if not (unnamed and self._hides in item.values())]


class Misled(Changed):
    """Real answers about other ids than those that were asked for, as where a proxy mixes up two connections."""

    def __init__(self, calls: Calls, others: list[str]) -> None:
        super().__init__(calls)
        self._others = others

    async def pages(
        self, service: str, operation: str, key: str, /, **arguments: Any
    ) -> AsyncIterator[list[dict[str, Any]]]:
        elsewhere = [{**one, "Values": self._others} for one in arguments["Filters"]]
        async for page in self._calls.pages(service, operation, key, **{**arguments, "Filters": elsewhere}):
            yield page
