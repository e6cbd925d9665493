"""Check that nothing of a cluster runs, before its plan and again before later deletions, with recent results cached. A
deletion may be held for days; meanwhile an unwatched cluster of the same name may start, and own what carries the
tag."""

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Final, NamedTuple

from workers.collectors.capa.capa_object import CapaObject
from workers.collectors.capa.preconditions import AwsPreconditions, require_no_machines
from workers.handlers.source_clusters import SourceCluster
from workers.providers.aws.model import AwsClient

MAX_ENTRIES: Final = 10_000
"""Cached results; the oldest are dropped first, and checked again."""


class MaxAge(NamedTuple):
    """`kept` is how long a result is used, `shared` how old the list of instances behind it may be."""

    kept: timedelta
    shared: timedelta


IN_VPC: Final = MaxAge(timedelta(seconds=90), timedelta(seconds=30))
"""Two minutes in total. A new machine has to boot, join a control plane and run a controller before it can create
anything, which takes longer; and what it creates is in no earlier plan, so that only the final check can find it."""

OUTSIDE_VPC: Final = MaxAge(timedelta(seconds=20), timedelta(seconds=10))
"""For resources outside a VPC: a volume may be older than the machine that is about to use it."""


class _CheckKey(NamedTuple):
    """What a result is about: if the object changes, it is checked again."""

    uid: str
    account: str
    region: str
    name: str
    cluster: str
    vpc: str
    all_in_vpc: bool


class RunningCheck:
    """Cache of one process. Nothing is stored: a restarted process checks again."""

    def __init__(self, preconditions: AwsPreconditions, clock: Callable[[], float] = time.monotonic) -> None:
        self._preconditions, self._clock = preconditions, clock
        self._passed: dict[_CheckKey, float] = {}

    async def require_nothing_running(
        self, subject: CapaObject, place: SourceCluster, client: AwsClient, *, all_in_vpc: bool
    ) -> None:
        """Raises PreconditionFailed if something runs, by results that are recent enough, and whatever a failed read
        raises. With `all_in_vpc` all resources to delete are in a VPC."""
        key, trust, now = (
            _key(subject, client.account, all_in_vpc=all_in_vpc),
            IN_VPC if all_in_vpc else OUTSIDE_VPC,
            self._clock(),
        )
        passed = self._passed.get(key)
        if passed is not None and now - passed < trust.kept.total_seconds():
            return
        await require_no_machines(subject, place)
        await self._preconditions.require_nothing_running(subject, client, all_in_vpc=all_in_vpc, within=trust.shared)
        self._pass(key, now)

    def record_passed(self, subject: CapaObject, account: str, began: float, *, all_in_vpc: bool) -> None:
        """Records that a plan, begun at that time, has made the check."""
        self._pass(_key(subject, account, all_in_vpc=all_in_vpc), began)

    def _pass(self, key: _CheckKey, began: float) -> None:
        self._passed.pop(key, None)
        self._passed[key] = began
        if len(self._passed) > MAX_ENTRIES:
            del self._passed[next(iter(self._passed))]


def _key(subject: CapaObject, account: str, *, all_in_vpc: bool) -> _CheckKey:
    return _CheckKey(subject.uid, account, subject.region, subject.name, subject.cluster, subject.vpc, all_in_vpc)
