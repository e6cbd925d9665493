"""RDS beyond moto: a deletion takes time, with a final snapshot that is made meanwhile or a decision against one, and
instances that have a name one after another have different ids."""

import uuid
from typing import Any

from standins.aws.behaviour import AwsBehaviour
from standins.aws.calls import AwsCall
from standins.aws.moto_backends import backend_of
from standins.aws.responses import AwsResponse, failed, succeeded
from standins.clock import Clock


def delete_instance(call: AwsCall, clock: Clock, behaviour: AwsBehaviour) -> AwsResponse | None:
    """None leaves the request to moto, which refuses what does not exist or is protected."""
    rds, name = backend_of(call, "rds"), call.text("DBInstanceIdentifier").lower()
    one, final = rds.databases.get(name), call.text("FinalDBSnapshotIdentifier")
    if one is None or one.deletion_protection:
        return None
    if one.status == "deleting":
        return failed(call, "InvalidDBInstanceState", f"Instance {name} is already being deleted.")
    if (refusal := _snapshot_refusal(call)) is not None:
        return refusal
    if final and (one.is_replica or one.db_cluster_identifier):
        message = "FinalDBSnapshotIdentifier can not be specified when deleting a replica or cluster instance"
        return failed(call, "InvalidParameterCombination", message)
    if final in rds.database_snapshots:
        message = f"Cannot create the snapshot because a snapshot with the identifier {final} already exists."
        return failed(call, "DBSnapshotAlreadyExists", message)
    if final:
        rds.create_db_snapshot(name, final, snapshot_type="manual")
        _complete_later(rds.database_snapshots, final, clock, behaviour)

    def gone(_at: float) -> None:
        if rds.databases.get(name) is one:
            rds.delete_db_instance(name, None, True)

    one.status = "deleting"
    clock.after(_duration(final, behaviour), gone)
    return succeeded(call, {"DBInstance": {"DBInstanceIdentifier": name, "DBInstanceStatus": "deleting"}})


def delete_cluster(call: AwsCall, clock: Clock, behaviour: AwsBehaviour) -> AwsResponse | None:
    rds, name = backend_of(call, "rds"), call.text("DBClusterIdentifier").lower()
    one, final = rds.clusters.get(name), call.text("FinalDBSnapshotIdentifier")
    if one is None or one.deletion_protection or one.members:
        return None
    if one.status == "deleting":
        return failed(call, "InvalidDBClusterStateFault", f"Cluster {name} is already being deleted.")
    if (refusal := _snapshot_refusal(call)) is not None:
        return refusal
    if final in rds.cluster_snapshots:
        message = f"Cannot create the snapshot because a snapshot with the identifier {final} already exists."
        return failed(call, "DBClusterSnapshotAlreadyExistsFault", message)
    if final:
        rds.create_db_cluster_snapshot(name, final)
        # moto does not say which cluster of the name it is of.
        rds.cluster_snapshots[final].db_cluster_resource_id = one.db_cluster_resource_id
        _complete_later(rds.cluster_snapshots, final, clock, behaviour)

    def gone(_at: float) -> None:
        if rds.clusters.get(name) is one:
            rds.delete_db_cluster(name)
            # Automated ones go with it; moto keeps them.
            for each in [each for each in rds.cluster_snapshots if each.startswith(f"rds:{name}-")]:
                del rds.cluster_snapshots[each]

    one.status = "deleting"
    clock.after(_duration(final, behaviour), gone)
    return succeeded(call, {"DBCluster": {"DBClusterIdentifier": name, "Status": "deleting"}})


def made_instance(call: AwsCall, answer: AwsResponse) -> AwsResponse:
    """Called with moto's response: it gives every instance the same id."""
    one = backend_of(call, "rds").databases.get(call.text("DBInstanceIdentifier").lower())
    if answer.status == 200 and one is not None:
        one.dbi_resource_id = f"db-{uuid.uuid4().hex[:26].upper()}"
    return answer


def _snapshot_refusal(call: AwsCall) -> AwsResponse | None:
    skipped, final = call.text("SkipFinalSnapshot") == "true", call.text("FinalDBSnapshotIdentifier")
    if skipped == bool(final):
        words = "can not be specified when" if final else "is required unless"
        message = f"FinalDBSnapshotIdentifier {words} SkipFinalSnapshot is specified."
        return failed(call, "InvalidParameterCombination", message)
    return None


def _complete_later(snapshots: Any, name: str, clock: Clock, behaviour: AwsBehaviour) -> None:
    if behaviour.snapshot_takes <= 0:
        return
    end = "failed" if behaviour.snapshots_fail else "available"
    snapshots[name].status = "creating"
    clock.after(behaviour.snapshot_takes, lambda _: setattr(snapshots[name], "status", end))


def _duration(final: str, behaviour: AwsBehaviour) -> float:
    """AWS shows it as long as its final snapshot is made, unless that is to be the other way round."""
    if not final or behaviour.database_goes_first:
        return behaviour.database_goes
    return max(behaviour.database_goes, behaviour.snapshot_takes)
