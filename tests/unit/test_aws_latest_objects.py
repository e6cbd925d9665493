"""Latest state of objects in a worker: small, bounded, and how often a waiting job rechecks."""

import weakref
from datetime import timedelta

import msgspec

from service.contract import Gone, Job, JobRecord, Pending
from service.contract.aws import AWS_CLUSTERS
from service.contract.version import VERSION
from workers.handlers.aws.capa.capa_object import CapaObject
from workers.handlers.aws.capa.latest_objects import MAX_DELETIONS, RECHECK_INTERVAL, LatestObjects, ObjectState
from workers.handlers.aws.model import CallScope, CapaCluster

WAITS = Pending(timedelta(seconds=5), "it is deleting")
OWNER = CapaCluster(
    scope=CallScope(source="s", namespace="team", region="eu-west-1"), account="1" * 12, name="prod", vpc="vpc-1"
)


class Annotations(dict[str, str]):
    """A dict whose garbage collection can be observed."""


class RecheckDecisions:
    def __init__(self) -> None:
        self.now = 1000.0
        self.latest_objects = LatestObjects(lambda: self.now)

    def asks(self, job: str, *, verdict: str = "check", ready: object = WAITS) -> bool:
        record = JobRecord(v=VERSION, stage=0, lane="aws/1/r/x", kind="aws.volume", target="vol-1", verdict=verdict)
        return self.latest_objects.should_recheck(Job(job, 7, record), ready)


def subject(annotations: dict[str, str], *, spared: tuple[str, ...] = ()) -> CapaObject:
    return CapaObject(
        resource=AWS_CLUSTERS, namespace="team", object="prod", uid="u", cluster="prod", cluster_uid="c", name="prod",
        region="eu-west-1", vpc="vpc-1", spared=spared, identity="", records=(), annotations=annotations,
        vpc_deleted=False, deletion_timestamp="2026-11-16T20:00:00Z", has_finalizer=True,
    )  # fmt: skip


def test_annotations_are_not_kept() -> None:
    latest_objects, annotations = LatestObjects(), Annotations(large="x" * 100_000)
    seen = weakref.ref(annotations)
    latest_objects.record("one", ObjectState(subject(annotations, spared=("sg-1",)), ("security-group",)))
    del annotations
    assert seen() is None
    assert latest_objects.updated("one", OWNER).spared == ("sg-1",)


def test_those_that_were_looked_at_longest_ago_are_forgotten_first() -> None:
    latest_objects = LatestObjects()
    terms = ObjectState(subject({}, spared=("sg-1",)), ("security-group",))
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
