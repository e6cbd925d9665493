"""The judge of claims of ACK's objects: what of a resource that was just read shows whose it is, and claims that were
forged."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from service.contract import Job, JobRecord, Refused
from service.sources.ack import ACK, CONTROLLER_TAG, NAMESPACE_TAG, AckService, AckSettings
from tests.ack import ACCOUNT, NAMESPACE, REGION, SOURCE, arn_of_bucket, claim, resource
from workers.collectors.ack.claim import AckClaim
from workers.collectors.ack.judge import AckJudge
from workers.handlers.protocol import NotCleared
from workers.providers.aws.claims import ClaimRegistry, JudgedClaim
from workers.providers.aws.model import AwsResource, CallScope

OWN = {NAMESPACE_TAG: NAMESPACE, CONTROLLER_TAG: "s3-v1.10.0"}
DELETION = "cluster/buckets.s3.services.k8s.aws/uid/1"


def judge(**settings: Any) -> AckJudge:
    return AckJudge(AckSettings(**settings))


def service(**settings: Any) -> dict[str, AckService]:
    return {"s3": AckService(**settings)}


def test_a_resource_with_acks_tags_for_the_object_is_its_own() -> None:
    assert judge().owns(claim(), resource()) is None


@pytest.mark.invariant(2)
@pytest.mark.parametrize(
    ("tags", "why"),
    [
        ({}, "has none of ACK's tags"),
        ({"app": "x"}, "has none of ACK's tags"),
        # Of an object in another namespace, and of another service's controller.
        (OWN | {NAMESPACE_TAG: "team-b"}, f"is not tagged {NAMESPACE_TAG}={NAMESPACE}, but {NAMESPACE_TAG}=team-b"),
        (OWN | {CONTROLLER_TAG: "s3control-v1.0.0"}, f"is not tagged {CONTROLLER_TAG}=s3-..."),
        (OWN | {CONTROLLER_TAG: "ours"}, f"but {CONTROLLER_TAG}=ours"),
        # One of the two is missing, or was overwritten by a tag of the object's spec.
        ({NAMESPACE_TAG: NAMESPACE}, f"but has no tag {CONTROLLER_TAG}"),
        ({CONTROLLER_TAG: "s3-v1"}, f"but has no tag {NAMESPACE_TAG}"),
        (OWN | {NAMESPACE_TAG: ""}, "is not tagged"),
    ],
)
def test_tags_that_are_missing_foreign_or_overwritten_are_refused(tags: dict[str, str], why: str) -> None:
    found = AwsResource(kind="aws.s3-bucket", id="logs", tags=tags)
    assert why in (judge().owns(claim(), found) or "")


def test_where_tags_are_off_only_what_the_service_accepts_counts() -> None:
    bare = AwsResource(kind="aws.s3-bucket", id="logs", tags={"app": "x"})
    assert "ack.services.s3.untagged: seen" in (judge().owns(claim(), bare) or "")
    assert judge(services=service(untagged="seen")).owns(claim(), bare) is None
    assert judge(services={"rds": AckService(untagged="seen")}).owns(claim(), bare) is not None
    # A tag of another object is one all the same.
    foreign = msgspec.structs.replace(bare, tags=OWN | {NAMESPACE_TAG: "team-b"})
    assert judge(services=service(untagged="seen")).owns(claim(), foreign) is not None


def test_tags_of_the_settings_replace_acks_own() -> None:
    tags = {"owner": "%K8S_NAMESPACE%/%K8S_RESOURCE_KIND%/%K8S_RESOURCE_NAME%"}
    own = judge(services=service(tags=tags))
    assert own.owns(claim(), resource(owner=f"{NAMESPACE}/Bucket/logs")) is None
    assert "owner=team-a/Bucket/other" in (own.owns(claim(), resource(owner=f"{NAMESPACE}/Bucket/other")) or "")
    assert "has none of ACK's tags" in (own.owns(claim(), resource()) or "")


def test_a_type_without_tags_is_held_unless_the_service_accepts_it() -> None:
    profile = claim(service="iam", kind="InstanceProfile", identifier="AWS::IAM::InstanceProfile/p")
    found = AwsResource(kind="aws.cloud-control", id="AWS::IAM::InstanceProfile/p", tags={})
    assert "can't be read with its tags" in (judge().owns(profile, found) or "")
    assert judge(services={"iam": AckService(untagged="seen")}).owns(profile, found) is None


def test_another_resource_is_never_the_claims() -> None:
    assert "other is not what Bucket.s3.services.k8s.aws team-a/logs names" in (
        judge().owns(claim(), resource("other")) or ""
    )
    assert "not in the table" in (judge().owns(claim(kind="Broom"), resource()) or "")


@pytest.mark.parametrize(("hours", "older"), [(0.5, False), (2, True)])
def test_a_resource_long_before_its_object_may_not_be_acks(hours: float, older: bool) -> None:
    made = datetime(2026, 5, 1, 10, tzinfo=UTC)
    mine = claim(made=int(made.timestamp() * 1000))
    found = msgspec.structs.replace(resource(), made=datetime.fromtimestamp(made.timestamp() - hours * 3600, UTC))
    assert bool(judge().older(mine, found)) is older
    assert judge(accept_older=True).older(mine, found) == ""
    assert judge().older(claim(), found) == ""


# ---- forged claims


def job(one: AckClaim, **record: Any) -> Job:
    made: dict[str, Any] = {
        "v": 1,
        "stage": 0,
        "lane": f"{one.place}/s3.DeleteBucket",
        "kind": one.removes,
        "target": one.identifier,
    }
    return Job(f"{DELETION}#1.0", 1, JobRecord(**(made | record)))


def test_a_job_with_the_claim_that_its_object_consented_to_is_wanted() -> None:
    ours = judge()
    ours.record(DELETION, claim(snapshot=True))
    ours.require_wanted(job(claim()), claim())
    assert ours.latest(DELETION, claim()).snapshot


@pytest.mark.invariant(8)
@pytest.mark.parametrize(
    "forged",
    [
        {"account": "999999999999"},
        {"scope": CallScope(source=SOURCE, namespace=NAMESPACE, region="us-east-1")},
        {"scope": CallScope(source=SOURCE, namespace="team-b", region=REGION)},
        {"scope": CallScope(source=SOURCE, namespace=NAMESPACE, region=REGION, identity="account/s3/1")},
        {"identifier": "other", "arn": arn_of_bucket("other")},
        {"name": "other"},
        {"kind": "Queue"},
        {"service": "iam"},
        {"made": 1},
        {"removes": "aws.iam-role"},
    ],
)
def test_a_forged_claim_is_not_carried_out(forged: dict[str, Any]) -> None:
    ours, other = judge(), claim(**forged)
    ours.record(DELETION, claim())
    with pytest.raises(NotCleared):
        ours.require_wanted(job(other), other)


@pytest.mark.invariant(8)
def test_a_job_about_another_resource_than_its_object_means_is_not_carried_out() -> None:
    ours = judge()
    ours.record(DELETION, claim())
    for record in ({"target": "other"}, {"kind": "aws.iam-role"}):
        with pytest.raises(NotCleared, match=r"means aws\.s3-bucket logs"):
            ours.require_wanted(job(claim(), **record), claim())
    with pytest.raises(NotCleared, match="no object consented"):
        judge().require_wanted(job(claim()), claim())


@pytest.mark.invariant(8)
def test_a_claim_of_another_place_or_collector_is_not_decoded() -> None:
    claims = ClaimRegistry(lambda source: ACK if source == SOURCE else "")
    claims.add(ACK, judge())
    data = msgspec.json.encode(claim()).decode()
    place = f"aws/{ACCOUNT}/{REGION}"
    assert isinstance(claims.decode(data, place), JudgedClaim)
    assert isinstance(claims.decode(data, "aws/999999999999/eu-west-1"), ValueError)
    assert isinstance(claims.decode(data.replace('"ack"', '"capa"'), place), Refused)
    assert isinstance(claims.decode(data.replace(f'"{SOURCE}"', '"elsewhere"'), place), Refused)
    claims.consented(ACK, DELETION, CallScope(source=SOURCE, namespace="team-b", region=REGION), ACCOUNT)
    with pytest.raises(NotCleared, match="the namespace of the object that consented is team-b"):
        claims.consent_fault(DELETION, claim())
