"""RDS instances, identified by name, with a final snapshot if one is wanted (`databases`). Members of a cluster and
read replicas have none: their data is the cluster's, or the source's."""

from typing import Final

from workers.providers.aws.client.paging import require_list
from workers.providers.aws.errors import AwsError
from workers.providers.aws.kinds.databases import (
    DatabaseFacts,
    DatabaseRemoval,
    lifts_of,
    no_snapshot_in,
    with_lifts,
)
from workers.providers.aws.kinds.declaration import AwsAttempt, AwsKind
from workers.providers.aws.kinds.deletion_protection import DeletionProtection
from workers.providers.aws.model import AwsClient, AwsResource
from workers.providers.aws.reading.each import read_each
from workers.providers.aws.reading.ec2 import Item, tags_of
from workers.providers.aws.services import service_named

NAME: Final = "aws.rds-instance"
DELETE: Final = "rds.DeleteDBInstance"
DESCRIBE: Final = "rds.DescribeDBInstances"
DESCRIBE_SNAPSHOTS: Final = "rds.DescribeDBSnapshots"
LIFT: Final = "rds.ModifyDBInstance"


async def _read(client: AwsClient, name: str) -> AwsResource:
    answer = await client.call("rds", "describe_db_instances", DBInstanceIdentifier=name)
    found: list[Item] = [
        one for one in require_list(answer, "DBInstances", "rds", "describe_db_instances")
        if one["DBInstanceIdentifier"] == name.lower()
    ]  # fmt: skip
    if not found:
        raise AwsError("unreadable", "rds:DescribeDBInstances", "OtherIds", f"the answer has no instance {name}")
    return _parse(name, found[0])


def _parse(name: str, item: Item) -> AwsResource:
    state = item.get("DBInstanceStatus") or ""
    return AwsResource(
        kind=NAME,
        id=name,
        tags=tags_of({"Tags": item.get("TagList")}),
        state=state,
        made=item.get("InstanceCreateTime"),
        facts=DatabaseFacts(
            incarnation=item["DbiResourceId"],
            protected=bool(item.get("DeletionProtection")),
            copy_of=_copy_of(item),
            no_snapshot=no_snapshot_in(state, item.get("Engine") or ""),
        ),
    )


def _copy_of(item: Item) -> str:
    if cluster := item.get("DBClusterIdentifier"):
        return f"its data is in cluster {cluster}"
    source = item.get("ReadReplicaSourceDBInstanceIdentifier") or item.get("ReadReplicaSourceDBClusterIdentifier")
    return f"it is a read replica of {source}" if source else ""


async def _switch_off(attempt: AwsAttempt) -> None:
    await attempt.client.call(
        "rds", "modify_db_instance", DBInstanceIdentifier=attempt.resource.id, DeletionProtection=False,
        ApplyImmediately=True,
    )  # fmt: skip


_REMOVAL = DatabaseRemoval(
    delete_lane=DELETE,
    check_lane=DESCRIBE,
    delete_call="delete_db_instance",
    id="DBInstanceIdentifier",
    read_snapshot="describe_db_snapshots",
    snapshots="DBSnapshots",
    snapshot_id="DBSnapshotIdentifier",
    owner_id="DbiResourceId",
    protection=DeletionProtection(LIFT, DELETE, "DeletionProtection", _switch_off, lifts_of, with_lifts),
)

RDS_INSTANCE = AwsKind(
    name=NAME,
    service="rds",
    delete_operation=DELETE,
    check_operation=DESCRIBE,
    arn=("rds", "db"),
    arn_separator=":",
    read=read_each(_read),
    read_operations=(DESCRIBE,),
    in_vpc=False,
    in_tagging_api=False,
    incarnation=lambda resource: resource.facts.incarnation,
    check_absent=_REMOVAL.check_absent,
    tag_calls=service_named("rds").tagged_by_arn("arn:{partition}:rds:{region}:{account}:db:{id}"),
    lookup_operations=(DESCRIBE_SNAPSHOTS,),
    precheck=_REMOVAL.precheck,
    delete=_REMOVAL.delete,
    deleting_states=frozenset({"deleting"}),
    steps={LIFT: _REMOVAL.protection.step},
)
