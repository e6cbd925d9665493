"""Cluster API Provider AWS: the AWS calls of its garbage collector, made by a program of ours.

Before it is measured it is checked against the calls that its own code was seen to make without errors."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from bench.aws_account import BenchAccount
from bench.aws_leftovers import OF_A_CLUSTER, AccountLeftovers, fill
from bench.bench_server import BenchServer
from bench.contenders import clearing
from bench.contenders.cloud_process import PeerCloudProcess
from bench.contenders.program import Program, running
from bench.contenders.protocol import Cleaned, ContenderFailedError, Drains, Kind, Outlasted
from bench.contenders.unsupported import CloudOnly
from bench.order import AwsOrder, Finding

CALLS_OF_A_CLUSTER: Final = 11
"""One list and ten deletions: what its own code makes of a cluster with ten resources."""
LISTS: Final = 4
"""Without the tagging API, of as many as stand on one page: classic balancers, others, target groups, groups."""
TAGS_AT_ONCE: Final = 20
_TAGGED: Final = ("elb.DeleteLoadBalancer", "elbv2.DeleteLoadBalancer", "elbv2.DeleteTargetGroup")
_CHECKED: Final = 3
# Seven clusters have 21 target groups, whose tags are two calls; six of them have 18.
_CHECKED_LISTING: Final = 7
_CHECKED_ALONE: Final = 2
_BEGINS_WITHIN: Final = 60.0
_CHECKED_WITHIN: Final = 60.0


class CapaProcess(PeerCloudProcess):
    def __init__(self, program: Program, began: float) -> None:
        super().__init__(program)
        self.began = began


@contextmanager
def begin(account: BenchAccount, remains: AccountLeftovers, finding: Finding) -> Iterator[CapaProcess]:
    order = AwsOrder(
        address=account.address,
        region=account.region,
        finding=finding,
        clusters=list(remains.vpcs),
        scale=account.scale,
    )
    command = [sys.executable, "-m", "bench.peers.capa_peer", order.encode()]
    with running("capa", command, account.credentials) as program:
        yield CapaProcess(program, float(program.answer(_BEGINS_WITHIN)["began"]))


def calls_listing(there: int) -> int:
    """What its own code makes of a cluster with ten resources where there is no tagging API, while so many such
    clusters have things in the account: it asks for the tags of all balancers and target groups, whosever they are."""
    tags = sum(math.ceil(OF_A_CLUSTER[action] * there / TAGS_AT_ONCE) for action in _TAGGED)
    return sum(OF_A_CLUSTER.values()) + LISTS + tags


def check(finding: Finding) -> None:
    """Raises ContenderFailedError if it makes more or fewer calls than the real one where nothing is in the way."""
    with BenchAccount(clearing.OUTLASTED, finding=finding, buckets=False) as account:
        if finding == "tagging":
            _check(account, fill(account, _CHECKED), finding, _CHECKED * CALLS_OF_A_CLUSTER)
            return
        remains = fill(account, _CHECKED_LISTING)
        # One after the other: a balancer of another one that goes between list and tags would be in the way.
        for place, alone in enumerate(remains.by[:_CHECKED_ALONE]):
            _check(account, AccountLeftovers((alone,)), finding, calls_listing(_CHECKED_LISTING - place))


def _check(account: BenchAccount, remains: AccountLeftovers, finding: Finding, calls: int) -> None:
    before = account.calls
    with begin(account, remains, finding) as at_work:
        at_work.wait(_CHECKED_WITHIN)
    if not account.gone(remains.ids) or account.calls - before != calls:
        raise ContenderFailedError(
            f"capa made {account.calls - before} calls for {len(remains.by)} clusters ({finding}), and not {calls}"
        )


class Capa(CloudOnly):
    name = "capa"
    kind: Kind = "collector"
    lacks = "knows nothing but an AWS account"
    settings = (
        "its garbage collector written anew: sequential passes that the first error ends, five clusters at a time, "
        "again after 5 ms and twice as long each time, three attempts of each call as in the AWS SDK for Go; checked "
        f"where nothing is in the way: {CALLS_OF_A_CLUSTER} calls for each cluster, and without the tagging API "
        f"{sum(OF_A_CLUSTER.values())} deletions, {LISTS} lists, and one call for the tags of each {TAGS_AT_ONCE} "
        "balancers or target groups in the account; its waits are as much shorter as time is faster"
    )

    def version(self) -> str:
        return "the algorithm of 2.13.0"

    def clean(self, server: BenchServer, finding: Finding, clusters: int) -> Cleaned:
        del server
        check(finding)
        return clearing.clean(begin, finding, clusters)

    def outlast(self, server: BenchServer, drains: Drains) -> Outlasted:
        del server
        check("tagging")
        return clearing.outlast(begin, drains)
