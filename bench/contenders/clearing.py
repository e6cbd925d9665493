"""Steps that measure a contender which clears an AWS account: the harness fills the account, its process empties it.

The same for Knell and for its peer; they differ in how a process learns that clusters were deleted."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final, Protocol

from bench.aws_account import BenchAccount
from bench.aws_leftovers import AccountLeftovers, entangle, fill, fill_draining
from bench.contenders.cloud_process import CloudProcess, until
from bench.contenders.protocol import Cleaned, ContenderFailedError, Drains, Outlasted
from bench.order import Finding

CLEANED: Final = 1.0
OUTLASTED: Final = 3.0
"""How many times as fast the account's time runs, and with it the waits of whoever clears it. What takes a process a
moment counts that many times, so the account that is cleaned, where seconds decide, has the time of everybody."""

# In the account's time.
_CLEAN_WITHIN: Final = 1200.0
_OVER_WITHIN: Final = 300.0
OUTLAST_WITHIN: Final = 900.0


class Clearing(CloudProcess, Protocol):
    began: float
    """Epoch seconds at which the first cluster was deleted."""


Begin = Callable[[BenchAccount, AccountLeftovers, Finding], AbstractContextManager[Clearing]]


def clean(begin: Begin, finding: Finding, clusters: int) -> Cleaned:
    with BenchAccount(CLEANED, finding=finding) as account:
        remains = fill(account, clusters)
        ids = remains.ids
        with begin(account, remains, finding) as clearing:
            if not until(lambda: account.gone(ids), _CLEAN_WITHIN / CLEANED, clearing):
                left = [one for one in ids if one not in account.removed]
                raise ContenderFailedError(f"{len(left)} resources were left after {_CLEAN_WITHIN:g} s: {left[0]}, ...")
            if not until(clearing.over, _OVER_WITHIN / CLEANED, clearing):
                raise ContenderFailedError(f"it was not over {_OVER_WITHIN:g} s after the last resource was gone")
            began = clearing.began
        account.look()
    last = max(account.removed[one].real for one in ids)
    return Cleaned(
        resources=len(ids), seconds=(last - began) * CLEANED, calls=account.calls, refused=account.refused
    )  # fmt: skip


def outlast(begin: Begin, drains: Drains) -> Outlasted:
    with BenchAccount(OUTLASTED) as account:
        draining = fill_draining(account, drains)
        knotted = entangle(account, drains.entangled)
        groups = draining.groups
        with begin(account, draining + knotted, "tagging") as clearing:
            until(lambda: account.gone(groups), OUTLAST_WITHIN / OUTLASTED, clearing)
            end = account.now()
    waiting = [group for group in groups if group not in account.drained]
    if waiting:
        raise ContenderFailedError(f"{len(waiting)} groups still had interfaces after {OUTLAST_WITHIN:g} s")
    gone = {group: entry.at for group, entry in account.removed.items()}
    return Outlasted(
        late=[gone.get(group, end) - account.drained[group] for group in groups],
        entangled=len(knotted.groups),
        untied=sum(group in gone for group in knotted.groups),
    )
