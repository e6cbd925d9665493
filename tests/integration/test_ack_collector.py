"""The collector of ACK's objects: what it plans, and each reason for which it plans nothing. Objects and ACK's maps are
on an API server, accounts and roles in the stand-in for AWS."""

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from service.contract import VERSION, Hold, Plan
from service.contract.kept import KeepDecision
from service.kubernetes import KubeObject
from service.policy.decisions import DefaultPolicy
from service.sources.ack import ADOPTED, DEFAULT_REGION, OWNER_ACCOUNT, READ_ONLY, TEAM, AckScope
from standins.aws import LocalAws
from tests.ack import BUCKETS, QUEUES, arn_of_bucket, encoded, status
from tests.api_servers import TestApi
from tests.integration.ack_fixture import ROLE, AckFixture, ack_fixture
from tests.integration.aws_identities import OTHER, OWN, REGION, TENANT, own_credentials
from workers.handlers.collector import ObjectFacts
from workers.handlers.kept_resources import NotMarked
from workers.handlers.protocol import NotCleared
from workers.providers.aws.errors import NoAccess


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own_credentials(monkeypatch, tmp_path)


@pytest.fixture
async def ack(api: TestApi, local_aws: LocalAws, tmp_path: Path, credentials: None) -> AsyncIterator[AckFixture]:
    async with ack_fixture(api, local_aws, tmp_path) as made:
        yield made


def own(suffix: str = "logs", **said: Any) -> dict[str, Any]:
    return {"suffix": suffix, "account": OWN, **said}


async def test_an_object_plans_the_one_resource_that_it_was_seen_with(ack: AckFixture) -> None:
    facts = ack.facts(ack.bucket(**own()))
    target = await ack.target(facts)
    assert (target.kind, target.id, target.seen) == ("aws.s3-bucket", ack.name(), False)
    assert target.lane == f"aws/{OWN}/{REGION}/ec2.ReleaseAddress"
    # Time for ACK to do it itself.
    assert target.after == timedelta(minutes=2)
    claim = await ack.claim(facts)
    assert (claim.service, claim.kind, claim.arn, claim.snapshot) == ("s3", "Bucket", arn_of_bucket(ack.name()), False)
    assert (claim.scope, claim.made > 0) == (ack.scope(), True)
    assert (await ack.claim(msgspec.structs.replace(facts, snapshot=True))).snapshot


async def test_a_consent_is_for_this_claim_only(ack: AckFixture) -> None:
    facts, other = ack.facts(ack.bucket(**own())), ack.facts(ack.bucket(**own("other")))
    claim = await ack.claim(facts)
    assert await ack.collector.objections(facts) is None
    assert ack.claims.consent_fault(facts.ref.deletion, claim) is None
    assert ack.claims.consent_fault(other.ref.deletion, claim) is not None
    elsewhere = msgspec.structs.replace(claim, scope=ack.scope(region="us-east-1"))
    with pytest.raises(NotCleared, match="the region of the object that consented is"):
        ack.claims.consent_fault(facts.ref.deletion, elsewhere)


@pytest.mark.invariant(8)
async def test_without_a_record_of_the_synced_object_nothing_is_planned(ack: AckFixture) -> None:
    found = ack.bucket(**own())
    for live in (True, False):
        assert "never saw it synced" in await ack.held(ack.facts(found, live=live, recognises=""))


@pytest.mark.invariant(8)
async def test_a_status_that_was_edited_at_the_end_is_held(ack: AckFixture) -> None:
    found = ack.bucket(**own())
    recognised = ack.facts(found).recognises
    found["status"]["ackResourceMetadata"]["arn"] = arn_of_bucket("theirs")
    assert "names the arn arn:aws:s3:::theirs" in await ack.held(ack.facts(found, live=True, recognises=recognised))


@pytest.mark.parametrize("annotations", [{ADOPTED: "true"}, {READ_ONLY: "true"}])
async def test_an_object_whose_resource_is_not_acks_is_held(ack: AckFixture, annotations: dict[str, str]) -> None:
    assert "is not removed with it" in await ack.held(ack.facts(ack.bucket(**own()), annotations=annotations))


@pytest.mark.invariant(9)
async def test_what_another_live_object_names_too_is_held(ack: AckFixture, api: TestApi) -> None:
    """By its spec alone too: it may not be synced yet."""
    facts, elsewhere = ack.facts(ack.bucket(**own())), api.namespace()
    await ack.target(facts)
    twin: dict[str, Any] = {"ackResourceMetadata": {}, "conditions": []}

    ack.object(BUCKETS, "twin", {"name": ack.name()}, twin, elsewhere)
    assert f"buckets.s3.services.k8s.aws {elsewhere}/{ack.name('twin')} of cluster local" in await ack.held(facts)
    ack.kube.delete(BUCKETS.path(elsewhere, ack.name("twin")))
    await ack.target(facts)


def in_deletion(ack: AckFixture, found: dict[str, Any], **annotations: str) -> ObjectFacts:
    """Facts of an object that its finalizer keeps."""
    path = BUCKETS.path(ack.namespace, found["metadata"]["name"])
    ack.kube.patch(path, {"metadata": {"finalizers": ["knell.test/waits"], "annotations": annotations}})
    ack.kube.delete(path)
    going: Any = ack.kube.get(path)
    moment = datetime.fromisoformat(going["metadata"]["deletionTimestamp"])
    live = KubeObject(
        uid=going["metadata"]["uid"], name=going["metadata"]["name"], deleting=int(moment.timestamp() * 1000),
        raw=msgspec.Raw(encoded(going)),
    )  # fmt: skip
    facts = ack.facts(found, default_policy=DefaultPolicy("delete", "the controller says so"), annotations=annotations)
    return msgspec.structs.replace(facts, live=live)


@pytest.mark.invariant(9)
async def test_of_two_objects_that_are_deleted_with_the_same_resource_the_first_removes_it(ack: AckFixture) -> None:
    """In finalizer mode both stay until it is gone: they may not wait for each other."""
    one, two = [ack.bucket(suffix, named=ack.name(), account=OWN) for suffix in ("one", "two")]
    both = [in_deletion(ack, found) for found in (one, two)]
    first, second = sorted(both, key=lambda facts: (facts.live.deleting, facts.live.uid))  # type: ignore[union-attr]
    assert (await ack.target(first)).id == ack.name()
    held = await ack.collector.collect(second)
    assert isinstance(held, Hold)
    assert "was deleted before this one" in held.reason
    # It passes without a person.
    assert held.waits
    assert (await ack.target(msgspec.structs.replace(second, live=None))).id == ack.name()


@pytest.mark.invariant(9)
@pytest.mark.parametrize(
    "annotations",
    [
        {"services.k8s.aws/deletion-policy": "retain"},
        {"s3.services.k8s.aws/deletion-policy": "typo"},
        {"services.k8s.aws/prevent-delete": "true"},
        {"knell.dev/dry-run": "true"},
        {ADOPTED: "true"},
    ],
    ids=lambda one: next(iter(one)),
)
async def test_what_another_object_in_deletion_does_not_give_up_is_held(
    ack: AckFixture, annotations: dict[str, str]
) -> None:
    one, two = [ack.bucket(suffix, named=ack.name(), account=OWN) for suffix in ("one", "two")]
    in_deletion(ack, two, **annotations)
    facts = in_deletion(ack, one)
    assert "is not this one's alone" in await ack.held(facts)
    assert "is not this one's alone" in await ack.held(msgspec.structs.replace(facts, live=None))


@pytest.mark.invariant(9)
async def test_what_an_object_in_deletion_names_that_the_source_does_not_watch_is_held(ack: AckFixture) -> None:
    one, two = [ack.bucket(suffix, named=ack.name(), account=OWN) for suffix in ("one", "two")]
    in_deletion(ack, two)
    facts = in_deletion(ack, one)
    for narrow in ({"namespaces": ("elsewhere",)}, {"selector": "managed=yes"}):
        source = msgspec.structs.replace(facts.settings, **narrow)
        assert "is not this one's alone" in await ack.held(msgspec.structs.replace(facts, settings=source, live=None))


@pytest.mark.invariant(9)
async def test_the_same_name_in_another_account_or_region_is_another_resource(ack: AckFixture, api: TestApi) -> None:
    facts, elsewhere = ack.facts(ack.bucket(**own())), api.namespace()
    ack.bucket("twin", named=ack.name(), namespace=elsewhere, account=OTHER)
    ack.bucket("third", named=ack.name(), namespace=elsewhere, account=OWN, region="us-east-1")
    await ack.target(facts)


@pytest.mark.invariant(9)
async def test_what_an_earlier_object_kept_on_purpose_is_held(ack: AckFixture) -> None:
    facts = ack.facts(ack.bucket(**own()))
    place, name = f"aws/{OWN}/{REGION}", f"aws.s3-bucket:{ack.name()}"
    before = KeepDecision(
        v=VERSION, place=place, name=name, object="buckets.s3.services.k8s.aws a/b", uid="before", source="buckets",
        why="retain", at=1,
    )  # fmt: skip
    ack.kept.made.append(msgspec.structs.replace(before, uid=facts.ref.uid))
    await ack.target(facts)
    ack.kept.made.append(before)
    assert f"knell kept forget {place}/{name}" in await ack.held(facts)


@pytest.mark.invariant(8)
async def test_an_arn_of_another_type_is_held(ack: AckFixture) -> None:
    said = status(arn_of_bucket("x"), account=OWN, queueURL=f"https://sqs/{OWN}/x")
    facts = ack.facts(ack.object(QUEUES, "q", {"queueName": "x"}, said))
    assert "is an ARN of another type than AWS::SQS::Queue" in await ack.held(facts)


# ---- accounts and regions


@pytest.mark.invariant(11)
async def test_another_account_than_the_credentials_is_held(ack: AckFixture) -> None:
    found = await ack.held(ack.facts(ack.bucket(account=OTHER)))
    assert f"its status says account {OTHER}, and the credentials are of account {OWN}" in found


@pytest.mark.invariant(11)
async def test_a_region_that_the_namespace_does_not_default_to_is_held(ack: AckFixture) -> None:
    ack.annotate(**{DEFAULT_REGION: "us-east-1"})
    assert f"annotation {DEFAULT_REGION} of Namespace" in await ack.held(ack.facts(ack.bucket(**own())))


@pytest.mark.invariant(11)
async def test_a_namespace_that_the_settings_do_not_name_is_held(
    api: TestApi, local_aws: LocalAws, tmp_path: Path, credentials: None
) -> None:
    async with ack_fixture(api, local_aws, tmp_path, namespaces={"other-*": AckScope()}) as ack:
        assert "ack.namespaces does not name namespace" in await ack.held(ack.facts(ack.bucket(**own())))


async def test_the_role_of_another_account_is_that_of_acks_map(ack: AckFixture) -> None:
    ack.annotate(**{OWNER_ACCOUNT: TENANT})
    ack.map_accounts(**{TENANT: ROLE})
    facts = ack.facts(ack.bucket(account=TENANT))
    claim = await ack.claim(facts)
    assert (claim.account, claim.scope.identity) == (TENANT, f"account/s3/{TENANT}")
    assert await ack.collector.objections(facts) is None
    assert f"lead namespace {ack.namespace} to account {TENANT}" in await ack.held(ack.facts(ack.bucket(**own("b"))))


async def test_a_teams_role_and_a_selectors_are_found_as_well(ack: AckFixture) -> None:
    ack.annotate(**{TEAM: "red"})
    ack.map_teams(red=ROLE)
    facts = ack.facts(ack.bucket(account=TENANT))
    assert (await ack.claim(facts)).scope.identity == "team/red"


async def test_a_selector_excludes_the_maps(
    api: TestApi, local_aws: LocalAws, tmp_path: Path, credentials: None
) -> None:
    async with ack_fixture(api, local_aws, tmp_path) as ack:
        name = ack.name("selector")
        ack.annotate(**{TEAM: "red"})
        ack.select(name, namespaceSelector={"names": [ack.namespace]})
        try:
            facts = ack.facts(ack.bucket(account=TENANT))
            assert (await ack.claim(facts)).scope.identity == f"selector/{name}"
            with pytest.raises(NoAccess, match="does not select namespace elsewhere"):
                await ack.clients.client(ack.scope(f"selector/{name}", "elsewhere"))
        finally:
            ack.unselect(name)


@pytest.mark.invariant(11)
async def test_a_claim_cannot_choose_the_role_of_another_namespace(ack: AckFixture, api: TestApi) -> None:
    ack.map_accounts(**{TENANT: ROLE})
    ack.map_teams(red=ROLE)
    for identity in (f"account/s3/{TENANT}", "team/red"):
        with pytest.raises(NoAccess, match="may not be used from namespace"):
            await ack.clients.client(ack.scope(identity))
    for identity in ("selector/none", "account/s3", "other/x", f"account/s3/{OTHER}"):
        with pytest.raises(NoAccess):
            await ack.clients.client(ack.scope(identity))
    annotated = api.namespace(**{OWNER_ACCOUNT: TENANT, TEAM: "red"})
    for identity in (f"account/s3/{TENANT}", "team/red"):
        assert (await ack.clients.client(ack.scope(identity, annotated))).account == TENANT


async def test_a_namespace_that_is_gone_needs_the_settings_for_another_account(
    api: TestApi, local_aws: LocalAws, tmp_path: Path, credentials: None
) -> None:
    async with ack_fixture(api, local_aws, tmp_path, namespaces={"gone-a": AckScope(accounts=(TENANT,))}) as ack:
        ack.map_accounts(**{TENANT: ROLE})
        assert (await ack.clients.client(ack.scope(f"account/s3/{TENANT}", "gone-a"))).account == TENANT
        with pytest.raises(NoAccess, match="Namespace gone-b is gone"):
            await ack.clients.client(ack.scope(f"account/s3/{TENANT}", "gone-b"))


# ---- many, and kept ones


async def test_objects_that_are_deleted_at_once_share_the_lists(ack: AckFixture) -> None:
    facts = [ack.facts(ack.bucket(**own(f"b{number}"))) for number in range(12)]
    found = await asyncio.gather(*(ack.collector.collect(one) for one in facts))
    assert all(isinstance(one, Plan) for one in found)
    assert [isinstance(one, Hold) for one in found].count(True) == 0


async def test_what_is_kept_is_remembered_by_its_identifier_even_if_it_cannot_be_read(ack: AckFixture) -> None:
    facts = ack.facts(ack.bucket(account=OTHER))
    with pytest.raises(NotMarked) as late:
        await ack.collector.keep(ack.keep(facts))
    (decision,) = late.value.decisions
    assert (decision.place, decision.name) == (f"aws/{OTHER}/{REGION}", f"aws.s3-bucket:{ack.name()}")
    assert "not marked: its status says account" in decision.remark
    assert list(await ack.collector.keep(ack.keep(facts, whole=False))) == []
    with pytest.raises(NotMarked, match="never saw it synced"):
        await ack.collector.keep(ack.keep(msgspec.structs.replace(facts, recognises="")))
