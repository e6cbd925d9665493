"""Snapshot before the deletion of a volume: complete first, one per deletion, and never collected."""

from datetime import UTC, datetime, timedelta

import msgspec

from service.contract import Pending, Refused
from service.sources.capa import ownership_tag
from standins.aws import AwsFault
from standins.aws.tags import by_cloud_provider
from tests.aws_kinds import AWS_KINDS
from tests.integration.aws_removal import AwsRemovalFixture, removing
from workers.providers.aws.kinds.declaration import AwsAttempt
from workers.providers.aws.kinds.snapshots import MAX_AGE, VolumeSnapshot, require_snapshot
from workers.providers.aws.model import AwsResource

__all__ = ["removing"]

OURS = by_cloud_provider("c1")
VOLUME = "aws.volume"
CREATE, DESCRIBE, DELETE = "ec2.CreateSnapshot", "ec2.DescribeSnapshots", "ec2.DeleteVolume"


async def snapshots_of(removing: AwsRemovalFixture, volume: str) -> list[dict[str, object]]:
    by_volume = [{"Name": "volume-id", "Values": [volume]}]
    return list((await removing.cloud.builder.ec2.describe_snapshots(Filters=by_volume))["Snapshots"])


async def test_the_snapshot_is_complete_before_the_volume_goes_and_has_no_ownership_tag(
    removing: AwsRemovalFixture,
) -> None:
    build = removing.cloud.builder
    await removing.cloud.aws.behave(snapshot_takes=10.0)
    await removing.cloud.aws.set_rate(0)
    volume = await build.volume(OURS)
    await removing.start()
    going = await removing.go(*removing.targets(removing.owner(snapshot=True), VOLUME, volume))
    record = await removing.until(going, volume, "check", "is being made")
    assert record["lane"].endswith(DESCRIBE)
    (pending,) = await snapshots_of(removing, volume)
    assert pending["State"] == "pending"
    before = len(await removing.asked(DESCRIBE))

    async def looked_again() -> bool:
        return len(await removing.asked(DESCRIBE)) >= before + 2

    await removing.engine.until("it was looked at again", looked_again)
    assert await removing.asked(DELETE) == []
    await removing.cloud.aws.set_rate(1)
    await removing.cloud.aws.advance(10)
    await removing.engine.until_done(going)
    (kept,) = await snapshots_of(removing, volume)
    assert kept["State"] == "completed"
    tags = {tag["Key"]: tag["Value"] for tag in kept["Tags"]}  # type: ignore[attr-defined]
    assert tags == {"knell.dev/volume": volume, "knell.dev/deletion": going.deletion, "knell.dev/cluster-name": "c1"}
    assert ownership_tag("c1") not in tags
    assert volume not in await AWS_KINDS[VOLUME].there(build)


async def test_a_crash_after_the_snapshot_was_begun_makes_no_second_one(removing: AwsRemovalFixture) -> None:
    build = removing.cloud.builder
    await removing.cloud.aws.behave(snapshot_takes=1.0)
    volume = await build.volume(OURS)
    await removing.cloud.aws.set_faults(AwsFault(what="lost", action=CREATE, times=1))
    await removing.remove(*removing.targets(removing.owner(snapshot=True), VOLUME, volume))
    assert len(await removing.asked(CREATE)) == 1
    assert len(await snapshots_of(removing, volume)) == 1


async def test_a_snapshot_of_an_earlier_deletion_saves_nothing(removing: AwsRemovalFixture) -> None:
    build = removing.cloud.builder
    await removing.cloud.aws.behave(snapshot_takes=0.0)
    volume = await build.volume(OURS)
    tags = {"knell.dev/volume": volume, "knell.dev/deletion": "an earlier one"}
    await build.ec2.create_snapshot(
        VolumeId=volume,
        TagSpecifications=[
            {"ResourceType": "snapshot", "Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}
        ],
    )
    await removing.remove(*removing.targets(removing.owner(snapshot=True), VOLUME, volume))
    assert len(await snapshots_of(removing, volume)) == 2


async def test_a_snapshot_of_another_volume_that_claims_to_be_of_this_one_saves_nothing(
    removing: AwsRemovalFixture,
) -> None:
    build = removing.cloud.builder
    await removing.cloud.aws.behave(snapshot_takes=0.0)
    volume, other = await build.volume(OURS), await build.volume()
    tags = {"knell.dev/volume": volume, "knell.dev/deletion": "deletion"}
    await build.ec2.create_snapshot(
        VolumeId=other,
        TagSpecifications=[
            {"ResourceType": "snapshot", "Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}
        ],
    )
    verdict = (await removing.attempt(removing.batch(removing.owner(snapshot=True), VOLUME, volume)))[volume]
    assert isinstance(verdict, Pending)
    assert str(verdict.lane).endswith(CREATE)


async def test_a_snapshot_that_failed_holds_the_volume(removing: AwsRemovalFixture) -> None:
    """A state that moto never has: the kind's function is called directly."""
    owner = removing.owner(snapshot=True)
    batch = removing.batch(owner, VOLUME, "vol-1")
    (job,) = batch.jobs
    seen = {("vol-1", job.deletion): [VolumeSnapshot("snap-1", "error", "the key is disabled")]}
    found = AwsResource(kind=VOLUME, id="vol-1", tags=OURS, state="available")
    client = await removing.reach.client(owner.scope)
    verdict = await require_snapshot(
        AwsAttempt(
            job=job,
            claim=owner,
            judge=removing.judge,
            resource=found,
            client=client,
            batch=batch,
            settings=removing.aws,
            looked_up=seen,
        )
    )
    assert isinstance(verdict, Refused)
    assert "snap-1 of vol-1 is error: the key is disabled" in verdict.reason


async def test_a_complete_snapshot_that_is_old_by_now_is_made_anew(removing: AwsRemovalFixture) -> None:
    """A deletion may be held for long, and the volume used meanwhile; moto knows no age."""
    owner = removing.owner(snapshot=True)
    batch = removing.batch(owner, VOLUME, "vol-1")
    (job,) = batch.jobs
    found = AwsResource(kind=VOLUME, id="vol-1", tags=OURS, state="available")
    client = await removing.reach.client(owner.scope)

    async def saves(*began: timedelta) -> bool:
        snapshots = [VolumeSnapshot("snap-1", "completed", "", datetime.now(UTC) - age) for age in began]
        seen = {("vol-1", job.deletion): snapshots}
        verdict = await require_snapshot(
            AwsAttempt(
                job=job,
                claim=owner,
                judge=removing.judge,
                resource=found,
                client=client,
                batch=batch,
                settings=removing.aws,
                looked_up=seen,
            )
        )
        assert verdict is None or (isinstance(verdict, Pending) and str(verdict.lane).endswith(CREATE))
        return verdict is None

    recent, old = MAX_AGE - timedelta(minutes=1), MAX_AGE + timedelta(minutes=1)
    assert await saves(recent)
    assert not await saves(old)
    assert await saves(old, recent)


async def test_a_snapshot_comes_first_also_where_the_setting_is_newer_than_the_plan(
    removing: AwsRemovalFixture,
) -> None:
    build = removing.cloud.builder
    await removing.cloud.aws.behave(snapshot_takes=0.0)
    removing.aws = msgspec.structs.replace(removing.aws, snapshot_first=True)
    volume = await build.volume(OURS)
    await removing.remove(*removing.targets(removing.owner(), VOLUME, volume))
    assert len(await snapshots_of(removing, volume)) == 1
