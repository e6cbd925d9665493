"""Seam between the AWS provider and the collectors whose resources it removes: what it asks a collector about a claim,
and the registry in which it finds the collector. Which collector judges a claim is checked twice: it must be the one of
the claim's source in the settings, and the one that consented to the deletion, for an object of the same source and
namespace, in the same account and region."""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import msgspec

from service.contract import Job, Refused
from workers.handlers.protocol import RECHECK_AFTER, NotCleared
from workers.providers.aws.model import AwsClaim, AwsResource, CallScope

C = TypeVar("C", bound=AwsClaim)

MAX_DELETIONS: Final = 10_000
"""Consents that are remembered, far more than have calls in flight; the oldest are dropped first, and asked for again
before the next call."""


class NoLongerWanted(Exception):
    """The resource exists, but its deletion is no longer wanted; the message says why."""


class Kept(NamedTuple):
    """A resource of the owner that is not removed with it: which one, after its kind, and what would remove it."""

    which: str
    remedy: str = ""


class ClaimJudge(Protocol[C]):
    """What the provider asks of a collector. `claim_type` is the struct of its claims, with its name as `tag`. Only
    `latest` and `require_wanted` go by what was last read of the owner; the others judge the claim that they get."""

    @property
    def claim_type(self) -> type[C]: ...

    def owns(self, claim: C, found: AwsResource) -> str | None:
        """Why a resource that was just read is not the claim's; None if it is. Asked in every attempt."""

    def older(self, claim: C, found: AwsResource) -> str:
        """Why it may belong to an earlier owner of the same name, by its age; empty if nothing indicates it."""

    def latest(self, deletion: str, claim: C) -> C:
        """The claim by the latest read of the owner, which may be a while ago: ask for consent first where it
        matters."""

    def require_wanted(self, job: Job, claim: C) -> None:
        """Called right after consent, with the claim as planned. Raises NoLongerWanted if the owner does not want the
        deletion any more, and NotCleared if it has changed so that it may mean other resources."""

    def removes_too(self, claim: C, other: AwsResource) -> bool | None:
        """Whether another resource, in the way of the claimed one, is its owner's and removed as well, so that it may
        be changed; None if it may be so by the latest read of the owner."""

    def removed_by(self, claim: C, other: AwsResource) -> str:
        """Who else removes another resource together with the owner; empty if that is not known."""

    def kept(self, claim: C, other: AwsResource) -> Kept | None:
        """Why another resource of the owner is not removed with it; None if it is."""

    def label(self, claim: C) -> str:
        """The owner, for descriptions of what is made for it."""

    def snapshot_tags(self, claim: C) -> Mapping[str, str]:
        """Tags of a snapshot that name the owner; it outlives the owner."""


class JudgedClaim(NamedTuple):
    """A claim, as planned, and the collector that judges it."""

    claim: AwsClaim
    judge: ClaimJudge[Any]


RecordConsent = Callable[[str, CallScope, str], None]
"""Records that a collector has no objections to a deletion: its id, and the scope and account of the object as it was
just read, or of the settings; never those of a claim."""


class _Consent(NamedTuple):
    """What is compared between a claim and the object that consented to its deletion; the judge compares the rest."""

    collector: str
    source: str
    namespace: str
    account: str
    region: str


def _consent_of(collector: str, scope: CallScope, account: str) -> _Consent:
    return _Consent(collector, scope.source, scope.namespace, account, scope.region)


class _ClaimHeader(msgspec.Struct, frozen=True):
    """Required: msgspec decodes a struct without its tag, too."""

    collector: str


_headers: Final = msgspec.json.Decoder(_ClaimHeader)


class ClaimRegistry:
    """The collectors of one process by name. `collector_of` returns the collector of a source in the settings, empty if
    there is no such source."""

    def __init__(self, collector_of: Callable[[str], str]) -> None:
        self._collector_of = collector_of
        self._judges: dict[str, ClaimJudge[Any]] = {}
        self._decoders: dict[str, msgspec.json.Decoder[AwsClaim]] = {}
        # By deletion: the last consent.
        self._consents: dict[str, _Consent] = {}

    def add(self, collector: str, judge: ClaimJudge[Any]) -> None:
        tag = judge.claim_type.__struct_config__.tag
        if tag != collector:
            raise ValueError(
                f"claims of collector {collector} have the tag {tag!r}: declare them with tag={collector!r}"
            )
        if collector in self._judges:
            raise ValueError(f"collector {collector} is registered already")
        self._judges[collector] = judge
        self._decoders[collector] = msgspec.json.Decoder(judge.claim_type)

    def decode(self, data: str | msgspec.Raw, place: str) -> JudgedClaim | Refused | Exception:
        """The claim in a target's data, if it is of that place and its collector may judge it. An error is a failed
        attempt."""
        try:
            named = _headers.decode(data).collector
            if named not in self._judges:
                return self._unknown(named)
            claim = self._decoders[named].decode(data)
        except msgspec.DecodeError as error:
            return error
        if claim.place != place:
            return ValueError(f"its owner is of {claim.place}, and the lane of {place}")
        configured = self._collector_of(claim.scope.source)
        if not configured:
            return Refused(
                f"its claim is of source {claim.scope.source!r}, which the settings do not have; declare it again, or "
                f"abandon the job (`knell jobs abandon`)"
            )
        if configured != claim.collector:
            return Refused(
                f"its claim is of collector {claim.collector}, but source {claim.scope.source} has collector "
                f"{configured}: a claim does not choose who judges it"
            )
        return JudgedClaim(claim, self._judges[claim.collector])

    def consented(self, collector: str, deletion: str, scope: CallScope, account: str) -> None:
        """Records that a collector had no objections to a deletion, and where its object's resources are."""
        self._consents.pop(deletion, None)
        self._consents[deletion] = _consent_of(collector, scope, account)
        if len(self._consents) > MAX_DELETIONS:
            del self._consents[next(iter(self._consents))]

    def consent_fault(self, deletion: str, claim: AwsClaim) -> Refused | None:
        """Why the consent that was just given does not count for the claim: no collector or another one gave it. Raises
        NotCleared if it is for an object elsewhere, which may be set back."""
        given, claimed = self._consents.get(deletion), _consent_of(claim.collector, claim.scope, claim.account)
        if given == claimed:
            return None
        if given is None or given.collector != claim.collector:
            who = "no collector with resources on AWS" if given is None else f"collector {given.collector}"
            return Refused(
                f"its claim is of collector {claim.collector}, but the object that consented is of {who}: nothing is "
                f"done on its account"
            )
        what = next(name for name in _Consent._fields if getattr(given, name) != getattr(claimed, name))
        raise NotCleared(
            f"the {what} of the object that consented is {getattr(given, what) or 'none'}, and that of the claim is "
            f"{getattr(claimed, what) or 'none'}: if the object was changed, set it back; `knell jobs abandon` leaves "
            f"this where it is",
            RECHECK_AFTER,
            refused=True,
            deletion=deletion,
        )

    def _unknown(self, named: str) -> Refused:
        known = ", ".join(sorted(self._judges)) or "none"
        return Refused(
            f"its claim is of collector {named!r}, which this process does not have (there is: {known}); declare a "
            f"source with it again, or abandon the job (`knell jobs abandon`)"
        )
