"""Rate limits of Azure: the token buckets of ARM and of the resource providers, and the window of Resource Graph.
A call that ARM throttles costs nothing; one that the provider throttles has cost a token of ARM. Every response has the
headers that tell what is left."""

from collections.abc import Mapping

from standins.azure import errors
from standins.azure.behaviour import AzureBehaviour, BucketSize
from standins.azure.calls import ArmCall
from standins.azure.responses import ArmResponse, seconds
from standins.clock import Clock
from standins.token_bucket import TokenBucket

_ENOUGH = 1 - 1e-9


class AzureQuotas:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._buckets: dict[tuple[str, ...], TokenBucket] = {}
        self._windows: dict[str, tuple[float, int]] = {}

    def check(self, call: ArmCall, region: str, behaviour: AzureBehaviour) -> ArmResponse | None:
        """Takes the tokens of the call, or returns the 429."""
        if call.setup or not (behaviour.read_quotas if call.sort == "reads" else behaviour.delete_quotas):
            return None
        if call.provider == "graph":
            return self._query(call, behaviour)
        if not self._take(*self._arm(call, region, behaviour)):
            return errors.throttled_by_arm(call, self._clock, behaviour)
        if call.provider == "network" and not self._take(self._network(call, region, behaviour)):
            return errors.throttled_by_network(self._clock, behaviour)
        if call.operation == "vm.delete":
            everything, each = self._compute(call, region, behaviour)
            if not self._take(everything, each):
                short = everything if everything.left < _ENOUGH else each
                name = "DeleteVMSubscriptionMaximum" if short is everything else "DeleteVMMaximum"
                return errors.throttled_by_compute(self._clock, _wait(short), name)
        return None

    def headers(self, call: ArmCall, region: str, behaviour: AzureBehaviour) -> Mapping[str, str]:
        if call.provider == "graph":
            since, used = self._window(call.principal, behaviour)
            resets = float(seconds(self._clock, since + behaviour.graph_window - self._clock.now()))
            reset_time = f"{int(resets // 3600):02d}:{int(resets // 60) % 60:02d}:{resets % 60:06.3f}".removesuffix(
                ".000"
            )
            left = behaviour.graph_queries - used
            return {"x-ms-user-quota-remaining": str(left), "x-ms-user-quota-resets-after": reset_time}
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

    # ---- buckets of a call

    def _arm(self, call: ArmCall, region: str, behaviour: AzureBehaviour) -> tuple[TokenBucket, TokenBucket]:
        sizes = {"reads": behaviour.arm_reads, "writes": behaviour.arm_writes, "deletes": behaviour.arm_deletes}
        size, times = sizes[call.sort], behaviour.arm_together
        together = BucketSize(size.capacity * times, size.refill * times)
        subscription = call.subscription.lower()
        return (
            self._bucket(size, "arm", call.sort, subscription, region, call.principal),
            self._bucket(together, "arm together", call.sort, subscription, region),
        )

    def _network(self, call: ArmCall, region: str, behaviour: AzureBehaviour) -> TokenBucket:
        reads = call.sort == "reads"
        size = behaviour.network_reads if reads else behaviour.network_changes
        return self._bucket(size, "network", "reads" if reads else "changes", call.subscription.lower(), region)

    def _compute(self, call: ArmCall, region: str, behaviour: AzureBehaviour) -> tuple[TokenBucket, TokenBucket]:
        everything = self._bucket(behaviour.vm_deletes, "vm deletes", call.subscription.lower(), region)
        return everything, self._bucket(behaviour.vm_deletes_each, "deletes of one vm", call.key)

    def _bucket(self, size: BucketSize, *of: str) -> TokenBucket:
        # A changed size makes a new, full bucket.
        key = (str(size.capacity), str(size.refill), *of)
        now = self._clock.now()
        if (bucket := self._buckets.get(key)) is None:
            bucket = self._buckets[key] = TokenBucket(size.capacity, size.refill, size.capacity, now)
        bucket.refill(now)
        return bucket

    def _take(self, *wanted: TokenBucket) -> bool:
        """One token of each bucket, or none at all."""
        if any(bucket.left < _ENOUGH for bucket in wanted):
            return False
        for bucket in wanted:
            bucket.left -= 1
        return True

    # ---- Resource Graph: a fixed window

    def _window(self, principal: str, behaviour: AzureBehaviour) -> tuple[float, int]:
        now = self._clock.now()
        since, used = self._windows.get(principal, (now, 0))
        return (since, used) if now < since + behaviour.graph_window else (now, 0)

    def _query(self, call: ArmCall, behaviour: AzureBehaviour) -> ArmResponse | None:
        since, used = self._window(call.principal, behaviour)
        if used >= behaviour.graph_queries:
            return errors.throttled_by_graph(self._clock, since + behaviour.graph_window - self._clock.now())
        self._windows[call.principal] = (since, used + 1)
        return None


def _wait(bucket: TokenBucket) -> float:
    return (1 - bucket.left) / bucket.rate if bucket.rate else 1200.0
