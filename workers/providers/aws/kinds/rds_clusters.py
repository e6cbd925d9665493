"""RDS clusters, identified by name, with a final snapshot if one is wanted (`databases`). The instances of an Aurora
cluster must be deleted before it; those of a Multi-AZ cluster are a part of it and go with it."""

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

NAME: Final = "aws.rds-cluster"
DELETE: Final = "rds.DeleteDBCluster"
DESCRIBE: Final = "rds.DescribeDBClusters"
DESCRIBE_SNAPSHOTS: Final = "rds.DescribeDBClusterSnapshots"
LIFT: Final = "rds.ModifyDBCluster"


async def _read(client: AwsClient, name: str) -> AwsResource:
    answer = await client.call("rds", "describe_db_clusters", DBClusterIdentifier=name)
    found: list[Item] = [
        one for one in require_list(answer, "DBClusters", "rds", "describe_db_clusters")
        if one["DBClusterIdentifier"] == name.lower()
    ]  # fmt: skip
    if not found:
        raise AwsError("unreadable", "rds:DescribeDBClusters", "OtherIds", f"the answer has no cluster {name}")
    return _parse(name, found[0])


def _parse(name: str, item: Item) -> AwsResource:
    state = item.get("Status") or ""
    members = tuple(one["DBInstanceIdentifier"] for one in item.get("DBClusterMembers") or ())
    return AwsResource(
        kind=NAME,
        id=name,
        tags=tags_of({"Tags": item.get("TagList")}),
        state=state,
        made=item.get("ClusterCreateTime"),
        facts=DatabaseFacts(
            incarnation=item["DbClusterResourceId"],
            protected=bool(item.get("DeletionProtection")),
            no_snapshot=no_snapshot_in(state, item.get("Engine") or ""),
            # Only a Multi-AZ cluster has a class for its instances.
            members=() if item.get("DBClusterInstanceClass") else members,
        ),
    )


async def _switch_off(attempt: AwsAttempt) -> None:
    await attempt.client.call(
        "rds", "modify_db_cluster", DBClusterIdentifier=attempt.resource.id, DeletionProtection=False,
        ApplyImmediately=True,
    )  # fmt: skip


_REMOVAL = DatabaseRemoval(
    delete_lane=DELETE,
    check_lane=DESCRIBE,
    delete_call="delete_db_cluster",
    id="DBClusterIdentifier",
    read_snapshot="describe_db_cluster_snapshots",
    snapshots="DBClusterSnapshots",
    snapshot_id="DBClusterSnapshotIdentifier",
    owner_id="DbClusterResourceId",
    protection=DeletionProtection(LIFT, DELETE, "DeletionProtection", _switch_off, lifts_of, with_lifts),
)

RDS_CLUSTER = AwsKind(
    name=NAME,
    service="rds",
    delete_operation=DELETE,
    check_operation=DESCRIBE,
    arn=("rds", "cluster"),
    arn_separator=":",
    read=read_each(_read),
    read_operations=(DESCRIBE,),
    in_vpc=False,
    in_tagging_api=False,
    incarnation=lambda resource: resource.facts.incarnation,
    check_absent=_REMOVAL.check_absent,
    tag_calls=service_named("rds").tagged_by_arn("arn:{partition}:rds:{region}:{account}:cluster:{id}"),
    lookup_operations=(DESCRIBE_SNAPSHOTS,),
    precheck=_REMOVAL.precheck,
    delete=_REMOVAL.delete,
    deleting_states=frozenset({"deleting"}),
    steps={LIFT: _REMOVAL.protection.step},
)
