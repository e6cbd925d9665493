"""Resources far older than their object may belong to an earlier cluster of that name: they are held."""

import time
from collections.abc import Sequence

import msgspec
import pytest

from service.contract import Pending, Refused, Verdict
from service.sources.capa import ADOPTED
from standins.aws.builder import REGION
from standins.aws.tags import by_cloud_provider
from tests import capi
from tests.integration.aws_removal import (
    QUICK,
    AwsRecordingBatch,
    AwsRemovalFixture,
    aws_removal,
    capa_claims,
    named,
    removing,
)
from tests.integration.capa_states import record_objects
from tests.integration.capi_fixture import CapiFixture
from workers.collectors.capa.capa_object import parse_capa_object
from workers.collectors.capa.claim import CapaClaim
from workers.collectors.capa.latest_objects import LatestObjects, ObjectState

__all__ = ["removing"]
HOUR = 3600_000


def at(removing: AwsRemovalFixture, made: int, *, adopted: bool = False) -> CapaClaim:
    """An owner whose object was created that many milliseconds from now."""
    now = int(time.time() * 1000)
    return msgspec.structs.replace(removing.owner(), made=now + made, adopted=adopted)


async def one_attempt(removing: AwsRemovalFixture, batch: AwsRecordingBatch, **settings: bool) -> Verdict:
    aws, deletions = msgspec.structs.replace(QUICK, **settings), [job.deletion for job in batch.jobs]
    removal = aws_removal(
        named("aws.volume"), removing.reach, aws,
        capa_claims(
            aws, *deletions, account=removing.cloud.account,
            latest_objects=record_objects(LatestObjects(), batch.jobs),
        ),
    )  # fmt: skip
    ((_, verdict),) = [pair async for pair in removal.attempt(batch)]
    assert not isinstance(verdict, Exception), verdict
    return verdict


async def volumes(removing: AwsRemovalFixture) -> Sequence[str]:
    found = await removing.cloud.builder.ec2.describe_volumes()
    return [one["VolumeId"] for one in found["Volumes"]]


@pytest.mark.invariant(9)
async def test_what_is_more_than_an_hour_older_than_its_object_is_held(removing: AwsRemovalFixture) -> None:
    volume = await removing.cloud.builder.volume(by_cloud_provider("c1"))
    verdict = await one_attempt(removing, removing.batch(at(removing, 2 * HOUR), "aws.volume", volume))
    assert isinstance(verdict, Refused)
    assert "long before the object" in verdict.reason
    assert "aws.accept_older" in verdict.reason
    assert volume in await volumes(removing)


@pytest.mark.parametrize(("made", "settings"), [(HOUR // 2, {}), (2 * HOUR, {"accept_older": True})])
async def test_what_is_hardly_older_or_accepted_goes(
    removing: AwsRemovalFixture, made: int, settings: dict[str, bool]
) -> None:  # fmt: skip
    volume = await removing.cloud.builder.volume(by_cloud_provider("c1"))
    verdict = await one_attempt(removing, removing.batch(at(removing, made), "aws.volume", volume), **settings)
    assert isinstance(verdict, Pending)
    assert volume not in await volumes(removing)


@pytest.mark.invariant(11)
@pytest.mark.parametrize("allowed", [True, False])
async def test_an_object_may_adopt_what_is_older_only_where_settings_allow_it(
    removing: AwsRemovalFixture, allowed: bool
) -> None:  # fmt: skip
    volume = await removing.cloud.builder.volume(by_cloud_provider("c1"))
    batch = removing.batch(at(removing, 2 * HOUR, adopted=True), "aws.volume", volume)
    verdict = await one_attempt(removing, batch, allow_adopted=allowed)
    assert isinstance(verdict, Pending if allowed else Refused)
    assert (volume in await volumes(removing)) is not allowed


async def test_the_annotation_counts_as_it_is_by_the_time_of_the_call(clusters: CapiFixture) -> None:
    vpc = await clusters.resources.vpc()
    await clusters.resources.group(vpc, by_cloud_provider("prod"))
    found = clusters.delete_marked("prod", vpc)
    owner, _ = [msgspec.json.decode(target.data) for target in await clusters.planned(found)]
    made = time.time() * 1000 - owner["made"]
    assert 0 <= made < HOUR
    assert "adopted" not in owner
    clusters.capi.annotate(capi.AWS_CLUSTERS, "prod", **{ADOPTED: "true"})
    latest_objects = LatestObjects()
    live = msgspec.json.encode(clusters.capi.get(capi.AWS_CLUSTERS, "prod"))
    subject, planned = parse_capa_object(capi.AWS_CLUSTERS.resource, live), msgspec.convert(owner, CapaClaim)
    latest_objects.record(
        "deletion", ObjectState(subject=subject, source=planned.scope.source, account=planned.account, tasks=())
    )
    assert latest_objects.updated("deletion", planned).adopted
    assert planned.scope.region == REGION
