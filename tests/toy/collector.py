"""Worker side of the source `toybox`: which DHCP options belong to a ToyBox, whether one that was just read still does,
and which have no ToyBox any more. They are recognised by a tag with the name of their ToyBox."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec

from service.contract import VERSION, Hold, Job, Plan, Target, Undecodable
from service.contract.checks import CheckResult
from service.contract.kept import RETAINED_TAG, KeepDecision, KeptResource
from service.settings import Settings
from service.sources.aws import AwsAccess
from tests.toy.declaration import FREEZE, OWNER_TAG, TOYBOX, ToyBoxSettings
from tests.toy.kind import DHCP_OPTIONS, LIST_OPTIONS
from workers.handlers.collector import ObjectFacts
from workers.handlers.components import Components, Context
from workers.handlers.kept_resources import KeepRequest, KeptRecords, NotMarked
from workers.handlers.orphans import (
    ListingFailed,
    OrphanCandidate,
    OrphanCandidates,
    OrphanPlace,
    Progress,
    SweepSchedule,
    SweepWords,
)
from workers.handlers.protocol import RECHECK_AFTER, NotCleared
from workers.handlers.source_clusters import SourceCluster, SourceClusters
from workers.providers.aws.claims import Kept, RecordConsent
from workers.providers.aws.components import aws_provider
from workers.providers.aws.errors import AwsError, NoAccess
from workers.providers.aws.model import PROVIDER, AwsClaim, AwsClient, AwsClients, AwsResource, CallScope
from workers.providers.aws.permissions import action_of, actions_of, policy_document
from workers.providers.aws.retained_tag_calls import write_retained_tag

MAX_DELETIONS: Final = 10_000
"""Deletions whose ToyBox is remembered; the oldest are dropped first."""


@asynccontextmanager
async def components(context: Context) -> AsyncIterator[Components]:
    settings, provider = context.settings.section(ToyBoxSettings), await context.provider(aws_provider)
    provider.add_kinds(DHCP_OPTIONS)
    account = context.settings.section(AwsAccess).account or ""
    judge, lister = ToyBoxJudge(), ToyBoxLister(settings.region, account, provider.clients)
    consented = provider.register(TOYBOX, judge)
    yield Components(
        collector=ToyBoxCollector(settings, lister, judge, context.source_clusters, context.kept_records, consented),
        orphans=ToyBoxOrphans(settings, lister),
        checks=lister.check,
    )


def aws_policy(_settings: Settings | None) -> dict[str, Any]:
    actions = list(actions_of(DHCP_OPTIONS))
    reads, changes = {one.action for one in actions if one.read}, {one.action for one in actions if not one.read}
    reads.add(action_of("sts.GetCallerIdentity"))
    return policy_document(reads, {TOYBOX: changes}, snapshots=False, marks_retained=True)


class ToyBoxClaim(AwsClaim, frozen=True, kw_only=True, omit_defaults=True, tag=TOYBOX):
    """`box` is the name of the ToyBox, as in the tag."""

    box: str


class ToyBoxJudge:
    """Implements the ClaimJudge of the AWS provider."""

    claim_type = ToyBoxClaim

    def __init__(self) -> None:
        # By deletion: the name of the ToyBox that was last checked for it.
        self._checked: dict[str, str] = {}

    def record(self, deletion: str, box: str) -> None:
        self._checked.pop(deletion, None)
        self._checked[deletion] = box
        if len(self._checked) > MAX_DELETIONS:
            del self._checked[next(iter(self._checked))]

    def owns(self, claim: ToyBoxClaim, found: AwsResource) -> str | None:
        box = found.tags.get(OWNER_TAG, "")
        return None if box == claim.box else f"{found.id} belongs to ToyBox {box or 'none'}, not to {claim.box}"

    def require_wanted(self, job: Job, claim: ToyBoxClaim) -> None:
        if (box := self._checked.get(job.deletion)) != claim.box:
            why = f"its claim is of ToyBox {claim.box}, and its deletion of {box or 'none'}"
            raise NotCleared(why, RECHECK_AFTER, refused=True, deletion=job.deletion)

    def latest(self, _deletion: str, claim: ToyBoxClaim) -> ToyBoxClaim:
        return claim

    def older(self, _claim: ToyBoxClaim, _found: AwsResource) -> str:
        """AWS does not say when DHCP options were created."""
        return ""

    def removes_too(self, claim: ToyBoxClaim, other: AwsResource) -> bool:
        return self.owns(claim, other) is None

    def removed_by(self, _claim: ToyBoxClaim, _other: AwsResource) -> str:
        return ""

    def kept(self, _claim: ToyBoxClaim, _other: AwsResource) -> Kept | None:
        return None

    def label(self, claim: ToyBoxClaim) -> str:
        return f"ToyBox {claim.box}"

    def snapshot_tags(self, claim: ToyBoxClaim) -> Mapping[str, str]:
        return {OWNER_TAG: claim.box}


def place_of(client: AwsClient) -> str:
    """The place under which decisions to keep something are stored. The settings may name no account."""
    return f"{PROVIDER}/{client.account}/{client.scope.region}"


class ToyBoxLister:
    """Lists the DHCP options of all ToyBoxes, in the account and region of the settings."""

    def __init__(self, region: str, account: str, clients: AwsClients) -> None:
        self.region, self._account, self._clients = region, account, clients

    @property
    def named_place(self) -> str:
        """The place by the settings, if no client can be opened; empty if they name no account."""
        return f"{PROVIDER}/{self._account}/{self.region}" if self._account else ""

    async def client(self, source: str, *, patient: bool = False) -> AwsClient:
        """Raises AwsError and NoAccess."""
        scope = CallScope(source=source, namespace="", region=self.region)
        return await self._clients.client(scope, account=self._account, paced=True, patient=patient)

    async def list(self, source: str, *, patient: bool = False) -> tuple[AwsClient, list[AwsResource]]:
        """With the client that it used. Raises AwsError and NoAccess."""
        client = await self.client(source, patient=patient)
        return client, [found async for found in LIST_OPTIONS(client, (OWNER_TAG,))]

    async def check(self) -> AsyncIterator[CheckResult]:
        """For `knell doctor`."""
        try:
            client, found = await self.list("")
        except (AwsError, NoAccess) as error:
            mend = f"allow {', '.join(sorted(DHCP_OPTIONS.operations))}, or correct aws.account"
            yield CheckResult(check="ToyBoxes", state="wrong", what=str(error), mend=mend)
            return
        what = f"account {client.account} has {len(found)} DHCP options of ToyBoxes"
        yield CheckResult(check="ToyBoxes", state="fine", what=what)


class ToyBoxCollector:
    """A name can be used again: what an earlier ToyBox of that name kept is tagged and recorded (`keep`), and holds a
    later one. `consented` tells the provider that there are no objections to a deletion."""

    name = TOYBOX
    metadata_only = True

    def __init__(
        self,
        settings: ToyBoxSettings,
        lister: ToyBoxLister,
        judge: ToyBoxJudge,
        clusters: SourceClusters,
        kept_records: KeptRecords,
        consented: RecordConsent,
    ) -> None:
        self._settings, self._lister, self._judge = settings, lister, judge
        self._clusters, self._kept_records, self._consented = clusters, kept_records, consented

    async def collect(self, facts: ObjectFacts) -> Plan | Hold:
        box, source = facts.ref.name, facts.ref.source
        if facts.namesake:
            return Plan([], f"another ToyBox is named {box} by now, and what has that name is its")
        try:
            client, found = await self._lister.list(source)
        except (AwsError, NoAccess) as error:
            return Hold(str(error), again=True)
        if (held := await self._kept_before(facts, client)) is not None:
            return held
        claim = ToyBoxClaim(scope=client.scope, account=client.account, box=box)
        owned = [one.id for one in found if self._judge.owns(claim, one) is None]
        if facts.ref.orphan:
            owned = [one for one in owned if one in facts.recognises.split()]
        data = msgspec.json.encode(claim).decode()
        lane = f"{claim.place}/{DHCP_OPTIONS.delete_operation}"
        return Plan([Target(kind=DHCP_OPTIONS.name, id=one, lane=lane, data=data) for one in owned])

    async def objections(self, facts: ObjectFacts) -> Hold | None:
        cluster, namespace = self._clusters.of(facts.ref.source), self._settings.namespace
        if cluster is None:
            return Hold(f"this process has no way to the cluster of source {facts.ref.source}")
        if await cluster.get("configmaps", namespace, FREEZE) is not None:
            return Hold(f"nothing is removed while there is a ConfigMap {namespace}/{FREEZE}")
        try:
            client = await self._lister.client(facts.ref.source)
        except (AwsError, NoAccess) as error:
            return Hold(str(error))
        if (held := await self._kept_before(facts, client)) is not None:
            return held
        self._judge.record(facts.ref.deletion, facts.ref.name)
        self._consented(facts.ref.deletion, client.scope, client.account)
        return None

    async def keep(self, keep: KeepRequest) -> Sequence[KeepDecision]:
        """Implements MarksKept."""
        if keep.namesake:
            return ()
        ref, decision = keep.ref, None
        if self._lister.named_place:
            decision = _decision(keep, self._lister.named_place)
        try:
            client = await self._lister.client(ref.source)
            decision = _decision(keep, place_of(client))
            _, found = await self._lister.list(ref.source)
            owned = [one for one in found if one.tags[OWNER_TAG] == ref.name]
            if not keep.whole:
                owned = [one for one in owned if keep.abandoned.covers(DHCP_OPTIONS.name, one.id)]
            kept = tuple(KeptResource(one.kind, one.id) for one in owned if RETAINED_TAG in one.tags)
            new = [(DHCP_OPTIONS, one.id) for one in owned if RETAINED_TAG not in one.tags]
            kept += tuple(await write_retained_tag(client, new, keep.mark))
        except (AwsError, NoAccess) as error:
            # Without an account there is no place to store it under.
            known = [] if decision is None else [decision]
            late = [msgspec.structs.replace(one, remark=f"not marked: {error}") for one in known]
            raise NotMarked(str(error), late) from None
        return [msgspec.structs.replace(decision, resources=kept)] if kept else []

    async def _kept_before(self, facts: ObjectFacts, client: AwsClient) -> Hold | None:
        """Holds if an earlier ToyBox of that name kept its DHCP options, which have the same tag."""
        try:
            kept = await self._kept_records.decisions(place_of(client), facts.ref.name)
        except Undecodable as error:
            return Hold(str(error), again=True)
        before = next((one for one in kept if one.uid != facts.ref.uid), None)
        return Hold(before.hold_reason, again=True) if before is not None else None


def _decision(keep: KeepRequest, place: str) -> KeepDecision:
    ref = keep.ref
    return KeepDecision(
        v=VERSION, place=place, name=ref.name, object=ref.label, uid=ref.uid, source=ref.source, why=ref.kept,
        at=keep.at,
    )  # fmt: skip


class ToyBoxOrphans:
    """An `OrphanFinder`. The ids of a candidate are those of its DHCP options, with spaces between."""

    words = SweepWords(
        owner="ToyBox",
        owners="ToyBoxes",
        owner_field="box",
        place="region",
        doubted="left",
        disable=f"set {TOYBOX}.sweep to false",
        methods={"describe": "describe calls"},
    )

    def __init__(self, settings: ToyBoxSettings, lister: ToyBoxLister) -> None:
        self._settings, self._lister = settings, lister
        # Unknown until a client was opened for a list.
        self._place = ""

    def schedule(self, _source: str) -> SweepSchedule:
        return SweepSchedule(enabled=self._settings.sweep, every=self._settings.every, age=self._settings.age)

    def places(self, _source: str) -> Sequence[OrphanPlace]:
        region = self._lister.region
        return [OrphanPlace(name=region, kept=self._place, title=region, fields={"region": region})]

    def methods(self, _source: str) -> Sequence[str]:
        return ("describe",)

    async def candidates(self, source: str, _method: str, progress: Progress) -> OrphanCandidates:
        candidates = OrphanCandidates()
        try:
            client, found = await self._lister.list(source, patient=True)
        except (AwsError, NoAccess) as error:
            raise ListingFailed(str(error)) from error
        self._place = place_of(client)
        for one in sorted(found, key=lambda one: one.id):
            box = one.tags[OWNER_TAG]
            candidates.put(box, 0, f"{candidates.ids(box, 0)} {one.id}".strip())
        candidates.listed = len(found)
        progress("DHCP options", len(found))
        return candidates

    async def is_absent(self, source: str, owner: str) -> bool:
        try:
            _, found = await self._lister.list(source, patient=True)
        except (AwsError, NoAccess):
            return False
        return all(one.tags[OWNER_TAG] != owner for one in found)

    def is_other(self, before: str, now: str) -> bool:
        return set(before.split()).isdisjoint(now.split())

    def has_more(self, published: str, now: str) -> bool:
        return not set(now.split()) <= set(published.split())

    def needs_proof(self, _ids: str) -> bool:
        """The tag names no cluster: an account of the settings has ToyBoxes of one cluster only."""
        return False

    async def proven_places(self, _source: str, _cluster: SourceCluster) -> set[int]:
        return set()

    def event_data(self, _source: str, one: OrphanCandidate) -> str:
        return one.ids

    def kind(self, _ids: str) -> str:
        return "DHCP options"

    def doubt(self, count: int) -> str:
        return f"{count} are in an unproven region"

    def unidentified(self, count: int, _method: str) -> str:
        return f"{count} have no id"
