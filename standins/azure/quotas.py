"""Azure's limits layer by layer: ARM's buckets, then the provider's own, and Resource Graph's window.
What ARM refuses costs nothing; what the provider refuses has cost a token of ARM's. Every answer says what is left."""

from collections.abc import Mapping

from standins.azure import throttles
from standins.azure.answers import Answer, seconds
from standins.azure.behaviour import Behaviour, Size
from standins.azure.calls import Call
from standins.bucket import Bucket
from standins.clock import Clock

_ENOUGH = 1 - 1e-9


class Quotas:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._buckets: dict[tuple[str, ...], Bucket] = {}
        self._windows: dict[str, tuple[float, int]] = {}

    def check(self, call: Call, region: str, behaviour: Behaviour) -> Answer | None:
        """Takes what the call costs, or says why it may not go on."""
        if call.setup or not (behaviour.read_quotas if call.sort == "reads" else behaviour.delete_quotas):
            return None
        if call.provider == "graph":
            return self._query(call, behaviour)
        if not self._take(*self._arm(call, region, behaviour)):
            return throttles.by_arm(call, self._clock, behaviour)
        if call.provider == "network" and not self._take(self._network(call, region, behaviour)):
            return throttles.by_network(self._clock, behaviour)
        if call.operation == "vm.delete":
            everything, each = self._compute(call, region, behaviour)
            if not self._take(everything, each):
                short = everything if everything.left < _ENOUGH else each
                name = "DeleteVMSubscriptionMaximum" if short is everything else "DeleteVMMaximum"
                return throttles.by_compute(self._clock, _wait(short), name)
        return None

    def headers(self, call: Call, region: str, behaviour: Behaviour) -> Mapping[str, str]:
        if call.provider == "graph":
            since, used = self._window(call.principal, behaviour)
            resets = float(seconds(self._clock, since + behaviour.graph_window - self._clock.now()))
            told = f"{int(resets // 3600):02d}:{int(resets // 60) % 60:02d}:{resets % 60:06.3f}".removesuffix(".000")
            left = behaviour.graph_queries - used
            return {"x-ms-user-quota-remaining": str(left), "x-ms-user-quota-resets-after": told}
        own, together = self._arm(call, region, behaviour)
        front = "x-ms-ratelimit-remaining-subscription"
        left_over = {
            f"{front}-{call.sort}": str(int(own.left + 1e-9)),
            f"{front}-global-{call.sort}": str(int(together.left + 1e-9)),
        }
        if call.operation == "vm.delete":
            everything, each = self._compute(call, region, behaviour)
            left_over["x-ms-ratelimit-remaining-resource"] = (
                f"Microsoft.Compute/DeleteVMSubscriptionMaximum;{int(everything.left + 1e-9)},"
                f"Microsoft.Compute/DeleteVMResource;{int(each.left + 1e-9)}"
            )
        return left_over

    # ---- who has which bucket

    def _arm(self, call: Call, region: str, behaviour: Behaviour) -> tuple[Bucket, Bucket]:
        sizes = {"reads": behaviour.arm_reads, "writes": behaviour.arm_writes, "deletes": behaviour.arm_deletes}
        size, times = sizes[call.sort], behaviour.arm_together
        together = Size(size.capacity * times, size.refill * times)
        subscription = call.subscription.lower()
        return (
            self._bucket(size, "arm", call.sort, subscription, region, call.principal),
            self._bucket(together, "arm together", call.sort, subscription, region),
        )

    def _network(self, call: Call, region: str, behaviour: Behaviour) -> Bucket:
        reads = call.sort == "reads"
        size = behaviour.network_reads if reads else behaviour.network_changes
        return self._bucket(size, "network", "reads" if reads else "changes", call.subscription.lower(), region)

    def _compute(self, call: Call, region: str, behaviour: Behaviour) -> tuple[Bucket, Bucket]:
        everything = self._bucket(behaviour.vm_deletes, "vm deletes", call.subscription.lower(), region)
        return everything, self._bucket(behaviour.vm_deletes_each, "deletes of one vm", call.key)

    def _bucket(self, size: Size, *of: str) -> Bucket:
        # A size that was changed on the way makes a new bucket, and a full one.
        key = (str(size.capacity), str(size.refill), *of)
        now = self._clock.now()
        if (bucket := self._buckets.get(key)) is None:
            bucket = self._buckets[key] = Bucket(size.capacity, size.refill, size.capacity, now)
        bucket.refill(now)
        return bucket

    def _take(self, *wanted: Bucket) -> bool:
        """A token of each, or none of any."""
        if any(bucket.left < _ENOUGH for bucket in wanted):
            return False
        for bucket in wanted:
            bucket.left -= 1
        return True

    # ---- Resource Graph counts in windows

    def _window(self, principal: str, behaviour: Behaviour) -> tuple[float, int]:
        now = self._clock.now()
        since, used = self._windows.get(principal, (now, 0))
        return (since, used) if now < since + behaviour.graph_window else (now, 0)

    def _query(self, call: Call, behaviour: Behaviour) -> Answer | None:
        since, used = self._window(call.principal, behaviour)
        if used >= behaviour.graph_queries:
            return throttles.by_graph(self._clock, since + behaviour.graph_window - self._clock.now())
        self._windows[call.principal] = (since, used + 1)
        return None


def _wait(bucket: Bucket) -> float:
    return (1 - bucket.left) / bucket.rate if bucket.rate else 1200.0
