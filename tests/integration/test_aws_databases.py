"""Removal of RDS instances and clusters: final snapshots that are complete before the deletion counts, deletion
protection, and what can not have a snapshot of its own."""

from datetime import timedelta
from typing import Any

import pytest

from service.contract import Blocked, Gone, Pending, Refused
from standins.aws import AwsFault
from standins.aws.tags import named, pairs
from tests.integration.aws_identified import OURS, SHORT_LEASE, IdentifiedRemovalFixture, identified
from workers.providers.aws.kinds.deletion_protection import MAX_LIFTS
from workers.removal import RemovalProgress

__all__ = ["identified"]

INSTANCE, CLUSTER = "aws.rds-instance", "aws.rds-cluster"
DELETE = {INSTANCE: "rds.DeleteDBInstance", CLUSTER: "rds.DeleteDBCluster"}
CHECK = {INSTANCE: "rds.DescribeDBInstances", CLUSTER: "rds.DescribeDBClusters"}
LIFT = {INSTANCE: "rds.ModifyDBInstance", CLUSTER: "rds.ModifyDBCluster"}

BOTH = pytest.mark.parametrize("kind", [INSTANCE, CLUSTER])


async def rds(identified: IdentifiedRemovalFixture) -> Any:
    return await identified.cloud.builder.client("rds")


async def final_snapshots(identified: IdentifiedRemovalFixture, kind: str, id_: str) -> dict[str, str]:
    """States by name."""
    client = await rds(identified)
    if kind == INSTANCE:
        found = (await client.describe_db_snapshots(DBInstanceIdentifier=id_, SnapshotType="manual"))["DBSnapshots"]
        return {one["DBSnapshotIdentifier"]: one["Status"] for one in found}
    found = await client.describe_db_cluster_snapshots(DBClusterIdentifier=id_, SnapshotType="manual")
    return {one["DBClusterSnapshotIdentifier"]: one["Status"] for one in found["DBClusterSnapshots"]}


@BOTH
async def test_without_the_setting_it_goes_without_a_snapshot_and_aws_is_told_so(
    identified: IdentifiedRemovalFixture, kind: str
) -> None:
    await identified.cloud.aws.behave(database_goes=0.5)
    ours = await identified.make(kind)
    await identified.remove(*identified.targets(kind, ours))
    assert not await identified.exists(kind, ours)
    assert await final_snapshots(identified, kind, ours) == {}


@BOTH
async def test_a_deletion_counts_once_it_is_gone_and_its_final_snapshot_is_available(
    identified: IdentifiedRemovalFixture, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.providers.aws.kinds.databases.CHECK_AGAIN", timedelta(milliseconds=200))
    # The instance goes long before its snapshot is complete.
    await identified.cloud.aws.behave(database_goes=1.0, database_goes_first=True, snapshot_takes=60.0)
    await identified.cloud.aws.set_rate(0)
    identified.set(snapshot_first=True)
    ours = await identified.make(kind)
    await identified.start()
    going = await identified.go(*identified.targets(kind, ours))
    await identified.until(going, ours, "check", "it is deleting")
    await identified.cloud.aws.advance(2)
    record = await identified.until(going, ours, "check", "is being made")
    assert not await identified.exists(kind, ours)
    ((name, state),) = (await final_snapshots(identified, kind, ours)).items()
    assert (state, name in record["detail"]) == ("creating", True)
    assert (await identified.engine.deletion(going))["state"] != "done"
    await identified.cloud.aws.advance(60)
    await identified.cloud.aws.set_rate(1)
    await identified.engine.until_done(going)
    assert await final_snapshots(identified, kind, ours) == {name: "available"}
    assert await identified.asked(DELETE[kind]) == [DELETE[kind]]


@pytest.mark.long
@BOTH
async def test_a_crash_after_the_call_loses_neither_the_snapshot_nor_its_name(
    identified: IdentifiedRemovalFixture, kind: str
) -> None:
    await identified.cloud.aws.behave(database_goes=1.0, snapshot_takes=1.0)
    identified.set(snapshot_first=True)
    ours = await identified.make(kind)
    await identified.cloud.aws.set_faults(AwsFault(what="lost", action=DELETE[kind], times=1))
    await identified.remove(*identified.targets(kind, ours))
    assert list((await final_snapshots(identified, kind, ours)).values()) == ["available"]
    assert await identified.asked(DELETE[kind]) == [DELETE[kind]]


@pytest.mark.long
@BOTH
async def test_a_worker_that_is_killed_after_the_call_leaves_the_proof_to_the_next_one(
    identified: IdentifiedRemovalFixture, kind: str
) -> None:
    await identified.cloud.aws.behave(database_goes=0.0, database_goes_first=True, snapshot_takes=10.0)
    await identified.cloud.aws.set_rate(0)
    identified.set(snapshot_first=True)
    ours = await identified.make(kind)
    running = await identified.start(**SHORT_LEASE)
    going = await identified.go(*identified.targets(kind, ours))
    await identified.crash_after(running, DELETE[kind])
    await identified.cloud.aws.advance(1)
    await identified.until(going, ours, "check", "is being made")
    await identified.cloud.aws.advance(10)
    await identified.engine.until_done(going)
    assert list((await final_snapshots(identified, kind, ours)).values()) == ["available"]
    assert await identified.asked(DELETE[kind]) == [DELETE[kind]]


@BOTH
async def test_the_name_of_the_snapshot_is_recorded_before_the_call_and_the_same_in_every_attempt(
    identified: IdentifiedRemovalFixture, kind: str
) -> None:
    await identified.cloud.aws.behave(database_goes=0.0, database_goes_first=True, snapshot_takes=60.0)
    identified.set(snapshot_first=True)
    ours = await identified.make(kind)
    (first, again) = [(await identified.attempt(kind, ours))[ours] for _ in range(2)]
    assert first == again
    assert isinstance(first, Pending)
    assert str(first.lane).endswith(DELETE[kind])
    assert await identified.asked(DELETE[kind]) == []
    deleted = (await identified.attempt(kind, ours, resume=first.resume))[ours]
    assert isinstance(deleted, Pending)
    assert str(deleted.lane).endswith(CHECK[kind])
    ((name, _),) = (await final_snapshots(identified, kind, ours)).items()
    assert name in first.resume
    assert name in deleted.resume
    # Also where the answer to the call was lost: the job is in the lane of the deletion, and its record has the name.
    for operation, resume in (("", first.resume), (CHECK[kind], deleted.resume)):
        waits = (await identified.attempt(kind, ours, operation=operation, resume=resume))[ours]
        assert isinstance(waits, Pending)
        assert (f"{name} is being made" in waits.detail, waits.resume) == (True, resume)


@BOTH
async def test_a_snapshot_that_failed_or_is_missing_or_is_of_another_one_holds_the_deletion(
    identified: IdentifiedRemovalFixture, kind: str
) -> None:
    await identified.cloud.aws.behave(
        database_goes=0.0, database_goes_first=True, snapshot_takes=0.1, snapshots_fail="no"
    )
    identified.set(snapshot_first=True)
    ours = await identified.make(kind)
    first = (await identified.attempt(kind, ours))[ours]
    assert isinstance(first, Pending)
    deleted = (await identified.attempt(kind, ours, resume=first.resume))[ours]
    assert isinstance(deleted, Pending)
    ((name, _),) = (await final_snapshots(identified, kind, ours)).items()
    await identified.cloud.aws.advance(1)

    async def check(resume: str, **record: Any) -> Any:
        return (await identified.attempt(kind, ours, operation=CHECK[kind], resume=resume, **record))[ours]

    failed = await check(deleted.resume)
    assert isinstance(failed, Refused)
    assert f"{name} is failed" in failed.reason
    state = RemovalProgress.read(deleted.resume)
    of_another = await check(str(state._replace(incarnation="db-ANOTHER")))
    assert isinstance(of_another, Refused)
    assert "of another one" in of_another.reason
    lost = deleted.resume.replace(name, "knell-no-such-snapshot")
    assert isinstance(await check(lost), Blocked)
    missing = await check(lost, waits=5)
    assert isinstance(missing, Refused)
    assert "does not exist" in missing.reason
    garbled = await check(str(state._replace(state="{")))
    assert isinstance(garbled, Exception)
    assert await check(str(state._replace(state=""))) == Gone()


@BOTH
async def test_deletion_protection_is_respected(identified: IdentifiedRemovalFixture, kind: str) -> None:
    ours = await identified.make(kind)
    await protect(identified, kind, ours)
    refused = (await identified.attempt(kind, ours))[ours]
    assert isinstance(refused, Refused)
    assert "aws.lift_deletion_protection" in refused.reason
    moved = (await identified.attempt(kind, ours, operation=LIFT[kind]))[ours]
    assert isinstance(moved, Pending)
    assert str(moved.lane).endswith(DELETE[kind])
    assert await identified.asked(LIFT[kind], DELETE[kind]) == []


@BOTH
async def test_deletion_protection_is_lifted_by_setting_and_a_final_snapshot_is_taken_after_that(
    identified: IdentifiedRemovalFixture, kind: str
) -> None:
    await identified.cloud.aws.behave(database_goes=0.5, snapshot_takes=0.5)
    identified.set(lift_deletion_protection=True, snapshot_first=True)
    ours = await identified.make(kind)
    await protect(identified, kind, ours)
    await identified.remove(*identified.targets(kind, ours))
    assert not await identified.exists(kind, ours)
    assert len(await final_snapshots(identified, kind, ours)) == 1
    assert await identified.asked(LIFT[kind], DELETE[kind]) == [LIFT[kind], DELETE[kind]]


async def test_protection_that_comes_back_is_left_to_a_person(identified: IdentifiedRemovalFixture) -> None:
    identified.set(lift_deletion_protection=True)
    ours, resume = await identified.make(INSTANCE), ""
    for _ in range(MAX_LIFTS):
        await protect(identified, INSTANCE, ours)
        # AWS may show for a while what was switched off.
        moved = (await identified.attempt(INSTANCE, ours, resume=resume, waits=3))[ours]
        assert isinstance(moved, Pending)
        lifted = (await identified.attempt(INSTANCE, ours, operation=LIFT[INSTANCE], resume=moved.resume))[ours]
        assert isinstance(lifted, Pending)
        resume = lifted.resume
    await protect(identified, INSTANCE, ours)
    refused = (await identified.attempt(INSTANCE, ours, resume=resume, waits=3))[ours]
    assert isinstance(refused, Refused)
    assert f"although it was lifted {MAX_LIFTS} times" in refused.reason


@pytest.mark.long
async def test_a_cluster_waits_for_its_instances_whose_data_needs_no_snapshot(
    identified: IdentifiedRemovalFixture,
) -> None:
    await identified.cloud.aws.behave(database_goes=0.5, snapshot_takes=0.5)
    identified.set(snapshot_first=True)
    cluster, member = await identified.make(CLUSTER), named("member")
    await (await rds(identified)).create_db_instance(
        DBInstanceIdentifier=member, DBInstanceClass="db.r5.large", Engine="aurora-postgresql",
        DBClusterIdentifier=cluster, Tags=pairs(OURS),
    )  # fmt: skip
    await identified.start()
    going = await identified.go(*identified.targets(CLUSTER, cluster))
    record = await identified.until(going, cluster, "blocked", "has instances")
    assert member in record["detail"]
    assert await identified.asked(DELETE[CLUSTER]) == []
    of_member = await identified.go(*identified.targets(INSTANCE, member))
    await identified.engine.until_done(of_member, going)
    assert await final_snapshots(identified, INSTANCE, member) == {}
    assert list((await final_snapshots(identified, CLUSTER, cluster)).values()) == ["available"]


async def test_a_read_replica_goes_without_a_snapshot(identified: IdentifiedRemovalFixture) -> None:
    await identified.cloud.aws.behave(database_goes=0.5)
    identified.set(snapshot_first=True)
    source, replica = await identified.make(INSTANCE), named("replica")
    await (await rds(identified)).create_db_instance_read_replica(
        DBInstanceIdentifier=replica, SourceDBInstanceIdentifier=source, Tags=pairs(OURS)
    )
    await identified.remove(*identified.targets(INSTANCE, replica))
    assert not await identified.exists(INSTANCE, replica)
    assert await identified.exists(INSTANCE, source)
    assert await final_snapshots(identified, INSTANCE, replica) == {}


async def test_a_snapshot_of_that_name_without_a_deletion_is_left_to_a_person(
    identified: IdentifiedRemovalFixture,
) -> None:
    identified.set(snapshot_first=True)
    ours = await identified.make(INSTANCE)
    first = (await identified.attempt(INSTANCE, ours))[ours]
    assert isinstance(first, Pending)
    name = first.resume.partition('"snapshot":"')[2].partition('"')[0]
    await (await rds(identified)).create_db_snapshot(DBInstanceIdentifier=ours, DBSnapshotIdentifier=name)
    blocked = (await identified.attempt(INSTANCE, ours, resume=first.resume))[ours]
    assert isinstance(blocked, Blocked)
    assert (blocked.person, name in blocked.by) == (True, True)
    # A deletion that was accepted and had no effect is repeated with another name.
    again = RemovalProgress.read(first.resume)._replace(deletes=1)
    other = (await identified.attempt(INSTANCE, ours, resume=str(again)))[ours]
    assert isinstance(other, Pending)
    assert name not in other.resume


async def test_a_snapshot_that_is_not_wanted_any_more_is_not_waited_for(identified: IdentifiedRemovalFixture) -> None:
    await identified.cloud.aws.behave(database_goes=0.5)
    identified.set(snapshot_first=True)
    ours = await identified.make(INSTANCE)
    first = (await identified.attempt(INSTANCE, ours))[ours]
    assert isinstance(first, Pending)
    identified.set(snapshot_first=False)
    forgotten = (await identified.attempt(INSTANCE, ours, resume=first.resume))[ours]
    assert isinstance(forgotten, Pending)
    assert str(forgotten.lane).endswith(DELETE[INSTANCE])
    assert "snapshot" not in forgotten.resume
    assert await identified.asked(DELETE[INSTANCE]) == []


async def protect(identified: IdentifiedRemovalFixture, kind: str, id_: str) -> None:
    client = await rds(identified)
    if kind == INSTANCE:
        await client.modify_db_instance(DBInstanceIdentifier=id_, DeletionProtection=True, ApplyImmediately=True)
    else:
        await client.modify_db_cluster(DBClusterIdentifier=id_, DeletionProtection=True, ApplyImmediately=True)
