"""Says which resources a NodeClaim may have left on Azure: by name, in the groups that its source's settings name.
Where to look comes from settings, what to look for from the claim; what is there is read when it is removed."""

from collections.abc import Sequence
from typing import Final

import msgspec

from service.contract import Hold, Plan, Target, Undecodable
from service.contract.azure import KARPENTER_AZURE, NODE_CLASS_GROUP, Claim, claim_in, resource_name
from service.contract.kept import Decision
from service.settings import AzureNodes, AzureSettings
from workers.handlers.azure.consents import Consenting, Consents
from workers.handlers.azure.keeping import Keeping, place_of
from workers.handlers.azure.kinds import KINDS, NIC, VM, Kind
from workers.handlers.azure.model import Owner, Where
from workers.handlers.memory import Keep, Memory, NoMemory, NotMarked
from workers.handlers.objects import Facts

_MACHINE: Final = ("providers", "microsoft.compute", "virtualmachines")


class Sighted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a sweep saw of an orphan: where, and the provider's own ids of what it judged. A hint: the place must be one
    of the settings', and the ids only ever make less go."""

    subscription: str
    group: str
    vm: str = ""
    nic: str = ""
    # Several clusters may share a group.
    cluster: str = ""


class _NotOurs(Exception):
    """Nothing of it is on Azure, or not ours."""


class _Elsewhere(Exception):
    """Its machine is where the settings know nothing of."""


class KarpenterCollector:
    """`consents` keeps for the handlers whose removal was consented to."""

    name = KARPENTER_AZURE
    metadata_only = False

    def __init__(
        self,
        settings: AzureSettings,
        consents: Consents | None = None,
        memory: Memory | None = None,
        keeping: Keeping | None = None,
    ) -> None:
        self._settings, self._consents = settings, consents or Consents()
        self._memory, self._keeping = memory or NoMemory(), keeping

    async def keep(self, keep: Keep) -> Sequence[Decision]:
        """What is left of a claim of which nothing is to go, in the groups that it may be in."""
        about, places = keep.about, self._settings.nodes.get(keep.about.source, ())
        try:
            if about.orphan:
                chosen: Sequence[AzureNodes] = [_sighted(about.data, places)]
            else:
                chosen = _chosen(msgspec.json.decode(about.data or "{}", type=Claim), about.name, places)
        except _NotOurs:
            return ()
        except (_Elsewhere, msgspec.DecodeError) as error:
            raise NotMarked(str(error), again=False) from None
        return await self._keeping.keep(keep, chosen) if self._keeping is not None else ()

    async def collect(self, facts: Facts) -> Plan | Hold:
        source, claim = facts.about.source, facts.about.name
        places = self._settings.nodes.get(source, ())
        if facts.namesake:
            return Plan([], f"another NodeClaim is named {claim} by now, and what has that name is its")
        try:
            if facts.about.orphan:
                return await self._held(facts, [_sighted(facts.recognises, places)]) or self._orphan(facts, places)
            chosen = _chosen(_kept(facts), claim, places)
        except _NotOurs as reason:
            return Plan([], str(reason))
        except (_Elsewhere, msgspec.DecodeError) as error:
            return Hold(str(error), again=True)
        if not chosen:
            return Hold(f"azure.nodes does not say where the nodes of source {source} are", again=True)
        if (held := await self._held(facts, chosen)) is not None:
            return held
        made = _kept(facts).made
        return Plan([one for number, place in enumerate(chosen) for one in self._targets(facts, place, number, made)])

    async def _held(self, facts: Facts, places: Sequence[AzureNodes]) -> Hold | None:
        """What an earlier claim of that name kept on purpose has the same names."""
        for place in places:
            try:
                kept = await self._memory.decisions(place_of(place), facts.about.name)
            except Undecodable as error:
                return Hold(str(error), again=True)
            if before := next((one for one in kept if one.uid != facts.about.uid), None):
                return Hold(before.words, again=True)
        return None

    async def objects_to(self, facts: Facts) -> Hold | None:
        """It objects to nothing: handlers are told which claim was looked at, so that they remove nothing else."""
        self._consents.note(facts.about.deletion, Consenting(facts.about.source, facts.about.name))
        return None

    def _orphan(self, facts: Facts, places: Sequence[AzureNodes]) -> Plan | Hold:
        seen, place = msgspec.json.decode(facts.recognises, type=Sighted), _sighted(facts.recognises, places)
        judged = {VM.name: seen.vm, NIC.name: seen.nic}
        # An interface alone: that it has no machine is read before it goes, and more of it was not seen. The grace is
        # over, for it was orphaned for longer than that when it was found.
        kinds = KINDS if seen.vm else (NIC,)
        return Plan([self._target(facts, place, kind, "main", judged.get(kind.name, "")) for kind in kinds])

    def _targets(self, facts: Facts, place: AzureNodes, number: int, made: int) -> list[Target]:
        chain = "main" if not number else f"main-{number + 1}"
        targets = [self._target(facts, place, kind, chain, made=made) for kind in KINDS]
        first = targets[0]
        return [msgspec.structs.replace(first, after=self._settings.grace), *targets[1:]]

    def _target(
        self, facts: Facts, place: AzureNodes, kind: Kind, chain: str, judged: str = "", made: int = 0
    ) -> Target:
        where = Where.of(place)
        owner = Owner(
            where=where, source=facts.about.source, claim=facts.about.name, cluster=place.cluster,
            judged=judged, made=made,
        )  # fmt: skip
        # What was judged already goes straight to its removal, which reads it again; the rest is looked at first.
        operation = kind.removing if judged else kind.reading
        return Target(
            kind=kind.name, id=resource_name(facts.about.name), lane=where.lane(operation), chain=chain,
            stage=kind.stage, data=msgspec.json.encode(owner).decode(), seen=bool(judged),
        )  # fmt: skip


def _sighted(data: str, places: Sequence[AzureNodes]) -> AzureNodes:
    """The place of the settings in which a sweep saw an orphan."""
    seen = msgspec.json.decode(data, type=Sighted)
    here = (one for one in places if one.describes(seen.subscription, seen.group))
    place = next((one for one in here if seen.cluster in ("", one.cluster)), None)
    if place is None:
        of = f" of cluster {seen.cluster}" if seen.cluster else ""
        raise _Elsewhere(f"azure.nodes names no group {seen.group} in subscription {seen.subscription}{of}")
    return place


def _kept(facts: Facts) -> Claim:
    if facts.live is not None:
        # For a person who asks what would go: the claim still lives.
        return claim_in(facts.live.raw)
    return msgspec.json.decode(facts.recognises or "{}", type=Claim)


def _chosen(claim: Claim, name: str, places: Sequence[AzureNodes]) -> Sequence[AzureNodes]:
    """A claim that was launched names its machine, and so its place; another may have left something in any."""
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
