"""Collector of objects of ACK: plans the removal of the one resource that an object means, if ACK has not removed it
itself by then. Nothing is planned that the inventory did not see, or that settings and ACK's maps do not allow."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final, NamedTuple

import msgspec

from service.contract import VERSION, Hold, Plan, Target, Undecodable
from service.contract.kept import RETAINED_TAG, KeepDecision, KeptResource
from service.kubernetes import ClusterError, KubeObject, NotFound
from service.policy.evaluation import PolicyInput, evaluate_policy
from service.policy.selectors import parse_selector
from service.settings import Settings, SourceSettings
from service.sources.ack import ACK, AckSettings
from workers.collectors.ack.claim import AckClaim
from workers.collectors.ack.judge import AckJudge
from workers.collectors.ack.scopes import AckScopes
from workers.collectors.ack.shared_identifiers import NamedResource, SharedIdentifiers, TooManyObjects
from workers.collectors.ack.subject import AckSubject, Unremovable, require_own, subject_of
from workers.handlers.collector import ObjectFacts
from workers.handlers.kept_resources import KeepRequest, KeptRecords, NotMarked
from workers.handlers.source_clusters import SourceCluster, SourceClusters
from workers.providers.aws.claims import RecordConsent
from workers.providers.aws.errors import AwsError, NoAccess
from workers.providers.aws.kinds.declaration import AwsKind
from workers.providers.aws.model import PROVIDER, AwsClient
from workers.providers.aws.retained_tag_calls import write_retained_tag

RETRY_SOON: Final = timedelta(seconds=30)
"""When a plan is tried again that a cluster or AWS did not answer for."""

KindNamed = Callable[[str], AwsKind | None]
"""A kind of the AWS provider by its name."""


class _Checked(NamedTuple):
    """An object that passed all checks: its claim, and the client of its account and region."""

    subject: AckSubject
    claim: AckClaim
    client: AwsClient
    kind: AwsKind


class AckCollector:
    """`judge` gets the claim of every deletion that nothing speaks against, and `consented` tells the provider of
    it."""

    name = ACK
    metadata_only = False

    def __init__(
        self,
        settings: Settings,
        places: SourceClusters,
        scopes: AckScopes,
        judge: AckJudge,
        kinds: KindNamed,
        kept_records: KeptRecords,
        consented: RecordConsent,
    ) -> None:
        self._settings, self._policy = settings.section(AckSettings), settings.policy
        self._places, self._scopes = places, scopes
        self._judge, self._kinds, self._kept_records, self._consented = judge, kinds, kept_records, consented
        self._shared = SharedIdentifiers(settings, places)

    async def collect(self, facts: ObjectFacts) -> Plan | Hold:
        try:
            checked = await self._checked(facts)
        except Unremovable as held:
            return Hold(str(held), again=True, after=held.after, waits=held.waits)
        except AwsError as error:
            waits = error.what == "throttled"
            return Hold(str(error), again=True, after=error.after or RETRY_SOON, waits=waits)
        except (NoAccess, ClusterError, TooManyObjects) as error:
            return Hold(
                f"{type(error).__name__}: {error}" if isinstance(error, ClusterError) else str(error), again=True
            )
        claim = checked.claim
        target = Target(
            kind=claim.removes, id=claim.identifier, lane=f"{claim.place}/{checked.kind.delete_operation}",
            data=msgspec.json.encode(claim).decode(), after=self._settings.grace, seen=False,
        )  # fmt: skip
        return Plan([target])

    async def objections(self, facts: ObjectFacts) -> Hold | None:
        """Everything is checked anew right before a destructive call. Raises if it can't be."""
        try:
            checked = await self._checked(facts)
        except Unremovable as held:
            return Hold(str(held), waits=held.waits)
        except NoAccess as error:
            return Hold(str(error))
        except AwsError as error:
            if error.what not in ("denied", "throttled"):
                raise
            return Hold(str(error), waits=error.what == "throttled")
        except TooManyObjects as error:
            return Hold(str(error))
        self._judge.record(facts.ref.deletion, checked.claim)
        self._consented(facts.ref.deletion, checked.claim.scope, checked.claim.account)
        return None

    async def aclose(self) -> None:
        await self._shared.aclose()

    # ---- checks

    async def _checked(self, facts: ObjectFacts) -> _Checked:
        """Raises Unremovable, NoAccess, AwsError, ClusterError and TooManyObjects."""
        place = self._place(facts.ref.source)
        require_own(facts.annotations)
        subject = subject_of(facts)
        kind = self._kind(subject)
        client = await self._scopes.client(subject, facts, place)
        identifier = subject.identifier
        for other in await self._shared.others(subject.resource, subject.uid, subject.seen, identifier):
            await self._require_going_too(other, facts, place, identifier)
        await self._nothing_kept(subject, client)
        return _Checked(subject, self._claim(subject, client, snapshot=facts.snapshot), client, kind)

    def _place(self, source: str) -> SourceCluster:
        place = self._places.of(source)
        if place is None:
            raise Unremovable(f"this process has no way to the cluster of source {source}")
        return place

    def _kind(self, subject: AckSubject) -> AwsKind:
        kind = self._kinds(subject.row.kind)
        if kind is None:
            raise Unremovable(f"this version has no kind {subject.row.kind}, by which {subject.identifier} is removed")
        return kind

    async def _require_going_too(
        self, other: NamedResource, facts: ObjectFacts, place: SourceCluster, identifier: str
    ) -> None:
        """What another object names as well is removed only if that one is being deleted with its resource, too: by the
        first of both, so that they do not wait for each other. Raises Unremovable."""
        going, live = other.going, facts.live
        if going is None or other.cluster != place.name or not await self._wants_deletion(going, facts, place):
            raise Unremovable(f"{other.label} names {identifier} as well, so that it is not this one's alone")
        if live is not None and (going.deleting, going.uid) < (live.deleting, live.uid):
            why = f"{other.label} names {identifier} as well, and was deleted before this one"
            raise Unremovable(why, after=RETRY_SOON, waits=True)

    async def _wants_deletion(self, going: KubeObject, facts: ObjectFacts, place: SourceCluster) -> bool:
        """Whether the resource of an object of the same source is to be deleted with it."""
        source = facts.settings
        if source.namespaces and going.namespace not in source.namespaces:
            return False
        if not parse_selector(source.selector).matches(going.labels):
            return False
        try:
            require_own(going.annotations)
        except Unremovable:
            return False
        known = PolicyInput(
            source=source, policy=self._policy, features=facts.features, labels=going.labels,
            annotations=going.annotations, namespace=await place.marks(going.namespace), default=facts.default_policy,
        )  # fmt: skip
        return evaluate_policy(known).kind == "delete"

    async def _nothing_kept(self, subject: AckSubject, client: AwsClient) -> None:
        """An earlier object named the same resource, which was kept on purpose."""
        try:
            kept = await self._kept_records.decisions(_place_of(client), subject.kept_name)
        except Undecodable as error:
            raise Unremovable(str(error)) from None
        if before := next((one for one in kept if one.uid != subject.uid), None):
            raise Unremovable(before.hold_reason)

    def _claim(self, subject: AckSubject, client: AwsClient, *, snapshot: bool = False) -> AckClaim:
        return AckClaim(
            scope=client.scope, account=client.account, service=subject.service, kind=subject.seen.kind,
            name=subject.name, removes=subject.row.kind, identifier=subject.identifier, arn=subject.seen.arn,
            made=subject.seen.made, snapshot=snapshot,
        )  # fmt: skip

    # ---- kept resources

    async def keep(self, keep: KeepRequest) -> Sequence[KeepDecision]:
        """Implements MarksKept. What the object names is tagged if it is its own; a decision is stored in any case, so
        that a later object of the same resource is held."""
        try:
            subject = subject_of(_facts_of(keep))
        except Unremovable as error:
            raise NotMarked(str(error), again=False) from None
        decision = _decision(keep, f"{PROVIDER}/{subject.seen.account}/{subject.seen.region}", subject)
        if not (keep.whole or keep.abandoned.covers(subject.row.kind, subject.identifier)):
            return ()
        try:
            return await self._keep(keep, subject, decision)
        except Unremovable as error:
            raise NotMarked(str(error), [_remarked(decision, str(error))], again=False) from None
        except (AwsError, NoAccess, ClusterError) as error:
            after = error.after if isinstance(error, AwsError) else None
            raise NotMarked(str(error), [_remarked(decision, str(error))], after=after) from None

    async def _keep(self, keep: KeepRequest, subject: AckSubject, decision: KeepDecision) -> Sequence[KeepDecision]:
        place = self._place(keep.ref.source)
        facts = _facts_of(keep, await self._namespace_annotations(place, subject.namespace))
        kind, client = self._kind(subject), await self._scopes.client(subject, facts, place)
        decision = msgspec.structs.replace(decision, identity=client.scope.identity)
        found = (await kind.read(client, [subject.identifier])).get(subject.identifier)
        if found is None or found.state in kind.absent_states:
            # Nothing is left of it.
            return ()
        if RETAINED_TAG in found.tags:
            return [msgspec.structs.replace(decision, resources=(KeptResource(kind.name, subject.identifier),))]
        if (why := self._judge.owns(self._claim(subject, client), found)) is not None:
            return [_remarked(decision, why)]
        if not self._settings.mark_retained:
            unmarked = KeptResource(kind.name, subject.identifier, "not tagged: ack.mark_retained is off")
            return [msgspec.structs.replace(decision, resources=(unmarked,))]
        marked = await write_retained_tag(client, [(kind, subject.identifier)], keep.mark)
        return [msgspec.structs.replace(decision, resources=tuple(marked))] if marked else ()

    async def _namespace_annotations(self, place: SourceCluster, namespace: str) -> dict[str, str]:
        """Empty if the Namespace is gone: then the settings alone allow an account."""
        try:
            return await place.marks(namespace)
        except NotFound:
            return {}


def _facts_of(keep: KeepRequest, namespace: dict[str, str] | None = None) -> ObjectFacts:
    """What is known of an object whose resource stays: what the inventory saw, and not what its status says now."""
    source = SourceSettings(resource=keep.ref.resource, collector=ACK)
    return ObjectFacts(
        ref=keep.ref, settings=source, labels=keep.live.labels if keep.live is not None else {}, annotations={},
        namespace_annotations=namespace or {}, recognises=keep.ref.data,
    )  # fmt: skip


def _decision(keep: KeepRequest, place: str, subject: AckSubject) -> KeepDecision:
    ref = keep.ref
    return KeepDecision(
        v=VERSION, place=place, name=subject.kept_name, object=ref.label, uid=ref.uid, source=ref.source, why=ref.kept,
        at=keep.at,
    )  # fmt: skip


def _remarked(decision: KeepDecision, why: str) -> KeepDecision:
    return msgspec.structs.replace(decision, remark=f"not marked: {why}")


def _place_of(client: AwsClient) -> str:
    return f"{PROVIDER}/{client.account}/{client.scope.region}"
