"""Claims: a claim does not choose who judges it. A collector that is not there refuses, and only the collector that
consented to a deletion may have anything removed for it, where its object is."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from service.contract import Job, Refused
from service.sources.capa import CAPA, AwsSettings
from workers.collectors.capa.claim import CapaClaim
from workers.collectors.capa.judge import CapaJudge
from workers.collectors.capa.latest_objects import LatestObjects
from workers.handlers.protocol import RECHECK_AFTER, NotCleared
from workers.providers.aws.claims import MAX_DELETIONS, ClaimRegistry, JudgedClaim, Kept
from workers.providers.aws.model import AwsClaim, AwsResource, CallScope

ACCOUNT, REGION = "111122223333", "eu-west-1"
PLACE = f"aws/{ACCOUNT}/{REGION}"
SOURCES = {"clusters": CAPA, "boxes": "careless"}


class CarelessClaim(AwsClaim, frozen=True, kw_only=True, omit_defaults=True, tag="careless"):
    """Of a collector that owns everything."""


class CarelessJudge:
    claim_type = CarelessClaim

    def owns(self, _claim: CarelessClaim, _found: AwsResource) -> str | None:
        return None

    def older(self, _claim: CarelessClaim, _found: AwsResource) -> str:
        return ""

    def latest(self, _deletion: str, claim: CarelessClaim) -> CarelessClaim:
        return claim

    def require_wanted(self, _job: Job, _claim: CarelessClaim) -> None:
        return

    def removes_too(self, _claim: CarelessClaim, _other: AwsResource) -> bool:
        return True

    def removed_by(self, _claim: CarelessClaim, _other: AwsResource) -> str:
        return ""

    def kept(self, _claim: CarelessClaim, _other: AwsResource) -> Kept | None:
        return None

    def label(self, _claim: CarelessClaim) -> str:
        return "a box"

    def snapshot_tags(self, _claim: CarelessClaim) -> Mapping[str, str]:
        return {}


def scope(source: str = "clusters") -> CallScope:
    return CallScope(source=source, namespace="team", region=REGION)


CLUSTER = CapaClaim(scope=scope(), account=ACCOUNT, name="prod", vpc="vpc-1")
BOX = CarelessClaim(scope=scope("boxes"), account=ACCOUNT)


@pytest.fixture
def claims() -> ClaimRegistry:
    made = ClaimRegistry(lambda source: SOURCES.get(source, ""))
    made.add(CAPA, CapaJudge(AwsSettings(), LatestObjects()))
    made.add("careless", CarelessJudge())
    return made


def data(claim: AwsClaim, **changed: Any) -> str:
    return msgspec.json.encode({**msgspec.to_builtins(claim), **changed}).decode()


def test_a_claim_is_decoded_by_the_collector_that_it_names(claims: ClaimRegistry) -> None:
    for claim, judge in ((CLUSTER, CapaJudge), (BOX, CarelessJudge)):
        found = claims.decode(data(claim), PLACE)
        assert isinstance(found, JudgedClaim)
        assert found.claim == claim
        assert isinstance(found.judge, judge)
    assert (CLUSTER.collector, BOX.collector) == (CAPA, "careless")


def test_a_claim_of_a_collector_that_is_not_there_is_refused_with_its_name(claims: ClaimRegistry) -> None:
    found = claims.decode(data(CLUSTER, collector="ack"), PLACE)
    assert isinstance(found, Refused)
    assert "collector 'ack', which this process does not have (there is: capa, careless)" in found.reason
    alone = ClaimRegistry(lambda _source: "").decode(data(CLUSTER), PLACE)
    assert isinstance(alone, Refused)
    assert "there is: none" in alone.reason


@pytest.mark.invariant(8)
@pytest.mark.parametrize(
    ("claim", "forged"), [(CLUSTER, {"collector": "careless"}), (BOX, {"collector": CAPA, "name": "prod"})]
)
def test_a_claim_that_names_another_collector_than_its_source_has_is_refused(
    claims: ClaimRegistry, claim: AwsClaim, forged: dict[str, str]
) -> None:
    found = claims.decode(data(claim, **forged), PLACE)
    assert isinstance(found, Refused)
    assert "a claim does not choose who judges it" in found.reason


@pytest.mark.invariant(8)
@pytest.mark.parametrize("source", ["", "gone"])
def test_a_claim_of_a_source_that_the_settings_do_not_have_is_refused(claims: ClaimRegistry, source: str) -> None:
    found = claims.decode(data(CLUSTER, whose=msgspec.to_builtins(scope(source))), PLACE)
    assert isinstance(found, Refused)
    assert f"source {source!r}, which the settings do not have" in found.reason


@pytest.mark.invariant(8)
def test_a_claim_without_a_collector_is_not_the_only_collector_s() -> None:
    alone = ClaimRegistry(lambda source: SOURCES.get(source, ""))
    alone.add(CAPA, CapaJudge(AwsSettings(), LatestObjects()))
    assert isinstance(alone.decode(data(CLUSTER), PLACE), JudgedClaim)
    unnamed = {key: value for key, value in msgspec.to_builtins(CLUSTER).items() if key != "collector"}
    assert isinstance(alone.decode(msgspec.json.encode(unnamed).decode(), PLACE), msgspec.DecodeError)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"collector": 1}', '{"collector": "capa"}', '"capa"'])
def test_a_claim_that_can_not_be_read_is_a_failed_attempt(claims: ClaimRegistry, text: str) -> None:
    assert isinstance(claims.decode(text, PLACE), msgspec.DecodeError)


def test_a_claim_of_another_place_than_its_lane_is_a_failed_attempt(claims: ClaimRegistry) -> None:
    found = claims.decode(data(CLUSTER, account="999900001111"), PLACE)
    assert isinstance(found, ValueError)
    assert "the lane of" in str(found)


@pytest.mark.invariant(8)
def test_consent_counts_only_for_claims_of_the_collector_that_gave_it(claims: ClaimRegistry) -> None:
    assert "no collector with resources on AWS" in str(claims.consent_fault("one", CLUSTER))
    claims.consented(CAPA, "one", CLUSTER.scope, CLUSTER.account)
    assert claims.consent_fault("one", CLUSTER) is None
    fault = claims.consent_fault("one", BOX)
    assert isinstance(fault, Refused)
    assert "claim is of collector careless, but the object that consented is of collector capa" in fault.reason
    assert claims.consent_fault("another", CLUSTER) is not None


@pytest.mark.invariant(8)
@pytest.mark.parametrize("claim", [CLUSTER, BOX], ids=lambda claim: claim.collector)
@pytest.mark.parametrize(
    ("what", "other"),
    [("source", "others"), ("namespace", "others"), ("region", "us-east-1"), ("account", "999900001111")],
)
def test_consent_counts_only_for_claims_of_the_same_source_namespace_account_and_region(
    claims: ClaimRegistry, claim: AwsClaim, what: str, other: str
) -> None:
    """Whatever the judge of the collector compares: this one compares nothing."""
    if what == "account":
        forged = msgspec.structs.replace(claim, account=other)
    else:
        forged = msgspec.structs.replace(claim, scope=msgspec.structs.replace(claim.scope, **{what: other}))
    claims.consented(claim.collector, "one", claim.scope, claim.account)
    assert claims.consent_fault("one", claim) is None
    with pytest.raises(NotCleared, match=f"the {what} of the object that consented is ") as held:
        claims.consent_fault("one", forged)
    assert f"that of the claim is {other}" in str(held.value)
    # An object that was changed may be set back: it is shown, and checked again soon.
    assert (held.value.refused, held.value.deletion, held.value.wait_ms) == (True, "one", RECHECK_AFTER)


def test_the_consents_that_are_remembered_are_bounded(claims: ClaimRegistry) -> None:
    for number in range(MAX_DELETIONS + 1):
        claims.consented(CAPA, f"d{number}", CLUSTER.scope, CLUSTER.account)
    assert claims.consent_fault("d0", CLUSTER) is not None
    assert claims.consent_fault("d1", CLUSTER) is None


def test_a_collector_is_registered_once_and_under_the_name_of_its_claims(claims: ClaimRegistry) -> None:
    with pytest.raises(ValueError, match="registered already"):
        claims.add("careless", CarelessJudge())
    with pytest.raises(ValueError, match="tag='other'"):
        claims.add("other", CarelessJudge())
