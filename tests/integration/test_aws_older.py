"""A resource that is far older than its object may be what an earlier cluster of that name left: it is held."""

import time
from collections.abc import Sequence

import msgspec
import pytest

from service.contract import Pending, Refused, Verdict
from service.contract.aws import ADOPTED
from standins.aws.tags import by_cloud_provider
from standins.aws.world import REGION
from tests import capi
from tests.integration.aws_removing import QUICK, Hand, Removing, named, removing
from tests.integration.clustered import Clustered
from workers.handlers.aws.model import Owner
from workers.handlers.aws.owners import subject_of
from workers.handlers.aws.removal import Removal
from workers.handlers.aws.wanting import Terms, Wanting

__all__ = ["removing"]
HOUR = 3600_000


def at(removing: Removing, made: int, *, adopted: bool = False) -> Owner:
    """Whose object was made so many milliseconds from now."""
    now = int(time.time() * 1000)
    return msgspec.structs.replace(removing.owner(), made=now + made, adopted=adopted)


async def one_attempt(removing: Removing, hand: Hand, **settings: bool) -> Verdict:
    removal = Removal(named("aws.volume"), removing.reach, msgspec.structs.replace(QUICK, **settings))
    ((_, verdict),) = [pair async for pair in removal.attempt(hand)]
    assert not isinstance(verdict, Exception), verdict
    return verdict


async def volumes(removing: Removing) -> Sequence[str]:
    found = await removing.cloud.world.ec2.describe_volumes()
    return [one["VolumeId"] for one in found["Volumes"]]


@pytest.mark.invariant(9)
async def test_what_is_more_than_an_hour_older_than_its_object_is_held(removing: Removing) -> None:
    volume = await removing.cloud.world.volume(by_cloud_provider("c1"))
    verdict = await one_attempt(removing, removing.hand(at(removing, 2 * HOUR), "aws.volume", volume))
    assert isinstance(verdict, Refused)
    assert "long before the object" in verdict.reason
    assert "aws.accept_older" in verdict.reason
    assert volume in await volumes(removing)


@pytest.mark.parametrize(("made", "settings"), [(HOUR // 2, {}), (2 * HOUR, {"accept_older": True})])
async def test_what_is_hardly_older_or_accepted_goes(
    removing: Removing, made: int, settings: dict[str, bool]
) -> None:  # fmt: skip
    volume = await removing.cloud.world.volume(by_cloud_provider("c1"))
    verdict = await one_attempt(removing, removing.hand(at(removing, made), "aws.volume", volume), **settings)
    assert isinstance(verdict, Pending)
    assert volume not in await volumes(removing)


@pytest.mark.invariant(11)
@pytest.mark.parametrize("allowed", [True, False])
async def test_an_object_may_adopt_what_is_older_only_where_settings_allow_it(
    removing: Removing, allowed: bool
) -> None:  # fmt: skip
    volume = await removing.cloud.world.volume(by_cloud_provider("c1"))
    hand = removing.hand(at(removing, 2 * HOUR, adopted=True), "aws.volume", volume)
    verdict = await one_attempt(removing, hand, allow_adopted=allowed)
    assert isinstance(verdict, Pending if allowed else Refused)
    assert (volume in await volumes(removing)) is not allowed


async def test_the_annotation_counts_as_it_is_by_the_time_of_the_call(clustered: Clustered) -> None:
    vpc = await clustered.resources.vpc()
    await clustered.resources.group(vpc, by_cloud_provider("prod"))
    found = clustered.delete_marked("prod", vpc)
    owner, _ = [msgspec.json.decode(target.data) for target in await clustered.planned(found)]
    made = time.time() * 1000 - owner["made"]
    assert 0 <= made < HOUR
    assert "adopted" not in owner
    clustered.capi.annotate(capi.AWS_CLUSTERS, "prod", **{ADOPTED: "true"})
    wanting = Wanting()
    live = msgspec.json.encode(clustered.capi.get(capi.AWS_CLUSTERS, "prod"))
    wanting.note("deletion", Terms(subject_of(capi.AWS_CLUSTERS.resource, live), ()))
    planned = msgspec.convert(owner, Owner)
    assert wanting.latest("deletion", planned).adopted
    assert planned.whose.region == REGION
