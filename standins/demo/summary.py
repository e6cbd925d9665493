"""Summary and judgement of the demo, from the API server and from the lists and journals of AWS and Azure.
The judgement names everything that exists and should not, and everything that is missing or was touched wrongly."""

from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Final

import msgspec
from rich.table import Table

from standins.demo.ack_resources import AckSummary
from standins.demo.aws_account import AwsSummary
from standins.demo.azure_subscription import SPAN, AzureSummary
from standins.demo.objects import NAMESPACE

_LATEST: Final = SPAN
"""How late the delete after a reservation may come, also on a busy machine."""
_RETAINED: Final = "retain: "
"""How the audit's reason of such a decision begins."""


class DemoSummary(msgspec.Struct, frozen=True, kw_only=True):
    """`objects_left` should be gone from the API server, `objects_missing` should be there; `not_held` are AWSClusters
    that were deleted without Knell's finalizer on them. `done` are deletions that Knell has finished, of `deletions`.
    `denials` are the API server's answers to the first deletions of the protected object and its Namespace,
    `deleted_anyway` what went all the same. `hold` is what the protected object's condition said, `protected_for` how
    long its protection lasted after its deletion. `taken_over` is how long after the kill other replicas watched
    everything again; `given_back` are jobs of the killed replica that others took over. `events` are Knell's Events by
    reason."""

    api: str
    clusters: int
    nodes: int
    ack_objects: int
    deletions: int
    done: int
    objects_left: list[str]
    objects_missing: list[str]
    not_held: list[str]
    protected: str
    denials: list[str]
    deleted_anyway: list[str]
    hold: str
    protected_for: timedelta | None
    retained: str
    killed: str
    taken_over: timedelta | None
    given_back: int
    events: dict[str, int]
    aws: AwsSummary
    ack: AckSummary
    azure: AzureSummary
    took: timedelta


def judge(summary: DemoSummary) -> list[str]:
    """Everything that is wrong; empty where all is well."""
    problems = []
    if summary.objects_left:
        problems.append(f"should be gone from the API server: {_some(summary.objects_left)}")
    if summary.objects_missing:
        problems.append(f"should still be on the API server: {_some(summary.objects_missing)}")
    if summary.not_held:
        problems.append(f"deleted without our finalizer: {_some(summary.not_held)}")
    if summary.done != summary.deletions:
        problems.append(f"{summary.done} deletions are done, where {summary.deletions} should be")
    if summary.deleted_anyway:
        problems.append(f"deleted although protected: {_some(summary.deleted_anyway)}")
    said = " ".join(summary.denials)
    protected = f"awscluster/{summary.protected} in Namespace {NAMESPACE} is protected"
    problems += [
        f"no deletion was denied with the words: {words}"
        for words in (protected, f"namespace/{NAMESPACE} contains 1 protected object")
        if words not in said
    ]
    if summary.protected_for is None:
        problems.append(f"{summary.protected} was never reported as held by its protection")
    if not summary.killed:
        problems.append("no replica was killed")
    elif summary.taken_over is None:
        problems.append(f"no other replica took over the sources of {summary.killed}")
    if not summary.aws.tagged:
        problems.append(f"no resource of {summary.retained} was tagged as kept")
    if not summary.aws.throttled:
        problems.append("AWS throttled no call, so nothing was shown of that")
    if summary.aws.early:
        problems.append(f"changed at AWS while {summary.protected} was protected: {_some(summary.aws.early)}")
    return (
        problems
        + _judge_cloud("AWS", summary.aws)
        + _judge_cloud("AWS", summary.ack)
        + _judge_ack(summary.ack)
        + _judge_cloud("Azure", summary.azure)
        + _judge_interface(summary.azure)
    )


def _judge_cloud(cloud: str, found: AwsSummary | AckSummary | AzureSummary) -> list[str]:
    problems = []
    if found.left:
        problems.append(f"not gone at {cloud}: {_some(found.left)}")
    if found.missing:
        problems.append(f"gone at {cloud} and should have stayed: {_some(found.missing)}")
    if found.touched:
        problems.append(f"touched at {cloud} and should have been left alone: {_some(found.touched)}")
    if found.twice:
        problems.append(f"deleted more than once at {cloud}: {_some(found.twice)}")
    return problems


def _judge_ack(found: AckSummary) -> list[str]:
    problems = []
    if not found.by_cloud_control and not found.left:
        problems.append(f"queue {found.queue} was not removed by Cloud Control")
    if not found.recorded:
        problems.append(f"bucket {found.bucket} was not recorded as kept")
    if not found.audit.startswith(_RETAINED):
        problems.append(f"the audit does not say that bucket {found.bucket} was retained")
    return problems


def _judge_interface(found: AzureSummary) -> list[str]:
    problems, interface = [], f"interface {found.interface}"
    if not found.reservations:
        problems.append(f"{interface} was reserved, but no delete was refused for that")
    if found.early:
        problems.append(f"{found.early} deletes of {interface} came before its reservation was over")
    if found.reservations and found.late is None:
        problems.append(f"{interface} was not deleted after its reservation")
    if found.late is not None and found.late > _LATEST:
        problems.append(f"{interface} was deleted only {found.late.total_seconds():.1f} s after its reservation")
    return problems


def _some(names: Collection[str]) -> str:
    shown = sorted(names)
    more = f" and {len(shown) - 5} more" if len(shown) > 5 else ""
    return (", ".join(shown[:5]) or "none") + more


# ---- the table at the end


def summary_table(summary: DemoSummary) -> Table:
    """Fits a terminal of 80 columns and 24 lines."""
    table = Table(title="What Kubernetes, AWS and Azure show at the end", title_justify="left", show_header=False,
                  box=None, pad_edge=False, padding=(0, 2, 0, 0))  # fmt: skip
    for name, value in _rows(summary):
        table.add_row(name, value)
    return table


def _rows(summary: DemoSummary) -> list[tuple[str, str]]:
    aws, ack, azure = summary.aws, summary.ack, summary.azure
    return [
        ("Kubernetes", f"{summary.clusters} AWSClusters, {summary.nodes} NodeClaims, {summary.ack_objects} objects of "
                       f"ACK deleted, {len(summary.objects_left)} left"),
        ("", f"{summary.done} of {summary.deletions} deletions finished, on the {summary.api} API server"),
        ("AWS", f"{aws.removed} of {aws.resources} resources gone, deleted twice: {len(aws.twice)}"),
        ("", f"{aws.drained} network interfaces drained after their load balancers"),
        ("", _others(aws, "retained, live, foreign")),
        ("", f"{aws.calls} calls, refused: {_codes(aws.refused)}"),
        ("ACK", f"queue {ack.queue}: {'left' if ack.left else 'gone'}, "
                f"deleted by Cloud Control {_times(ack.by_cloud_control)}"),
        ("", f"bucket {ack.bucket}: object gone, {_kept(ack)}"),
        ("Azure", f"{azure.removed} of {azure.resources} resources gone, deleted twice: {len(azure.twice)}"),
        ("", _others(azure, "live, foreign")),
        ("", f"{azure.calls} calls, refused: {_codes(azure.refused)}"),
        ("denied", f"{len(summary.denials)} deletions of {summary.protected} and its Namespace, by the API server"),
        ("protected", f"{summary.protected}: held for {_seconds(summary.protected_for)}, "
                      "until its annotation was removed;"),
        ("", f"resources of it that were changed meanwhile: {len(aws.early)}"),
        ("retained", f"{summary.retained}: object gone, {aws.tagged} resources kept and tagged"),
        ("reserved", f"{azure.interface}: for another VM for {_seconds(azure.reserved)}{_across(azure)};"),
        ("", f"deleted {_late(azure)}, deletes that came too early: {azure.early}"),
        ("killed", f"{summary.killed or 'none'}: {summary.given_back} of its jobs taken over, "
                   f"its sources watched after {_seconds(summary.taken_over)}"),
        ("time", _seconds(summary.took)),
    ]  # fmt: skip


def _others(found: AwsSummary | AzureSummary, which: str) -> str:
    to_keep = found.kept + len(found.missing)
    return f"{found.kept} of {to_keep} others still there ({which}), touched: {len(found.touched)}"


def _codes(refused: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {code}" for code, count in sorted(refused.items())) or "none"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _kept(ack: AckSummary) -> str:
    """What became of the retained bucket."""
    if ack.bucket in ack.missing:
        return "bucket gone as well"
    recorded = "kept and recorded" if ack.recorded else "kept without a record"
    return f"{recorded}, {'in the audit' if ack.audit.startswith(_RETAINED) else 'missing from the audit'}"


def _across(found: AzureSummary) -> str:
    return ", across the kill" if found.across_kill else ""


def _late(found: AzureSummary) -> str:
    return "never" if found.late is None else f"{found.late.total_seconds():.1f} s after that"


def _seconds(span: timedelta | None) -> str:
    return "-" if span is None else f"{span.total_seconds():.1f} s"
