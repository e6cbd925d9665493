"""Cluster API Provider AWS: what its garbage collector asks of an AWS account, by a program of ours.

Before it is measured it is checked against what its own code was seen to do where nothing was in the way.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from bench.account import Account
from bench.arena import Arena
from bench.contenders import clearing
from bench.contenders.account_only import AccountOnly
from bench.contenders.program import Program, running
from bench.contenders.protocol import Cleaned, ContenderFailedError, Drains, Kind, Outlasted
from bench.order import AwsOrder, Finding
from bench.remains import Remains, fill

CALLS_OF_A_CLUSTER: Final = 11
"""One list and ten deletions: what its own code makes of a cluster with ten resources."""
_CHECKED: Final = 3
_BEGINS_WITHIN: Final = 60.0
_CHECKED_WITHIN: Final = 60.0


class AtWork:
    def __init__(self, program: Program, began: float) -> None:
        self._program = program
        self.began = began

    def check(self) -> None:
        if not self._program.done:
            self._program.check()

    def over(self) -> bool:
        return self._program.done

    def wait(self, within: float) -> None:
        self._program.wait(within)


@contextmanager
def begin(account: Account, remains: Remains, finding: Finding) -> Iterator[AtWork]:
    order = AwsOrder(
        address=account.address,
        region=account.region,
        finding=finding,
        clusters=list(remains.vpcs),
        scale=account.scale,
    )
    command = [sys.executable, "-m", "bench.peers.capa_peer", order.encode()]
    with running("capa", command, account.credentials) as program:
        yield AtWork(program, float(program.answer(_BEGINS_WITHIN)["began"]))


def check() -> None:
    """Raises ContenderFailedError if it makes more or fewer calls than the real one."""
    with Account(clearing.OUTLASTED, buckets=False) as account:
        remains = fill(account, _CHECKED)
        with begin(account, remains, "tagging") as at_work:
            at_work.wait(_CHECKED_WITHIN)
        all_gone = account.gone(remains.ids)
    if account.calls != _CHECKED * CALLS_OF_A_CLUSTER or not all_gone:
        raise ContenderFailedError(
            f"capa made {account.calls} calls for {_CHECKED} clusters, and not {CALLS_OF_A_CLUSTER} for each"
        )


class Capa(AccountOnly):
    name = "capa"
    kind: Kind = "collector"
    settings = (
        "its garbage collector written anew: sequential passes that the first error ends, five clusters at a time, "
        "again after 5 ms and twice as long each time, three attempts of each call as in the AWS SDK for Go; checked: "
        "11 calls for each cluster where nothing is in the way; its waits are as much shorter as time is faster"
    )

    def version(self) -> str:
        return "the algorithm of 2.13.0"

    def clean(self, arena: Arena, finding: Finding, clusters: int) -> Cleaned:
        del arena
        if finding == "tagging":
            check()
        return clearing.clean(begin, finding, clusters)

    def outlast(self, arena: Arena, drains: Drains) -> Outlasted:
        del arena
        return clearing.outlast(begin, drains)
