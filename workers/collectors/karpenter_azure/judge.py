"""Judge of the claims of this collector: whether a resource, as just read, belongs to the claim's NodeClaim and may be
deleted now. Which groups may be touched is read from the settings in every attempt, whatever was planned earlier."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final, Protocol

from service.contract import Job, Left, Refused
from service.contract.kept import KeepDecision
from service.sources.karpenter_azure import AzureNodes, AzureSettings, resource_name
from workers.collectors.karpenter_azure.abandoned import left_with_abandoned
from workers.collectors.karpenter_azure.claim import KarpenterClaim
from workers.collectors.karpenter_azure.node_protection import Protection
from workers.collectors.karpenter_azure.ownership import older, ownership_of
from workers.handlers.kept_resources import KeptRecords, NoKeptRecords
from workers.handlers.protocol import NotCleared
from workers.providers.azure.claims import ConsentedObject, HostStep
from workers.providers.azure.kinds import VM, AzureKind
from workers.providers.azure.model import AzureResource, AzureScope

PROTECTED_RECHECK: Final = 60_000
"""Milliseconds after which a machine that a Node protects is checked again."""


class ProtectionCheck(Protocol):
    async def protects(self, source: str, machine: str, node: str) -> Protection | None:
        """Why a machine must stay; None if no Node protects it."""


class KarpenterJudge:
    """Implements `AzureJudge`. `kept_records` has the abandoned jobs."""

    claim_type = KarpenterClaim
    setting = "azure.nodes"

    def __init__(
        self, settings: AzureSettings, nodes: ProtectionCheck, kept_records: KeptRecords | None = None
    ) -> None:
        self._settings, self._nodes, self._kept_records = settings, nodes, kept_records or NoKeptRecords()

    @property
    def scopes(self) -> Sequence[AzureScope]:
        return [AzureScope.of(one) for some in self._settings.nodes.values() for one in some]

    def objection(self, claim: KarpenterClaim, job: Job) -> str | None:
        return name_mismatch(job, claim.claim) or (_unnamed(claim) if self._group(claim) is None else None)

    def owns(self, claim: KarpenterClaim, found: AzureResource) -> Left | Refused | None:
        """By its tags, and by the time when it was created."""
        group = self._group(claim)
        if group is None:
            return Refused(_unnamed(claim))
        ownership = ownership_of(found.tags, group.cluster, group.tags)
        match ownership.kind:
            case "left":
                return Left(f"{found.name} is left alone: {ownership.reason}")
            case "kept" | "untagged":
                return Refused(f"{found.name}: {ownership.reason}")
            case "ours" if not self._settings.accept_older and (why := older(found, claim.made)):
                return Refused(f"{found.name}: {why}")
        return None

    async def check_alive(self, claim: KarpenterClaim, kind: AzureKind, job: Job) -> None:
        """A machine whose Node is Ready, or was until recently, is in use."""
        if kind is not VM:
            return
        name = job.target
        # Karpenter's Nodes have the name of their machine, in lower case.
        found = await self._nodes.protects(claim.source, claim.where.id(VM.type, name), name.lower())
        if found is not None:
            text = f"{name} stays: {found.why}"
            raise NotCleared(text, PROTECTED_RECHECK, refused=True, waits=found.waits, deletion=job.deletion)

    def host_step(self, claim: KarpenterClaim, kind: AzureKind, job: Job) -> HostStep | None:
        """The machine of the same name is the NodeClaim's, too. Where a sweep found the interface, it will find the
        machine, which gets a deletion of its own."""
        del kind
        return HostStep(job.target, None if claim.judged else self._settings.grace)

    async def left_with(self, claim: KarpenterClaim, job: Job, user: str) -> Left | None:
        return await left_with_abandoned(self._kept_records, job, claim.where, user)

    def mismatch(self, claim: KarpenterClaim, job: Job, consented: ConsentedObject) -> str | None:
        if (fault := name_mismatch(job, consented.name)) is not None:
            return fault
        if claim.source != consented.source:
            return f"it is of source {claim.source}, and its deletion of source {consented.source}"
        if claim.made != consented.made:
            # A claim without a creation time, or with an early one, would have no resource too old.
            return (
                f"its NodeClaim was created at {_time_of(claim.made)} by the job's record, and at "
                f"{_time_of(consented.made)} by what is known of it: the record was mixed up or forged; `knell jobs "
                f"abandon` leaves {job.target} where it is"
            )
        return None

    def tagged_names(self, decision: KeepDecision) -> Sequence[str]:
        """All resources of a NodeClaim have the same name."""
        return (resource_name(decision.name),)

    def _group(self, claim: KarpenterClaim) -> AzureNodes | None:
        """The group of a claim in the current settings."""
        places = self._settings.nodes.get(claim.source, ())
        here = (one for one in places if one.describes(claim.where.subscription, claim.where.group))
        return next((one for one in here if one.cluster == claim.cluster), None)


def _unnamed(claim: KarpenterClaim) -> str:
    return (
        f"azure.nodes does not name group {claim.where.group} of subscription {claim.where.subscription} for "
        f"cluster {claim.cluster} and source {claim.source} any more, so nothing there is touched; name it "
        f"again, or give it up by `knell jobs abandon`"
    )


def _time_of(made: int) -> str:
    return f"{datetime.fromtimestamp(made / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}" if made else "an unknown time"


def name_mismatch(job: Job, claim: str) -> str | None:
    """Why a job's target is not named after a NodeClaim; Azure compares names without case."""
    if job.target.lower() == resource_name(claim).lower():
        return None
    return (
        f"{job.target} is not named after NodeClaim {claim}, whose deletion this is, so it is not touched: the job's "
        f"record was mixed up or forged; `knell jobs abandon` leaves it where it is"
    )
