"""Settings of the Azure stand-in, all of them changeable while it runs.
Durations are seconds of the stand-in's own clock, except where real seconds are named."""

from typing import Literal

import msgspec

AzureFaultKind = Literal[
    "deny", "deny-assignment", "throttle", "locked", "error", "fails", "html", "close", "lost", "slow", "gate"
]


class AzureFault(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What happens to the requests that it matches, `times` times or always.

    `deny`, `deny-assignment` and `throttle` respond as Azure does; `locked` is the 429 that is no throttle: another
    operation holds the lock of the network. `error` responds with `code`, `status` and `message`, and with a
    Retry-After of `seconds` if set; `fails` accepts a delete that later fails with `code` and `message`. `html`
    responds with a proxy's page. `close` closes the connection before the request took effect, `lost` after it did.
    `slow` waits for `seconds` (real ones) and `gate` until it is opened; then the request is handled as usual.
    """

    what: AzureFaultKind
    # As `nic.delete`, `vm.*` or `*`: nic, vm, disk and ip with get, put, update, delete and list; graph.query;
    # operation.get.
    operation: str = "*"
    subscription: str = ""
    # Text that the path or the body of the request contains, in any case.
    about: str = ""
    times: int | None = None
    code: str = ""
    message: str = ""
    status: int = 500
    seconds: float = 0.0


class BucketSize(msgspec.Struct, frozen=True):
    """Size of a token bucket: capacity and refill per second."""

    capacity: float
    refill: float


class AzureBehaviour(msgspec.Struct, frozen=True, kw_only=True):
    """The defaults are Azure's delays and limits."""

    # Duration of a delete.
    nic_goes: float = 3.5
    vm_goes: float = 10.0
    disk_goes: float = 3.5
    ip_goes: float = 3.5
    # Whether a refused delete restarts the reservation.
    refusal_renews: bool = False
    # Whether writes and deletes are limited; whether reads, polls and queries are.
    delete_quotas: bool = True
    read_quotas: bool = True
    # ARM's buckets, per subscription, principal and region; all principals together have `arm_together` times that.
    arm_deletes: BucketSize = BucketSize(200, 10)
    arm_writes: BucketSize = BucketSize(200, 10)
    arm_reads: BucketSize = BucketSize(250, 25)
    arm_together: float = 15.0
    # The network's buckets, per subscription and region.
    network_changes: BucketSize = BucketSize(1000, 1000 / 300)
    network_reads: BucketSize = BucketSize(10_000, 10_000 / 300)
    # Compute's buckets: VM deletes per subscription and region, and of one VM.
    vm_deletes: BucketSize = BucketSize(1500, 500 / 60)
    vm_deletes_each: BucketSize = BucketSize(12, 4 / 60)
    # Resource Graph's queries per window and principal.
    graph_queries: int = 15
    graph_window: float = 5.0
    # Retry-After of ARM's 429, and of the network's, which has none by default.
    arm_retry_after: float = 1.0
    network_retry_after: float | None = None
    # Maximum page size of lists; Resource Graph's is a thousand.
    network_page: int = 100
    compute_page: int = 100
    # Lag of Resource Graph behind ARM, and names of resources that it never lists.
    graph_lag: float = 0.0
    graph_omits: tuple[str, ...] = ()
    # Names of resources whose rows there have no guid.
    graph_without_guid: tuple[str, ...] = ()
    # Whether Resource Graph varies the case of ids.
    graph_cases: bool = True
    # Locked resources and resource groups, by id or resource name; and resources with nested ones.
    locks: tuple[str, ...] = ()
    nested: tuple[str, ...] = ()
    faults: tuple[AzureFault, ...] = ()
