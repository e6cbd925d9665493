"""Reads and lists of the kinds: all resources, with tags, over many pages and in few calls."""

from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Any

import pytest

from service.sources.capa import ownership_tag
from standins.aws.tags import by_cloud_provider
from tests.aws_kinds import AWS_KINDS
from tests.integration.aws_removal import AwsRemovalFixture, named, removing
from workers.collectors.capa.kinds import CAPA_KINDS
from workers.collectors.capa.ownership import ownership_objection
from workers.providers.aws.errors import AwsError
from workers.providers.aws.kinds import KINDS
from workers.providers.aws.model import AwsClient, AwsResource, CallScope

__all__ = ["removing"]

OURS = by_cloud_provider("c1")
SERVED = by_cloud_provider("c1", "default/web")
THEIRS = by_cloud_provider("c2", "default/web")
KEYS = (ownership_tag("c1"), ownership_tag("c0"))


async def listed(removing: AwsRemovalFixture, kind: str, keys: Sequence[str] = KEYS) -> dict[str, AwsResource]:
    client = await removing.reach.client(removing.owner().scope)
    list_all = named(kind).list_all
    assert list_all is not None
    return {found.id: found async for found in list_all(client, keys)}


async def test_every_kind_is_listed_with_its_tags_and_read_by_the_id_that_the_list_gives(
    removing: AwsRemovalFixture,
) -> None:
    build = removing.cloud.builder
    vpc = await build.vpc()
    made = {row.name: await row.make(build, vpc, row.tags("c1")) for row in AWS_KINDS.values()}
    assert set(made) == {kind.name for kind in KINDS}
    client = await removing.reach.client(removing.owner().scope)
    for kind in KINDS:
        id_ = made[kind.name]
        found = (await listed(removing, kind.name))[id_]
        if kind.name in CAPA_KINDS:
            assert ownership_objection(found, removing.owner(vpc)) is None
        assert (await kind.read(client, [id_]))[id_] == found


async def test_a_list_of_ec2_has_what_carries_one_of_the_keys_and_nothing_else(removing: AwsRemovalFixture) -> None:
    build = removing.cloud.builder
    ours, _theirs, _nobodys = [await build.volume(tags) for tags in (OURS, THEIRS, None)]
    assert set(await listed(removing, "aws.volume")) == {ours}
    assert await listed(removing, "aws.volume", [ownership_tag("c3")]) == {}


async def test_a_list_of_balancers_is_whole_over_many_pages(removing: AwsRemovalFixture) -> None:
    build = removing.cloud.builder
    await removing.cloud.aws.behave(page_size=20)
    vpc = await build.vpc()
    ours = [await build.target_group(vpc, SERVED) for _ in range(45)]
    theirs = await build.target_group(vpc, THEIRS)
    found = await listed(removing, "aws.target-group")
    assert set(found) == {*ours, theirs}
    assert found[theirs].tags == THEIRS
    # Changes between pages can hide a resource, so the list is read twice; tags are not read again.
    twice = ["elbv2.DescribeTargetGroups"] * 3
    assert await removing.asked() == ["elbv2.DescribeTargetGroups", "elbv2.DescribeTags"] * 3 + twice


async def test_many_are_read_twenty_at_a_time_and_missing_ones_by_one_list(removing: AwsRemovalFixture) -> None:
    build = removing.cloud.builder
    vpc = await build.vpc()
    arns = [await build.target_group(vpc, SERVED) for _ in range(45)]
    client = await removing.reach.client(removing.owner().scope)
    assert set(await named("aws.target-group").read(client, arns)) == set(arns)
    assert len(await removing.asked()) == 6
    missing = [f"{arn[:-4]}none" for arn in arns[:10]]
    assert set(await named("aws.target-group").read(client, [*missing, *arns])) == set(arns)
    # The call that failed, a list of one page, and the tags of those that exist.
    assert len(await removing.asked()) == 6 + 1 + 1 + 3


async def test_where_a_list_is_long_few_are_read_one_by_one(removing: AwsRemovalFixture) -> None:
    build = removing.cloud.builder
    await removing.cloud.aws.behave(page_size=10)
    vpc = await build.vpc()
    arns = [await build.target_group(vpc, SERVED) for _ in range(45)]
    await listed(removing, "aws.target-group")
    before = len(await removing.asked())
    client = await removing.reach.client(removing.owner().scope)
    exists = named("aws.target-group").exists
    assert exists is not None
    assert set(await exists(client, [arns[0], f"{arns[1][:-4]}none", arns[2]])) == {arns[0], arns[2]}
    assert len(await removing.asked()) - before == 3


async def test_what_a_list_of_many_pages_lacks_is_absent_only_if_its_name_says_so(removing: AwsRemovalFixture) -> None:
    build = removing.cloud.builder
    await removing.cloud.aws.behave(page_size=10)
    vpc = await build.vpc()
    arns = [await build.target_group(vpc, SERVED) for _ in range(25)]
    client = ReducedClient(await removing.reach.client(removing.owner().scope), hides=arns[3])
    kind = named("aws.target-group")
    assert kind.exists is not None
    missing = f"{arns[0][:-4]}none"
    assert set(await kind.exists(client, [*arns, missing])) == set(arns)
    assert set(await kind.read(client, [*arns, missing])) == set(arns)


@pytest.mark.parametrize("tags", [{}, {"TagDescriptions": []}])
async def test_a_response_that_lacks_tags_of_a_resource_proves_nothing(
    removing: AwsRemovalFixture, tags: dict[str, list[str]]
) -> None:
    build = removing.cloud.builder
    arn = await build.target_group(await build.vpc(), SERVED)
    client = ReducedClient(await removing.reach.client(removing.owner().scope), tags=tags)
    with pytest.raises(AwsError, match=r"no empty list|lacks 1 of 1") as raised:
        await named("aws.target-group").read(client, [arn])
    assert raised.value.what == "unreadable"


@pytest.mark.invariant(1)
async def test_the_answer_to_another_question_proves_no_absence(removing: AwsRemovalFixture) -> None:
    build = removing.cloud.builder
    vpc = await build.vpc()
    asked, other = await build.group(vpc, OURS), await build.group(vpc, OURS)
    client = MixedUpClient(await removing.reach.client(removing.owner().scope), [other])
    with pytest.raises(AwsError, match="not asked for") as raised:
        await named("aws.security-group").read(client, [asked])
    assert raised.value.what == "unreadable"


class ReducedClient:
    """Real responses with something removed, as by deletions between pages, or a proxy."""

    def __init__(self, client: AwsClient, *, hides: str = "", tags: dict[str, list[str]] | None = None) -> None:
        self._client, self._hides, self._tags = client, hides, tags

    @property
    def scope(self) -> CallScope:
        return self._client.scope

    @property
    def account(self) -> str:
        return self._client.account

    async def call(self, service: str, operation: str, /, **arguments: Any) -> dict[str, Any]:
        answer = await self._client.call(service, operation, **arguments)
        return self._tags if self._tags is not None and operation == "describe_tags" else answer

    async def pages(
        self, service: str, operation: str, key: str, /, **arguments: Any
    ) -> AsyncIterator[list[dict[str, Any]]]:
        async for page in self._client.pages(service, operation, key, **arguments):
            unnamed = "PageSize" in arguments
            yield [item for item in page if not (unnamed and self._hides in item.values())]

    async def renew(self, lasting: timedelta) -> None:
        await self._client.renew(lasting)


class MixedUpClient(ReducedClient):
    """Real responses for other ids than requested, as if a proxy mixed up two connections."""

    def __init__(self, client: AwsClient, others: list[str]) -> None:
        super().__init__(client)
        self._others = others

    async def pages(
        self, service: str, operation: str, key: str, /, **arguments: Any
    ) -> AsyncIterator[list[dict[str, Any]]]:
        elsewhere = [{**one, "Values": self._others} for one in arguments["Filters"]]
        async for page in self._client.pages(service, operation, key, **{**arguments, "Filters": elsewhere}):
            yield page
