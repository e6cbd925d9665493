"""What a worker keeps of its looks at objects: little, not for ever, and how often it looks while it only waits."""

import weakref
from datetime import timedelta

import msgspec

from service.contract import Gone, Job, Pending, Record
from service.contract.aws import AWS_CLUSTERS
from service.contract.version import VERSION
from workers.handlers.aws.model import Owner, Whose
from workers.handlers.aws.owners import Subject
from workers.handlers.aws.wanting import CHECKS, MOST, Terms, Wanting

WAITS = Pending(timedelta(seconds=5), "it is deleting")
OWNER = Owner(whose=Whose(source="s", namespace="team", region="eu-west-1"), account="1" * 12, name="prod", vpc="vpc-1")


class Annotations(dict[str, str]):
    """A dict whose end can be seen."""


class Hands:
    def __init__(self) -> None:
        self.now = 1000.0
        self.wanting = Wanting(lambda: self.now)

    def asks(self, job: str, *, verdict: str = "check", ready: object = WAITS) -> bool:
        record = Record(v=VERSION, stage=0, lane="aws/1/r/x", kind="aws.volume", target="vol-1", verdict=verdict)
        return self.wanting.is_doubtful(Job(job, 7, record), ready)


def subject(annotations: dict[str, str], *, spared: tuple[str, ...] = ()) -> Subject:
    return Subject(
        resource=AWS_CLUSTERS, namespace="team", object="prod", uid="u", cluster="prod", cluster_uid="c", name="prod",
        region="eu-west-1", vpc="vpc-1", spared=spared, identity="", records=(), annotations=annotations,
        vpc_deleted=False, deleting="2026-11-16T20:00:00Z", marked=True,
    )  # fmt: skip


def test_annotations_are_not_kept() -> None:
    wanting, annotations = Wanting(), Annotations(large="x" * 100_000)
    seen = weakref.ref(annotations)
    wanting.note("one", Terms(subject(annotations, spared=("sg-1",)), ("security-group",)))
    del annotations
    assert seen() is None
    assert wanting.latest("one", OWNER).spared == ("sg-1",)


def test_those_that_were_looked_at_longest_ago_are_forgotten_first() -> None:
    wanting = Wanting()
    terms = Terms(subject({}, spared=("sg-1",)), ("security-group",))
    for number in range(MOST):
        wanting.note(f"d{number}", terms)
    wanting.note("d0", terms)
    wanting.note("another", terms)
    spared = msgspec.structs.replace(OWNER, spared=("sg-1",))
    assert wanting.latest("d0", OWNER) == wanting.latest("another", OWNER) == wanting.latest("d2", OWNER) == spared
    assert wanting.latest("d1", OWNER) == OWNER


def test_a_job_that_only_looks_asks_once_a_minute() -> None:
    hands = Hands()
    asked = 0
    for _ in range(121):
        asked += hands.asks("one")
        hands.now += CHECKS.total_seconds() / 12
    assert asked == 10


def test_one_that_has_come_to_its_end_or_just_began_asks_nothing() -> None:
    hands = Hands()
    assert not hands.asks("one")
    hands.now += CHECKS.total_seconds()
    assert not hands.asks("one", ready=Gone())
    assert not hands.asks("two")
    assert hands.asks("one")
    hands.now += CHECKS.total_seconds()
    assert hands.asks("two")


def test_one_that_is_looked_at_seldom_asks_each_time() -> None:
    hands = Hands()
    assert not hands.asks("one")
    for _ in range(3):
        hands.now += 10 * CHECKS.total_seconds()
        assert hands.asks("one")
