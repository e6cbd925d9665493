"""Latest state of objects in a worker: small, bounded, and how often a waiting job rechecks."""

import weakref
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from service.contract import Gone, Job, JobRecord, Pending
from service.contract.version import VERSION
from service.sources.capa import AWS_CLUSTERS, AwsSettings
from standins.aws.tags import by_cloud_provider
from tests.recording_batch import RecordingBatch
from workers.collectors.capa.capa_object import CapaObject
from workers.collectors.capa.claim import CapaClaim
from workers.collectors.capa.judge import CapaJudge
from workers.collectors.capa.latest_objects import RETRY_SOON, LatestObjects, ObjectState
from workers.handlers.protocol import NotCleared
from workers.providers.aws.claims import MAX_DELETIONS, Kept
from workers.providers.aws.model import AwsResource, CallScope
from workers.providers.aws.rechecks import RECHECK_INTERVAL, ConsentRechecks

WAITS = Pending(timedelta(seconds=5), "it is deleting")
MADE = 1_700_000_000_000
OWNER = CapaClaim(
    scope=CallScope(source="s", namespace="team", region="eu-west-1"), account="1" * 12, name="prod", vpc="vpc-1",
    made=MADE,
)  # fmt: skip


class Annotations(dict[str, str]):
    """A dict whose garbage collection can be observed."""


class RecheckDecisions:
    def __init__(self) -> None:
        self.now = 1000.0
        self.rechecks = ConsentRechecks(lambda: self.now)

    def asks(self, job: str, *, verdict: str = "check", ready: object = WAITS) -> bool:
        record = JobRecord(v=VERSION, stage=0, lane="aws/1/r/x", kind="aws.volume", target="vol-1", verdict=verdict)
        return self.rechecks.is_due(Job(job, 7, record), ready)


def job_of(deletion: str, kind: str = "aws.security-group") -> Job:
    record = JobRecord(v=VERSION, stage=0, lane="aws/1/r/x", kind=kind, target="sg-2")
    return Job(f"{deletion}#1.1", 7, record)


def state(annotations: dict[str, str], *, spared: tuple[str, ...] = ()) -> ObjectState:
    subject = CapaObject(
        resource=AWS_CLUSTERS, namespace="team", object="prod", uid="u", cluster="prod", cluster_uid="c", name="prod",
        region="eu-west-1", vpc="vpc-1", spared=spared, identity="", records=(), annotations=annotations,
        vpc_deleted=False, deletion_timestamp="2026-11-16T20:00:00Z", has_finalizer=True, made=MADE,
    )  # fmt: skip
    return ObjectState(subject=subject, source="s", account="1" * 12, tasks=("security-group",))


def test_annotations_are_not_kept() -> None:
    latest_objects, annotations = LatestObjects(), Annotations(large="x" * 100_000)
    seen = weakref.ref(annotations)
    latest_objects.record("one", state(annotations, spared=("sg-1",)))
    del annotations
    assert seen() is None
    assert latest_objects.updated("one", OWNER).spared == ("sg-1",)


def test_those_that_were_looked_at_longest_ago_are_forgotten_first() -> None:
    latest_objects = LatestObjects()
    terms = state({}, spared=("sg-1",))
    for number in range(MAX_DELETIONS):
        latest_objects.record(f"d{number}", terms)
    latest_objects.record("d0", terms)
    latest_objects.record("another", terms)
    spared = msgspec.structs.replace(OWNER, spared=("sg-1",))
    assert (
        latest_objects.updated("d0", OWNER)
        == latest_objects.updated("another", OWNER)
        == latest_objects.updated("d2", OWNER)
        == spared
    )
    assert latest_objects.updated("d1", OWNER) == OWNER


@pytest.mark.invariant(10)
def test_what_was_abandoned_is_not_removed_or_changed_for_the_sake_of_the_rest() -> None:
    latest_objects = LatestObjects()
    judge = CapaJudge(AwsSettings(), latest_objects)
    group = AwsResource(kind="aws.security-group", id="sg-2", tags=by_cloud_provider("prod"), vpc="vpc-1")
    balancer = AwsResource(kind="aws.balancer", id="arn:balancer", tags=by_cloud_provider("prod"), vpc="vpc-1")
    latest_objects.record("one", state({}, spared=("sg-1",)))
    claim = judge.latest("one", msgspec.structs.replace(OWNER, both=True))
    assert judge.removes_too(claim, group)
    abandoned = msgspec.structs.replace(state({}, spared=("sg-1",)), abandoned=(group.id, balancer.id))
    latest_objects.record("one", abandoned)
    claim = judge.latest("one", OWNER)
    assert set(claim.spared) == {"sg-1", group.id, balancer.id}
    assert judge.removes_too(claim, group) is False
    assert judge.kept(claim, balancer) == Kept("that was abandoned")


@pytest.mark.invariant(8)
@pytest.mark.parametrize(
    ("what", "forged"),
    [
        ("source", {"scope": msgspec.structs.replace(OWNER.scope, source="another")}),
        ("source", {"scope": msgspec.structs.replace(OWNER.scope, source="")}),
        ("namespace", {"scope": msgspec.structs.replace(OWNER.scope, namespace="others")}),
        ("region", {"scope": msgspec.structs.replace(OWNER.scope, region="us-east-1")}),
        ("identity", {"scope": msgspec.structs.replace(OWNER.scope, identity="AWSClusterRoleIdentity/other")}),
        ("account", {"account": "2" * 12}),
        ("name in tags", {"name": "other"}),
        ("VPC", {"vpc": "vpc-2"}),
        # Without a creation time, or with an early one, no resource would be too old.
        ("creation time", {"made": 0}),
        ("creation time", {"made": MADE - 7_200_000}),
    ],
)
async def test_a_claim_that_is_not_of_the_recorded_object_is_held(what: str, forged: dict[str, Any]) -> None:
    latest_objects, job = LatestObjects(), job_of("one")
    latest_objects.record("one", state({}))
    latest_objects.require_wanted(job, OWNER)
    assert await latest_objects.confirm(RecordingBatch("aws/1/r/x", [job]), job, OWNER) == (OWNER, ("security-group",))
    claim = msgspec.structs.replace(OWNER, **forged)
    with pytest.raises(NotCleared, match=f"the {what} of") as held:
        latest_objects.require_wanted(job, claim)
    assert (held.value.refused, held.value.deletion) == (True, "one")
    with pytest.raises(NotCleared, match=f"the {what} of"):
        await latest_objects.confirm(RecordingBatch("aws/1/r/x", [job]), job, claim)


@pytest.mark.invariant(8)
async def test_without_a_recorded_object_nothing_is_confirmed_and_consent_is_asked_for_again_soon() -> None:
    latest_objects, job = LatestObjects(), job_of("one")
    latest_objects.record("another", state({}))
    with pytest.raises(NotCleared, match="not recorded") as soon:
        latest_objects.require_wanted(job, OWNER)
    assert (soon.value.refused, soon.value.wait_ms) == (False, RETRY_SOON)
    with pytest.raises(NotCleared, match="not recorded"):
        await latest_objects.confirm(RecordingBatch("aws/1/r/x", [job]), job, OWNER)


def test_a_job_that_only_waits_rechecks_once_a_minute() -> None:
    hands = RecheckDecisions()
    asked = 0
    for _ in range(121):
        asked += hands.asks("one")
        hands.now += RECHECK_INTERVAL.total_seconds() / 12
    assert asked == 10


def test_a_job_that_is_finished_or_just_began_does_not_recheck() -> None:
    hands = RecheckDecisions()
    assert not hands.asks("one")
    hands.now += RECHECK_INTERVAL.total_seconds()
    assert not hands.asks("one", ready=Gone())
    assert not hands.asks("two")
    assert hands.asks("one")
    hands.now += RECHECK_INTERVAL.total_seconds()
    assert hands.asks("two")


def test_a_job_that_runs_seldom_rechecks_each_time() -> None:
    hands = RecheckDecisions()
    assert not hands.asks("one")
    for _ in range(3):
        hands.now += 10 * RECHECK_INTERVAL.total_seconds()
        assert hands.asks("one")
