"""What came of it, told by those who do not speak for Knell: the provider's log and the API server.
The judgement names everything that is left and should be gone, and everything that is gone and should be left."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

import msgspec

from service.engine.views.deletions import DeletionView
from service.kubernetes import Seen
from service.web.numbers import ShardNumbers
from standins.demo.clouds import some
from standins.demo.invention import PREVIEW, Invented, Thing
from standins.demo.ledger import Ledger
from standins.demo.reckoning import AwsSummary, judge_aws
from standins.demo.reservation import AzureSummary, judge_azure
from standins.demo.troupe import State


class Held(msgspec.Struct, frozen=True):
    """`condition` is what the object itself says of it."""

    object: str
    why: str
    condition: str


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """Objects are counted at the API server, resources and calls in the provider's log; only `retained`, `held` and the
    numbers about jobs are what Knell says.

    `deleted` are objects that were deleted, by themselves or with their Namespace; `released` are those of them that
    Knell was done with. `kept` are resources that had to stay and are there, of `to_keep`. `repeated` are deletes of
    what had been accepted already; `late` is how long after the end of a reservation the next call came, `early` how
    many came before it. `events` are Events in the cluster, by reason. `taken_over` is how long after the kill
    another replica had everything in hand that the killed one watched. The cluster on AWS is in `aws` and nowhere else,
    the node on Azure in `azure`.
    """

    api: str
    objects: int
    deleted: int
    released: int
    retained: int
    held: list[Held]
    opted_out: int
    living: int
    resources: int
    removed: int
    kept: int
    to_keep: int
    calls: int
    throttled: int
    repeated: int
    blocked: int
    failed: int
    reservations: int
    early: int
    late_median: timedelta | None
    late_most: timedelta | None
    longest_wait: timedelta | None
    refused_foreign: int
    touched: list[str]
    left: list[str]
    objects_left: list[str]
    objects_missing: list[str]
    events: dict[str, int]
    given_back: int
    taken_over: timedelta | None
    took: timedelta
    aws: AwsSummary
    azure: AzureSummary


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that was read at the end."""

    api: str
    ledger: Ledger
    state: State
    uids: Mapping[Thing, str]
    there: Mapping[str, Seen]
    namespace_left: bool
    conditions: Mapping[Thing, str]
    events: Mapping[str, int]
    deletions: Sequence[DeletionView]
    numbers: Sequence[ShardNumbers]
    taken_over: timedelta | None
    took: timedelta
    aws: AwsSummary
    azure: AzureSummary


def sum_up(invented: Invented, found: Evidence) -> Summary:
    book = found.ledger
    done = {view.uid: view for view in found.deletions if view.state == "done"}
    gone = [thing for thing in invented.things if found.uids[thing] not in found.there]
    finished = [done[found.uids[thing]] for thing in gone if found.uids[thing] in done]
    conditions = {found.uids[thing]: condition for thing, condition in found.conditions.items()}
    return Summary(
        api=found.api,
        objects=len(invented.things),
        deleted=len(gone) + sum(seen.going for seen in found.there.values()),
        released=len(finished),
        retained=sum(view.policy.startswith("retain") for view in finished),
        held=[
            Held(view.object, view.held_why, conditions.get(view.uid, ""))
            for view in found.deletions
            if view.state == "held"
        ],
        opted_out=sum(thing.fate == "opted out" for thing in gone),
        living=sum(not seen.going for seen in found.there.values()),
        resources=len(invented.ours),
        removed=book.removed,
        kept=found.state.there,
        to_keep=len(invented.kept),
        calls=book.calls,
        throttled=book.statuses[429],
        repeated=book.repeated,
        blocked=book.statuses[409],
        failed=book.statuses[500],
        reservations=book.reservations,
        early=book.early,
        late_median=_seconds(statistics.median(book.late) if book.late else None),
        late_most=_seconds(max(book.late, default=None)),
        longest_wait=_seconds(max(book.waits(), default=None)),
        refused_foreign=int(sum(shard.counters["refused"] for shard in found.numbers)),
        touched=sorted(book.strangers),
        left=book.left(),
        objects_left=_left(invented, found),
        objects_missing=sorted(str(thing) for thing in gone if thing.remains),
        events=dict(found.events),
        given_back=int(sum(shard.counters["reclaimed"] for shard in found.numbers)),
        taken_over=found.taken_over,
        took=found.took,
        aws=found.aws,
        azure=found.azure,
    )


def _left(invented: Invented, found: Evidence) -> list[str]:
    left = [thing for thing in invented.things if not thing.remains and found.uids[thing] in found.there]
    return [*(f"Namespace {name}" for name in (PREVIEW,) if found.namespace_left), *sorted(map(str, left))]


def judge(invented: Invented, summary: Summary) -> list[str]:
    """What is wrong; nothing where all went well."""
    problems = []
    if summary.objects_left:
        problems.append(f"should be gone from the API server: {some(summary.objects_left)}")
    if summary.objects_missing:
        problems.append(f"should be left at the API server: {some(summary.objects_missing)}")
    if summary.left:
        problems.append(f"not gone by the provider's log: {some(summary.left)}")
    if summary.touched:
        problems.append(f"touched at the provider, and not to be: {some(summary.touched)}")
    if summary.kept != summary.to_keep:
        problems.append(f"{summary.kept} resources are at the provider, where {summary.to_keep} should have stayed")
    if summary.early:
        problems.append(f"{summary.early} calls came before a reservation was over")
    wanted = sum(thing.released for thing in invented.things)
    if summary.released != wanted:
        problems.append(f"{summary.released} objects were released, where {wanted} should have been")
    retained = len(invented.of_fate("retained"))
    if summary.retained != retained:
        problems.append(f"{summary.retained} objects were released by retain, where {retained} should have been")
    held = {one.object.partition(" ")[2] for one in summary.held}
    protected = {f"{thing.namespace}/{thing.name}" for thing in invented.of_fate("protected")}
    if held != protected:
        problems.append(f"held are {some(held)}, where {some(protected)} should be")
    return problems + judge_aws(summary.aws) + judge_azure(summary.azure)


def _seconds(value: float | None) -> timedelta | None:
    return None if value is None else timedelta(seconds=round(value, 3))
