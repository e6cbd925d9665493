"""Whether anything of a cluster runs: asked before its plan, and again before anything is destroyed much later.
A deletion may be held for days, and meanwhile a cluster of that name may come up that nobody here watches: what carries
its tag then is no longer what was left."""

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Final, NamedTuple

from workers.handlers.aws.evidence import Evidence, no_machines
from workers.handlers.aws.model import Calls
from workers.handlers.aws.owners import Subject
from workers.handlers.places import Place

MOST: Final = 10_000
"""Clusters whose answers are kept; the oldest are forgotten first, and asked for again."""


class Trust(NamedTuple):
    """`kept` is how long an answer is used, `shared` how old the list of instances may be that it rests on."""

    kept: timedelta
    shared: timedelta


IN_VPC: Final = Trust(timedelta(seconds=90), timedelta(seconds=30))
"""Two minutes in all. A machine that was not there then has to start, to join or make a control plane, and to run a
controller there before anything can be made in its name, which takes longer; and what that makes is new to every plan
made before, so that only the last look can come upon it."""

NOWHERE: Final = Trust(timedelta(seconds=20), timedelta(seconds=10))
"""For what is in no VPC: a volume may be older than the machine that is about to use it."""


class _Key(NamedTuple):
    """What an answer is about: an object that means something else by now is asked for anew."""

    uid: str
    account: str
    region: str
    name: str
    cluster: str
    vpc: str
    apart: bool


class Gates:
    """Of one process. Nothing of it is written down: who starts anew asks anew."""

    def __init__(self, evidence: Evidence, clock: Callable[[], float] = time.monotonic) -> None:
        self._evidence, self._clock = evidence, clock
        self._passed: dict[_Key, float] = {}

    async def still_open(self, subject: Subject, place: Place, calls: Calls, *, apart: bool) -> None:
        """Raises Held where something runs, by answers that are recent enough, and what it raises who can't be asked.
        With `apart` everything that is looked for is in a VPC."""
        key, trust, now = _key(subject, calls.account, apart=apart), IN_VPC if apart else NOWHERE, self._clock()
        passed = self._passed.get(key)
        if passed is not None and now - passed < trust.kept.total_seconds():
            return
        await no_machines(subject, place)
        await self._evidence.nothing_runs(subject, calls, apart=apart, within=trust.shared)
        self._pass(key, now)

    def passed(self, subject: Subject, account: str, began: float, *, apart: bool) -> None:
        """A plan has asked all of it itself, from that moment on."""
        self._pass(_key(subject, account, apart=apart), began)

    def _pass(self, key: _Key, began: float) -> None:
        self._passed.pop(key, None)
        self._passed[key] = began
        if len(self._passed) > MOST:
            del self._passed[next(iter(self._passed))]


def _key(subject: Subject, account: str, *, apart: bool) -> _Key:
    return _Key(subject.uid, account, subject.region, subject.name, subject.cluster, subject.vpc, apart)
