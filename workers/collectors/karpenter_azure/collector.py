"""Collector of the resources that a NodeClaim may have left on Azure: by name, in the groups of its source's settings.
It makes no Azure calls; whether a resource exists is read when it is removed."""

from collections.abc import Sequence
from typing import Final

import msgspec

from service.contract import Hold, Plan, Target, Undecodable
from service.contract.kept import KeepDecision
from service.sources.karpenter_azure import (
    KARPENTER_AZURE,
    NODE_CLASS_GROUP,
    AzureNodes,
    AzureSettings,
    NodeClaimFacts,
    read_node_claim,
    resource_name,
)
from workers.collectors.karpenter_azure.claim import STAGES, KarpenterClaim
from workers.collectors.karpenter_azure.kept_tagging import AzureKeptTagging, place_of
from workers.handlers.collector import ObjectFacts
from workers.handlers.kept_resources import KeepRequest, KeptRecords, NoKeptRecords, NotMarked
from workers.providers.azure.claims import ConsentedObject, Consents
from workers.providers.azure.kinds import NIC, VM, AzureKind
from workers.providers.azure.model import AzureScope

_MACHINE: Final = ("providers", "microsoft.compute", "virtualmachines")


class OrphanIds(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a sweep saw of an orphan: its group, and the provider's ids of its resources. A hint: the group must be one
    of the settings, and the ids can only restrict what is deleted."""

    subscription: str
    group: str
    vm: str = ""
    nic: str = ""
    # Several clusters may share a group.
    cluster: str = ""


class _NotOurs(Exception):
    """The NodeClaim has nothing on Azure, or nothing of ours."""


class _Elsewhere(Exception):
    """Its machine is in a group that the settings don't name."""


class KarpenterCollector:
    """`consents` records for the provider which NodeClaim consent was given for."""

    name = KARPENTER_AZURE
    metadata_only = False

    def __init__(
        self,
        settings: AzureSettings,
        consents: Consents | None = None,
        kept_records: KeptRecords | None = None,
        kept_tagging: AzureKeptTagging | None = None,
    ) -> None:
        self._settings, self._consents = settings, consents or Consents()
        self._kept_records, self._kept_tagging = kept_records or NoKeptRecords(), kept_tagging

    async def keep(self, keep: KeepRequest) -> Sequence[KeepDecision]:
        """Tags what is left of a NodeClaim whose resources are kept, in all groups that it may be in."""
        ref, places = keep.ref, self._settings.nodes.get(keep.ref.source, ())
        try:
            if ref.orphan:
                chosen: Sequence[AzureNodes] = [_sighted(ref.data, places)]
            else:
                chosen = _chosen(msgspec.json.decode(ref.data or "{}", type=NodeClaimFacts), ref.name, places)
        except _NotOurs:
            return ()
        except (_Elsewhere, msgspec.DecodeError) as error:
            raise NotMarked(str(error), again=False) from None
        return await self._kept_tagging.keep(keep, chosen) if self._kept_tagging is not None else ()

    async def collect(self, facts: ObjectFacts) -> Plan | Hold:
        source, claim = facts.ref.source, facts.ref.name
        if facts.namesake:
            return Plan([], f"another NodeClaim is named {claim} by now, and what has that name is its")
        try:
            chosen = self._places(facts)
        except _NotOurs as reason:
            return Plan([], str(reason))
        except (_Elsewhere, msgspec.DecodeError) as error:
            return Hold(str(error), again=True)
        if not chosen:
            return Hold(f"azure.nodes does not say where the nodes of source {source} are", again=True)
        if (held := await self._held(facts, chosen)) is not None:
            return held
        if facts.ref.orphan:
            return self._orphan(facts, chosen[0])
        made = _made(facts)
        return Plan([one for number, place in enumerate(chosen) for one in self._targets(facts, place, number, made)])

    async def _held(self, facts: ObjectFacts, places: Sequence[AzureNodes]) -> Hold | None:
        """Holds if an earlier NodeClaim of that name has kept resources, which have the same names."""
        for place in places:
            try:
                kept = await self._kept_records.decisions(place_of(place), facts.ref.name)
            except Undecodable as error:
                return Hold(str(error), again=True)
            if before := next((one for one in kept if one.uid != facts.ref.uid), None):
                return Hold(before.hold_reason, again=True)
        return None

    async def objections(self, facts: ObjectFacts) -> Hold | None:
        """Holds while an earlier NodeClaim of that name keeps resources: that may be decided after the plan. Otherwise
        it records which NodeClaim was checked, so that handlers delete nothing else."""
        try:
            chosen, made = self._places(facts), _made(facts)
        except (_NotOurs, _Elsewhere, msgspec.DecodeError) as error:
            return Hold(str(error))
        if (held := await self._held(facts, chosen)) is not None:
            return held
        consented = ConsentedObject(self.name, facts.ref.source, facts.ref.name, made)
        self._consents.record(facts.ref.deletion, consented)
        return None

    def _places(self, facts: ObjectFacts) -> Sequence[AzureNodes]:
        """The configured groups in which it may have resources; the one in which a sweep saw it, if it is an orphan.
        Raises _NotOurs, _Elsewhere and DecodeError."""
        places = self._settings.nodes.get(facts.ref.source, ())
        if facts.ref.orphan:
            return [_sighted(facts.recognises, places)]
        return _chosen(_kept(facts), facts.ref.name, places)

    def _orphan(self, facts: ObjectFacts, place: AzureNodes) -> Plan:
        seen = msgspec.json.decode(facts.recognises, type=OrphanIds)
        judged = {VM.name: seen.vm, NIC.name: seen.nic}
        # Without a machine only the interface was seen. That no machine uses it is read before it is deleted. The grace
        # period is over: it was orphaned for longer than that when it was found.
        kinds = tuple(STAGES) if seen.vm else (NIC,)
        return Plan([self._target(facts, place, kind, "main", judged.get(kind.name, "")) for kind in kinds])

    def _targets(self, facts: ObjectFacts, place: AzureNodes, number: int, made: int) -> list[Target]:
        chain = "main" if not number else f"main-{number + 1}"
        targets = [self._target(facts, place, kind, chain, made=made) for kind in STAGES]
        first = targets[0]
        return [msgspec.structs.replace(first, after=self._settings.grace), *targets[1:]]

    def _target(
        self, facts: ObjectFacts, place: AzureNodes, kind: AzureKind, chain: str, judged: str = "", made: int = 0
    ) -> Target:
        where = AzureScope.of(place)
        claim = KarpenterClaim(
            collector=self.name, where=where, source=facts.ref.source, claim=facts.ref.name, cluster=place.cluster,
            judged=judged, made=made,
        )  # fmt: skip
        # What a sweep has checked goes straight to the delete lane, where it is read again; the rest is read first.
        operation = kind.removing if judged else kind.reading
        return Target(
            kind=kind.name, id=resource_name(facts.ref.name), lane=where.lane(operation), chain=chain,
            stage=STAGES[kind], data=msgspec.json.encode(claim).decode(), seen=bool(judged),
        )  # fmt: skip


def _sighted(data: str, places: Sequence[AzureNodes]) -> AzureNodes:
    """The configured group in which a sweep saw an orphan."""
    seen = msgspec.json.decode(data, type=OrphanIds)
    here = (one for one in places if one.describes(seen.subscription, seen.group))
    place = next((one for one in here if seen.cluster in ("", one.cluster)), None)
    if place is None:
        of = f" of cluster {seen.cluster}" if seen.cluster else ""
        raise _Elsewhere(f"azure.nodes names no group {seen.group} in subscription {seen.subscription}{of}")
    return place


def _kept(facts: ObjectFacts) -> NodeClaimFacts:
    if facts.live is not None:
        # For `knell plan`: the NodeClaim still exists.
        return read_node_claim(facts.live.raw)
    return msgspec.json.decode(facts.recognises or "{}", type=NodeClaimFacts)


def _made(facts: ObjectFacts) -> int:
    """When the NodeClaim was created, in milliseconds; 0 for an orphan, of which only the resources are known. Raises
    DecodeError."""
    return 0 if facts.ref.orphan else _kept(facts).made


def _chosen(claim: NodeClaimFacts, name: str, places: Sequence[AzureNodes]) -> Sequence[AzureNodes]:
    """A NodeClaim that was launched names its machine, and so its group; another may have left resources in any
    group."""
    if claim.group and claim.group != NODE_CLASS_GROUP:
        raise _NotOurs(f"its node class is of {claim.group}, not of {NODE_CLASS_GROUP}")
    if not claim.provider_id:
        return places
    parts = claim.provider_id.lower().removeprefix("azure://").strip("/").split("/")
    # subscriptions/S/resourcegroups/G/providers/microsoft.compute/virtualmachines/N
    if len(parts) != 8 or tuple(parts[4:7]) != _MACHINE:
        raise _NotOurs(f"its provider id {claim.provider_id} is no virtual machine of Karpenter's")
    if parts[7] != resource_name(name).lower():
        raise _NotOurs(f"its machine is {parts[7]}, which is not named after it: a machine of AKS, which AKS removes")
    found = [place for place in places if place.describes(parts[1], parts[3])]
    if not found:
        raise _Elsewhere(
            f"its machine was in group {parts[3]} of subscription {parts[1]}, which azure.nodes does not name; add it, "
            f"or give this up by `knell held drop`"
        )
    return found
