"""Steps that measure a contender which collects orphaned interfaces on Azure: the harness makes them, its process finds
them.

The same for Knell and for its peer. The time runs from the first successful delete until the last interface is gone;
by then both have decided what to delete, each in its own way."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final

from bench.azure_subscription import RESERVED, Subscription, used
from bench.contenders.cloud_process import CloudProcess, until
from bench.contenders.protocol import Collected, ContenderFailedError, Orphans, Reservations
from standins.azure import AzureBehaviour

COLLECTED: Final = 5.0
"""How many times as fast the subscription's time runs, and with it the waits of whoever collects there."""

RESERVED_FOR: Final = 180.0
ONE_OF: Final = 20
"""One of so many interfaces is reserved for those seconds, from when a contender asks for the first of them."""

# In the subscription's time, but for the last.
_BEGUN_WITHIN: Final = 600.0
_COLLECTED_WITHIN: Final = 2400.0
_OVER_WITHIN: Final = 600.0
_LOOK_CLOSELY: Final = 0.05

Begin = Callable[[Subscription, int], AbstractContextManager[CloudProcess]]
"""At so many interfaces in a subscription."""


def behaviour_for(orphans: Orphans) -> AzureBehaviour:
    return AzureBehaviour(read_quotas=orphans.read_quotas, arm_retry_after=orphans.retry_after)


def collect(begin: Begin, orphans: Orphans, scale: float = COLLECTED) -> Collected:
    with Subscription(scale, behaviour_for(orphans)) as there:
        names = there.leave(orphans.interfaces)
        with begin(there, len(names)) as at_work:
            if not until(lambda: _begun(there), _BEGUN_WITHIN / scale, at_work, _LOOK_CLOSELY):
                raise ContenderFailedError(f"it had asked for no interface after {_BEGUN_WITHIN:g} s")
            there.reserve(names[::ONE_OF], RESERVED_FOR)
            _until_gone(there, names, at_work)
            if not until(at_work.over, _OVER_WITHIN / scale, at_work):
                raise ContenderFailedError(f"it was not over {_OVER_WITHIN:g} s after the last interface was gone")
        there.look()
    return Collected(
        interfaces=len(names),
        seconds=max(there.gone[name] for name in names) - there.deletes[0].at,
        used=used(there.deletes, there.behaviour.network_changes),
        deletes=len(there.deletes),
        throttled=sum(entry.status == 429 for entry in there.deletes),
        calls=there.calls,
        refused=there.refused,
    )


def outwait(begin: Begin, reservations: Reservations, scale: float) -> list[float]:
    with Subscription(scale, AzureBehaviour(nic_goes=0.0, refusal_renews=reservations.renews)) as there:
        there.declare()
        ends: dict[str, float] = {}
        with begin(there, reservations.interfaces) as at_work:
            for step in range(reservations.steps):
                time.sleep(reservations.within / reservations.steps / scale if step else 0.0)
                names = there.leave(reservations.interfaces // reservations.steps, reservations.seconds)
                ends |= dict.fromkeys(names, there.now() + reservations.seconds)
            _until_gone(there, list(ends), at_work)
    for entry in there.deletes:
        if entry.code == RESERVED and reservations.renews:
            ends[entry.name] = entry.at + reservations.seconds
    return [there.gone[name] - end for name, end in ends.items()]


def _begun(there: Subscription) -> bool:
    there.look()
    return there.begun


def _until_gone(there: Subscription, names: list[str], at_work: CloudProcess) -> None:
    if not until(lambda: there.all_gone(names), _COLLECTED_WITHIN / there.scale, at_work):
        left = [name for name in names if name not in there.gone]
        raise ContenderFailedError(f"{len(left)} interfaces were left after {_COLLECTED_WITHIN:g} s: {left[0]}, ...")
