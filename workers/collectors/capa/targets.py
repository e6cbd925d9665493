"""Targets of a plan, ordered into chains and stages: groups wait for the load balancers that use them, and for no
others. A load balancer that can't be deleted then blocks what it uses, and little else of the cluster."""

from collections.abc import Iterator

import msgspec

from service.contract import FINALLY, Target
from workers.collectors.capa.claim import CapaClaim
from workers.collectors.capa.kinds import CAPA_KINDS
from workers.collectors.capa.resource_finder import FoundResources, OwnedResource
from workers.providers.aws.kinds.classic_load_balancers import CLASSIC_LOAD_BALANCER
from workers.providers.aws.kinds.declaration import AwsKind
from workers.providers.aws.kinds.elastic_ips import ELASTIC_IP
from workers.providers.aws.kinds.load_balancers import LOAD_BALANCER
from workers.providers.aws.kinds.nat_gateways import NAT_GATEWAY
from workers.providers.aws.kinds.security_groups import SECURITY_GROUP
from workers.providers.aws.kinds.target_groups import TARGET_GROUP
from workers.providers.aws.model import AwsResource


def targets_of(finds: FoundResources) -> Iterator[Target]:
    """Includes ids that can't be read: their attempt is refused and shows the missing permission."""
    uses = _BalancerGroups(finds)
    named: list[tuple[AwsKind, CapaClaim, str, AwsResource | None]] = [
        (item.kind, item.claim, item.resource.id, item.resource) for item in finds.owned
    ]
    named += [(unread.kind, unread.claim, one, None) for unread in finds.unreadable for one in unread.ids]
    for kind, claim, one, found in named:
        chain, stage = uses.place_of(kind, one, found)
        yield _target(kind, claim, one, found, chain, stage)


def late_targets_of(finds: FoundResources, spared: tuple[str, ...]) -> tuple[Target, ...]:
    """Targets of a check that nothing is left: all in the last chain, in the order in which they use each other.
    `spared` is stored with every one of them: groups that the object's spec names, and not what was abandoned, of which
    there may be very much."""
    uses, gateways = _BalancerGroups(finds), any(item.kind is NAT_GATEWAY for item in finds.owned)

    def late(item: OwnedResource) -> Target:
        one = item.resource.id
        _, stage = uses.place_of(item.kind, one, item.resource)
        if item.kind is ELASTIC_IP and not gateways:
            stage = 0
        claim = msgspec.structs.replace(item.claim, spared=spared)
        return _target(item.kind, claim, one, item.resource, FINALLY, stage)

    return tuple(map(late, finds.owned))


def _target(kind: AwsKind, claim: CapaClaim, one: str, found: AwsResource | None, chain: str, stage: int) -> Target:
    return Target(
        kind=kind.name, id=one, lane=f"{claim.place}/{kind.delete_operation}", chain=chain, stage=stage,
        data=msgspec.json.encode(claim).decode(), incarnation=kind.incarnation_of(found) if found is not None else "",
    )  # fmt: skip


class _BalancerGroups:
    """The groups that the load balancers of a plan use."""

    def __init__(self, finds: FoundResources) -> None:
        self._balancers = {item.resource.id for item in finds.owned if item.kind is LOAD_BALANCER}
        self._balancers.update(one for unread in finds.unreadable if unread.kind is LOAD_BALANCER for one in unread.ids)
        self._of_balancers, self._of_classic = _groups(finds, LOAD_BALANCER), _groups(finds, CLASSIC_LOAD_BALANCER)

    def place_of(self, kind: AwsKind, one: str, found: AwsResource | None) -> tuple[str, int]:
        """Chain and stage. What a load balancer of the plan uses waits for it; what none is known to use starts at
        once, and if it is in use all the same, its own attempts find out."""
        if kind is TARGET_GROUP and found is not None and self._balancers.isdisjoint(found.facts):
            return "targets", 0
        if kind is SECURITY_GROUP and one not in self._of_balancers:
            classic = CAPA_KINDS[CLASSIC_LOAD_BALANCER.name]
            return (classic.chain, classic.stage + 1) if one in self._of_classic else ("groups", 0)
        row = CAPA_KINDS[kind.name]
        return row.chain, row.stage


def _groups(finds: FoundResources, kind: AwsKind) -> set[str]:
    return {group for item in finds.owned if item.kind is kind for group in item.resource.groups}
