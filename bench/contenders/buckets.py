"""The limit of clearing an AWS account: as soon as its token buckets have given a token for every deletion.

It is worked out from the buckets of the stand-in, and not measured; lists and proofs would come on top.
"""

from __future__ import annotations

from collections.abc import Mapping

from bench.aws_leftovers import OF_A_CLUSTER
from bench.bench_server import BenchServer
from bench.contenders.protocol import Cleaned, Drains, Kind, NotSupportedError, Outlasted, RemovedByIdentifier
from bench.contenders.unsupported import CloudOnly
from bench.order import Finding
from standins.aws.calls import AwsCall
from standins.aws.throttling import drawn


def seconds_for(calls: Mapping[str, int]) -> float:
    """Until all of them were let through, by actions (`elbv2.DeleteTargetGroup`): buckets are full at the beginning,
    and the slowest decides."""
    asked: dict[tuple[str, tuple[float, float]], int] = {}
    for action, count in calls.items():
        for bucket in drawn(_call(action)):
            asked[bucket] = asked.get(bucket, 0) + count
    return max(0.0, *((count - capacity) / rate for (_, (capacity, rate)), count in asked.items()))


def _call(action: str) -> AwsCall:
    service, _, named = action.partition(".")
    return AwsCall(service=service, action=named, account="", region="", key="", setup=False, params={})


class Buckets(CloudOnly):
    name = "buckets"
    kind: Kind = "limit"
    settings = (
        "worked out: full token buckets and what flows into them, one call for each deletion and no other; of Cloud "
        "Control a read, a deletion and a read that proves absence for each resource"
    )
    lacks = "is an AWS account's limit, of which nothing else is known"

    def version(self) -> str:
        return "as documented"

    def clean(self, server: BenchServer, finding: Finding, clusters: int) -> Cleaned:
        del server, finding
        calls = {action: each * clusters for action, each in OF_A_CLUSTER.items()}
        return Cleaned(resources=sum(calls.values()), seconds=seconds_for(calls))

    def outlast(self, server: BenchServer, drains: Drains) -> Outlasted:
        del server, drains
        raise NotSupportedError("a group may go as soon as its last interface has drained")

    def remove(self, server: BenchServer, resources: int) -> RemovedByIdentifier:
        del server
        calls = {"cloudcontrol.GetResource": 2 * resources, "cloudcontrol.DeleteResource": resources}
        return RemovedByIdentifier(resources=resources, seconds=seconds_for(calls))
