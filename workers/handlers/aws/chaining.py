"""The targets of a plan, and what waits for what among them: groups for the balancers that use them, and for no others.
One balancer that can't be removed then keeps what it uses, and little else of the cluster."""

from collections.abc import Iterator

import msgspec

from service.contract import Target
from workers.handlers.aws.finding import Finds
from workers.handlers.aws.kinds.balancers import BALANCER
from workers.handlers.aws.kinds.classic import CLASSIC_BALANCER
from workers.handlers.aws.kinds.security_groups import SECURITY_GROUP
from workers.handlers.aws.kinds.target_groups import TARGET_GROUP
from workers.handlers.aws.model import Found, Kind, Owner


def targets_of(finds: Finds) -> Iterator[Target]:
    """Also what may not be read: its attempt is refused, and shows which permission is wanting."""
    uses = _Uses(finds)
    named: list[tuple[Kind, Owner, str, Found | None]] = [
        (claim.kind, claim.owner, claim.found.id, claim.found) for claim in finds.claims
    ]
    named += [(unread.kind, unread.owner, one, None) for unread in finds.unread for one in unread.ids]
    for kind, owner, one, found in named:
        chain, stage = uses.place_of(kind, one, found)
        yield Target(
            kind=kind.name, id=one, lane=f"{owner.place}/{kind.operation}", chain=chain, stage=stage,
            data=msgspec.json.encode(owner).decode(),
        )  # fmt: skip


class _Uses:
    """Which groups the balancers of a plan use."""

    def __init__(self, finds: Finds) -> None:
        self._balancers = {claim.found.id for claim in finds.claims if claim.kind is BALANCER}
        self._balancers.update(one for unread in finds.unread if unread.kind is BALANCER for one in unread.ids)
        self._of_balancers, self._of_classic = _groups(finds, BALANCER), _groups(finds, CLASSIC_BALANCER)

    def place_of(self, kind: Kind, one: str, found: Found | None) -> tuple[str, int]:
        """Chain and stage. What a balancer of the plan uses waits for it, and is not asked about in vain meanwhile;
        what nobody is known to use goes at once, and where somebody does all the same, its own turns find that out."""
        if kind is TARGET_GROUP and found is not None and self._balancers.isdisjoint(found.facts):
            return "targets", 0
        if kind is SECURITY_GROUP and one not in self._of_balancers:
            return (CLASSIC_BALANCER.chain, CLASSIC_BALANCER.stage + 1) if one in self._of_classic else ("groups", 0)
        return kind.chain, kind.stage


def _groups(finds: Finds, kind: Kind) -> set[str]:
    return {group for claim in finds.claims if claim.kind is kind for group in claim.found.groups}
