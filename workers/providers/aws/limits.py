"""Rate limits of AWS: the token buckets per account and region that each operation draws on, by the rows of `services`
and the declarations of the kinds. Names begin with the region, because a budget belongs to an account; settings
override them by name (`limits`). AWS does not report what is left and often grants more than it documents, so the rates
are learned."""

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Final

from msgspec.structs import replace

from service.contract import Draw, Limit
from workers.providers.aws.client.operations import operation_names
from workers.providers.aws.kinds.declaration import AwsKind
from workers.providers.aws.model import PROVIDER
from workers.providers.aws.services import FILE, Bucket, Undeclared, is_read, service_named, service_of

SPARE: Final = 1
"""Tokens left in reserve, because calls of different latency arrive closer together than they were sent."""

CALL_DELAY: Final = 0.75
"""Seconds from the draw of a lane to the arrival of its call, including the reads before it. A full bucket of AWS gains
nothing meanwhile while ours does, so what is refilled in that time must stay in reserve."""

GATHER_TIME: Final = timedelta(seconds=2)
"""How long tokens of an empty bucket for changes are gathered, so that many changes share the reads before them."""

MAX_CACHED: Final = 4096


class AwsLimits:
    """What calls and lanes draw on, given the kinds of a provider."""

    def __init__(self, kinds: Iterable[AwsKind] = ()) -> None:
        self._declared: dict[str, Bucket] = {}
        # By lane: the calls of one job when nothing blocks it, for the kind that makes the most.
        self._lanes: dict[str, Counter[str]] = {}
        self._calls: dict[tuple[str, str], tuple[Draw, ...]] = {}
        self._of_lanes: dict[str, tuple[Draw, ...]] = {}
        self.add(kinds)

    def add(self, kinds: Iterable[AwsKind]) -> None:
        """Raises Undeclared if an operation of a kind has no limit, or if its resources can't be tagged, and ValueError
        if another kind declares another limit for the same operation. Then nothing is added."""
        added, before = list(kinds), self._declared
        self._declared = dict(before)
        try:
            for kind in added:
                self._declare(kind)
            self._calls.clear()
            for kind in added:
                self._require_limits(kind)
        except (Undeclared, ValueError):
            self._declared = before
            raise
        finally:
            self._calls.clear()
            self._of_lanes.clear()
        for kind in added:
            for operation, counted in _calls_by_lane(kind).items():
                self._lanes[operation] = self._lanes.get(operation, Counter()) | counted

    def of(self, region: str, operation: str) -> tuple[Draw, ...]:
        """What one call draws on, the scarcest first: a refusal by AWS is attributed to it. `operation` is
        SERVICE.ACTION (ec2.DeleteSecurityGroup, elbv2.DeleteLoadBalancer, tag.GetResources). Raises Undeclared."""
        found = self._calls.get((region, operation))
        if found is None:
            if len(self._calls) >= MAX_CACHED:
                self._calls.clear()
            found = tuple(_draw(region, name, size) for name, size in self._buckets(operation))
            self._calls[region, operation] = found
        return found

    def of_lane(self, lane: str) -> tuple[Draw, ...] | None:
        """What one job in a lane of a kind draws on: the lane's call and the reads before it, whichever kind the job is
        of. None if no kind has such a lane."""
        found = self._of_lanes.get(lane)
        if found is None:
            parts = lane.split("/")
            if len(parts) != 4 or parts[0] != PROVIDER or parts[3] not in self._lanes:
                return None
            if len(self._of_lanes) >= MAX_CACHED:
                self._of_lanes.clear()
            found = self._of_lanes[lane] = self._lane_draws(parts[2], parts[3])
        return found

    def of_reads(self, lane: str, reads: Iterable[str] = (), *, together: float = 0.0) -> tuple[Draw, ...] | None:
        """What one job of a lane aws/ACCOUNT/REGION/OPERATION draws on that belongs to no kind: the lane's own call and
        each of `reads` once. A lane named for one of its reads makes no other call. `together` is how many jobs should
        share the reads when tokens are scarce. None if it is no AWS lane."""
        parts = lane.split("/")
        if len(parts) != 4 or parts[0] != PROVIDER:
            return None
        drawn = self._sum(parts[2], dict.fromkeys((parts[3], *reads)))
        return tuple(replace(draw, together=together) for draw in drawn)

    def _declare(self, kind: AwsKind) -> None:
        for operation, bucket in kind.limits.items():
            if (other := self._declared.setdefault(operation, bucket)) != bucket:
                raise ValueError(
                    f"kind {kind.name} declares the limit {bucket} for {operation}, and another kind declares {other}: "
                    f"AWS has one bucket for it, whichever kind is removed"
                )

    def _require_limits(self, kind: AwsKind) -> None:
        service_named(kind.service)
        tags = kind.tagging
        names = (tags.add, tags.remove) if tags is not None else ()
        tagging = (operation_names(kind.tag_service, name).limited for name in names)
        for operation in (*tagging, *kind.operations):
            if not self.of("", operation):
                raise Undeclared(
                    f"{operation} has no limit: declare limits of its service in {FILE}, or a bucket for it in "
                    f"`limits` of kind {kind.name}"
                )

    def _buckets(self, operation: str) -> Iterator[tuple[str, Bucket]]:
        service, action = service_of(operation)
        own = self._declared.get(operation) or service.buckets.get(operation)
        if service.unlimited and own is None:
            return
        reads = is_read(operation)
        usual = service.reads if reads else service.changes
        if own is None and usual is None and service.every is None:
            raise Undeclared(
                f"{operation} has no limit: declare {'reads' if reads else 'changes'} of {service.name} in {FILE}, or "
                f"a bucket for {action} in `limits` of its kind"
            )
        if own is not None or (usual is not None and not service.shared):
            yield operation, own or usual or (0, 0)
        elif usual is not None:
            yield service.operation("reads" if reads else "changes"), usual
        if service.every is not None:
            yield service.operation("all"), service.every

    def _lane_draws(self, region: str, operation: str) -> tuple[Draw, ...]:
        drawn = self._sum(region, self._lanes[operation].elements())
        calls = self.of(region, operation)
        if is_read(operation) or not calls:
            return drawn
        own = calls[0].limit
        together = max(1.0, round(own.capacity * (GATHER_TIME / own.per)))
        # On every limit: if another limit let jobs through one at a time, each would read for itself and draw more.
        return tuple(replace(draw, together=together) for draw in drawn)

    def _sum(self, region: str, operations: Iterable[str]) -> tuple[Draw, ...]:
        drawn: dict[str, Draw] = {}
        for one in operations:
            for draw in self.of(region, one):
                before = drawn.get(draw.limit.name)
                drawn[draw.limit.name] = draw if before is None else replace(draw, cost=draw.cost + before.cost)
        return tuple(drawn.values())


def place_of_account(account: str) -> str:
    """The budget that the limits are part of."""
    return f"{PROVIDER}/{account}"


def _calls_by_lane(kind: AwsKind) -> dict[str, Counter[str]]:
    lanes = {
        kind.delete_operation: Counter((kind.delete_operation, *kind.read_operations, *kind.lookup_operations)),
        kind.check_operation: Counter((kind.check_operation,)),
    }
    for operation, step in kind.steps.items():
        reads = (*kind.read_operations, *step.read_operations) if step.checks_ownership else step.read_operations
        lanes[operation] = lanes.get(operation, Counter()) | Counter((operation, *reads))
    return lanes


def _draw(region: str, name: str, size: Bucket) -> Draw:
    capacity, rate = size
    spare = min(capacity / 4, max(SPARE, rate * CALL_DELAY))
    return Draw(Limit.bucket(f"{region}/{name}", capacity, rate, spare=spare, learns=True))
