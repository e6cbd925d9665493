"""Claims on Azure resources, and the judges of the collectors that made them. A target's data is a claim: it says which
collector planned it and where the resource is. The collector's judge says in every attempt whether the resource is
claimed rightly; the provider itself knows no owner. A claim does not choose its judge: its collector must be that of
its source in the settings, and the one that consented to the deletion."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import msgspec

from service.contract import Job, Left, Refused
from service.contract.kept import KeepDecision
from workers.handlers.protocol import NotCleared
from workers.providers.azure.kinds.declaration import AzureKind
from workers.providers.azure.model import AzureResource, AzureScope

MOST: Final = 5_000
"""Most deletions whose consent is recorded, far more than have calls in flight. The oldest are dropped, and recorded
again before their next call."""


class AzureClaim(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A collector's claim on one target. It is stored in the target's data, so that an attempt needs no plan: a hint,
    which contains names, never a secret. `judged` is the provider's id of the resource if only that one may be deleted:
    it was checked before it was planned, and nothing beside it belongs to the claim."""

    collector: str
    source: str
    where: AzureScope
    judged: str = ""


class ConsentedObject(NamedTuple):
    """The object of a deletion that consent was given for, and the collector that was asked. `made` is when the object
    was created, in milliseconds; 0 if unknown."""

    collector: str
    source: str
    name: str
    made: int = 0


class HostStep(NamedTuple):
    """The resource that a target may be attached to, of its kind's `host`. If the claim is on that, too, the target's
    job deletes it first, after this delay; without one the target waits until it is gone."""

    name: str
    delay: timedelta | None = None


C = TypeVar("C", bound=AzureClaim)


class AzureJudge(Protocol[C]):
    """What a collector says about its claims. `setting` is the setting that names its resource groups, for messages;
    `scopes` are these groups. Where nothing may be deleted, NotCleared or a verdict says why."""

    @property
    def claim_type(self) -> type[C]: ...

    @property
    def setting(self) -> str: ...

    @property
    def scopes(self) -> Sequence[AzureScope]: ...

    def objection(self, claim: C, job: Job) -> str | None:
        """Why the job may not even read: the claim does not fit its target, or the settings do not name its group any
        more. Asked first in every attempt."""

    def owns(self, claim: C, found: AzureResource) -> Left | Refused | None:
        """Why the resource as just read is not to be deleted; None if it is the claim's. Asked in every attempt about
        the target, and about its host."""

    async def check_alive(self, claim: C, kind: AzureKind, job: Job) -> None:
        """Reads what shows that a resource of this kind with the target's name is in use, before it is read itself.
        Raises NotCleared."""

    def host_step(self, claim: C, kind: AzureKind, job: Job) -> HostStep | None:
        """The resource that the target may be attached to without saying so; asked if its kind has a host."""

    async def left_with(self, claim: C, job: Job, user: str) -> Left | None:
        """Verdict for a target that is used by `user`, an Azure id, if that stays on purpose and keeps it."""

    def mismatch(self, claim: C, job: Job, consented: ConsentedObject) -> str | None:
        """Why the job is not about the object that consent was given for. Asked right after consent."""

    def tagged_names(self, decision: KeepDecision) -> Sequence[str]:
        """Names of the resources that a decision to keep may have tagged without recording it."""


class NotJudged(Exception):
    """A claim of a collector that this process does not have, or that is not its source's."""


class _Registered(NamedTuple):
    collector: str
    judge: AzureJudge[Any]
    decode: Any


_any_claim: Final = msgspec.json.Decoder(AzureClaim)


class ClaimJudges:
    """The judges of this process by collector. `collector_of` returns the collector of a source in the settings, empty
    if there is no such source."""

    def __init__(self, collector_of: Callable[[str], str]) -> None:
        self._collector_of = collector_of
        self._known: dict[str, _Registered] = {}

    def register(self, collector: str, judge: AzureJudge[Any]) -> None:
        if collector in self._known:
            raise ValueError(f"collector {collector} has a judge already")
        self._known[collector] = _Registered(collector, judge, msgspec.json.Decoder(judge.claim_type).decode)

    @property
    def judges(self) -> list[AzureJudge[Any]]:
        return [one.judge for one in self._known.values()]

    def read(self, data: str) -> tuple[AzureClaim, AzureJudge[Any]]:
        """Decodes a claim, once where there is one collector, and finds its judge. Raises NotJudged and DecodeError."""
        claim, judge = self._read(data)
        configured = self._collector_of(claim.source)
        if not configured:
            raise NotJudged(
                f"its claim is of source {claim.source!r}, which the settings do not have, so nothing is touched; "
                f"declare it again, or give it up by `knell jobs abandon`"
            )
        if configured != claim.collector:
            raise NotJudged(
                f"it is claimed by collector {claim.collector!r}, but source {claim.source} has collector "
                f"{configured!r}, so nothing is touched: the job's record was mixed up or forged; `knell jobs abandon` "
                f"leaves it where it is"
            )
        return claim, judge

    def _read(self, data: str) -> tuple[AzureClaim, AzureJudge[Any]]:
        for known in self._known.values():
            try:
                claim: AzureClaim = known.decode(data)
            except msgspec.ValidationError:
                continue
            if claim.collector == known.collector:
                return claim, known.judge
        collector = _any_claim.decode(data).collector
        if (named := self._known.get(collector)) is not None:
            return named.decode(data), named.judge
        there = ", ".join(sorted(self._known)) or "none"
        raise NotJudged(
            f"it is claimed by collector {collector!r}, which this process does not have (there is: {there}), so "
            f"nothing is touched; run a worker with a source of that collector, or give it up by `knell jobs abandon`"
        )


class Consents:
    """The objects that consent was given for, by deletion. A job's record is only a hint: mixed up or forged, it could
    name resources of an object that was never checked, or another collector, whose judge knows less. So every collector
    records its consent here, and a call is made only for the claim of the collector that consented."""

    def __init__(self) -> None:
        self._known: dict[str, ConsentedObject] = {}

    def record(self, deletion: str, consented: ConsentedObject) -> None:
        self._known.pop(deletion, None)
        self._known[deletion] = consented
        if len(self._known) > MOST:
            del self._known[next(iter(self._known))]

    def check(self, job: Job, claim: AzureClaim, judge: AzureJudge[Any]) -> None:
        """To be called right after consent. Raises NotCleared unless the claim is about the object that consented."""
        given = self._known.get(job.deletion)
        if given is None:
            raise NotCleared("no consent was recorded for its deletion")
        if given.collector != claim.collector:
            fault: str | None = (
                f"{job.target} is claimed by collector {claim.collector!r}, and consent to its deletion was given to "
                f"collector {given.collector!r}: the job's record was mixed up or forged; `knell jobs abandon` leaves "
                f"it where it is"
            )
        else:
            fault = judge.mismatch(claim, job, given)
        if fault is not None:
            raise NotCleared(fault, refused=True, deletion=job.deletion)
