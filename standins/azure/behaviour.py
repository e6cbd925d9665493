"""How the stand-in for Azure behaves, all of it changeable while it runs.
Durations are seconds of the stand-in's own clock, except where it is said that they are real ones."""

from typing import Literal

import msgspec

Trouble = Literal[
    "deny", "deny-assignment", "throttle", "locked", "error", "fails", "html", "close", "lost", "slow", "gate"
]


class Fault(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What happens to the requests it matches, `times` times or for good.

    `deny`, `deny-assignment` and `throttle` answer as Azure does; `locked` is the 429 that is no throttle: another
    operation holds the network's lock. `error` answers with `code`, `status` and `message`, and with a Retry-After of
    `seconds` if there are any; `fails` accepts a delete that ends with `code` and `message` and removes nothing.
    `html` is a proxy's page. `close` ends the connection before anything was done, `lost` after it was done. `slow`
    waits for `seconds` (real ones) and `gate` until it is opened; then both go on as if nothing was.
    """

    what: Trouble
    # As `nic.delete`, `vm.*` or `*`: nic, vm, disk and ip with get, put, update, delete and list; graph.query;
    # operation.get.
    operation: str = "*"
    subscription: str = ""
    # Must stand in the path or the body of the request, in whatever case.
    about: str = ""
    times: int | None = None
    code: str = ""
    message: str = ""
    status: int = 500
    seconds: float = 0.0


class Size(msgspec.Struct, frozen=True):
    """Of a token bucket: how much it holds, and how much comes to it in a second."""

    capacity: float
    refill: float


class Behaviour(msgspec.Struct, frozen=True, kw_only=True):
    """The defaults are Azure's own manners and limits."""

    # How long a delete takes.
    nic_goes: float = 3.5
    vm_goes: float = 10.0
    disk_goes: float = 3.5
    ip_goes: float = 3.5
    # Whether a refused delete has the reservation begin anew.
    refusal_renews: bool = False
    # Writes and deletes are limited, and reads, polls and queries.
    delete_quotas: bool = True
    read_quotas: bool = True
    # ARM's, per subscription, principal and region; all principals together have so many times that.
    arm_deletes: Size = Size(200, 10)
    arm_writes: Size = Size(200, 10)
    arm_reads: Size = Size(250, 25)
    arm_together: float = 15.0
    # The network's, per subscription and region.
    network_changes: Size = Size(1000, 1000 / 300)
    network_reads: Size = Size(10_000, 10_000 / 300)
    # Of compute: deletes of machines per subscription and region, and of each machine.
    vm_deletes: Size = Size(1500, 500 / 60)
    vm_deletes_each: Size = Size(12, 4 / 60)
    # Resource Graph's queries in a window, per principal.
    graph_queries: int = 15
    graph_window: float = 5.0
    # What ARM's 429 says to wait for, and the network's, which says nothing by default.
    arm_retry_after: float = 1.0
    network_retry_after: float | None = None
    # The largest pages of lists; Resource Graph's is a thousand.
    network_page: int = 100
    compute_page: int = 100
    # How much later Resource Graph shows what has come, changed and gone, and names that it never shows.
    graph_lag: float = 0.0
    graph_omits: tuple[str, ...] = ()
    # Names whose rows there have no guid.
    graph_without_guid: tuple[str, ...] = ()
    # Resource Graph spells ids now in one case, now in another.
    graph_cases: bool = True
    # Ids of resources and groups that may not be deleted, or names of resources; and those with something nested.
    locks: tuple[str, ...] = ()
    nested: tuple[str, ...] = ()
    faults: tuple[Fault, ...] = ()
