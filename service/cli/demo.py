"""`knell demo`: the whole service on a local API server, against a provider that throttles, blocks and reserves.
A replica is killed in the middle; the exit code is 0 only if the API server and the provider's log show all is well."""

import asyncio
from datetime import timedelta

import click
from rich.console import Console
from rich.table import Table

from service import logs
from service.cli import output
from service.cli.session import Trouble, output_option
from service.kubernetes import ClusterError
from service.settings import LogSettings
from standins.controlplane import NoControlPlane
from standins.demo import DemoFailed, Invented, Picture, Summary, Troupe, choose, invent, play
from standins.demo.apis import Choice
from standins.demo.clouds import CloudSummary
from standins.demo.possessions import ACCOUNTS, RESERVED
from standins.demo.reckoning import AwsSummary
from standins.demo.reservation import SPAN, AzureSummary
from standins.provider.process import ProviderFailed
from standins.servers import NoServerError
from standins.stand_in import StandInFailed

_OTHERS = "Valkey, a simulated provider, stand-ins for AWS and Azure"


@click.command()
@click.option("--objects", type=click.IntRange(8, 500), default=40, show_default=True, help="Objects that are to go.")
@click.option(
    "--seconds",
    type=click.IntRange(10, 600),
    default=20,
    show_default=True,
    help="About how long it shall take; the provider's quota is chosen for it.",
)
@click.option(
    "--api",
    type=click.Choice(["auto", "real", "embedded"]),
    default="auto",
    show_default=True,
    help="The API server: the real control plane where `make controlplane` has built it, or the embedded one.",
)
@output_option
def demo(objects: int, seconds: int, api: Choice, form: str) -> None:
    """Show it at work on a local API server.

    Starts Valkey, an API server, a simulated provider, stand-ins for AWS and Azure and two replicas of Knell; makes
    objects, among them a Cluster API cluster on AWS and a NodeClaim on Azure, deletes them with the ordinary API, kills
    a replica in the middle, and judges the end by the API server, the provider's own log, what AWS itself lists and
    Azure's own journal.
    """
    logs.configure(LogSettings(level="error"))
    length = timedelta(seconds=seconds)
    invented = invent(objects, length)
    picture = Picture(invented, quiet=form == "json")
    picture.console.print(_opening(invented))
    try:
        with Troupe(invented, choose(api)) as troupe:
            with picture.waiting(f"starting {_OTHERS}, and {troupe.api.words}"):
                troupe.start()
            picture.say(f"started {_OTHERS}, and {troupe.api.words}")
            summary, problems = asyncio.run(play(troupe, picture, length))
    except (NoServerError, NoControlPlane, ProviderFailed, StandInFailed, DemoFailed, ClusterError) as error:
        raise Trouble(str(error)) from None
    except KeyboardInterrupt:
        raise Trouble("interrupted; everything that was started has been stopped") from None
    if form == "json":
        output.show_json({"summary": summary, "problems": problems})
    else:
        _show_summary(picture.console, summary)
    if problems:
        raise Trouble("; ".join(problems))


def _opening(invented: Invented) -> str:
    scale = invented.behaviour.scale
    staying = len(invented.things) - len(invented.of_fate("goes"))
    return (
        f"{len(invented.of_fate('goes'))} objects are to go; they own {len(invented.ours)} resources in "
        f"{len(ACCOUNTS)} accounts. {staying} others are retained, protected, opted out, or left alone.\n"
        "A Cluster API cluster on AWS goes as well, with its balancers, target groups and security groups.\n"
        "So does a NodeClaim on Azure, whose network interface is reserved for another VM at first.\n"
        f"A reservation of {RESERVED.total_seconds():.0f} s is shown as "
        f"{RESERVED.total_seconds() / scale:.1f} s, on Azure as {SPAN.total_seconds():.0f} s, and the other times are "
        "shortened alike."
    )


def _show_summary(console: Console, summary: Summary) -> None:
    table = Table(
        title="What the API server, the provider's log, AWS's lists and Azure's journal show",
        title_justify="left",
        show_header=False,
    )
    for name, value in _rows(summary):
        table.add_row(name, value)
    console.print(table)


def _rows(summary: Summary) -> list[tuple[str, str]]:
    late = ""
    if summary.late_median is not None and summary.late_most is not None:
        late = (
            f"; called again {summary.late_median.total_seconds():.2f} s (median) after the named time, "
            f"{summary.late_most.total_seconds():.2f} s at most"
        )
    held = "".join(f"\n{one.object}\n{one.why}\nits condition {one.condition}" for one in summary.held)
    return [
        ("objects deleted", f"{summary.deleted} of {summary.objects}, on the {summary.api} API server"),
        ("objects released", f"{summary.released}, of them by retain: {summary.retained}"),
        ("held", f"{len(summary.held)}{held}"),
        ("opted out, gone without us", str(summary.opted_out)),
        ("resources removed", f"{summary.removed} of {summary.resources}"),
        ("resources to stay", f"{summary.kept} of {summary.to_keep} are there, touched {len(summary.touched)}"),
        ("tagged as somebody else's", f"refused {summary.refused_foreign} times"),
        ("Events in the cluster", ", ".join(f"{reason} {count}" for reason, count in sorted(summary.events.items()))),
        ("delete calls", f"{summary.calls}; for what was accepted already: {summary.repeated}"),
        ("throttled calls", str(summary.throttled)),
        ("blocked by another resource", str(summary.blocked)),
        ("reservations kept", f"{summary.reservations - summary.early} of {summary.reservations}{late}"),
        ("failed calls, tried again", str(summary.failed)),
        ("jobs given back after the kill", str(summary.given_back)),
        ("watching again after the kill", output.span(summary.taken_over)),
        ("longest wait for a resource", output.span(summary.longest_wait)),
        *_aws_rows(summary.aws),
        *_azure_rows(summary.azure),
        ("time", output.span(summary.took)),
    ]


def _aws_rows(summary: AwsSummary) -> list[tuple[str, str]]:
    refused = ", ".join(f"{code} {count}" for code, count in sorted(summary.refused.items()))
    held = "held by its finalizer" if summary.held else "not held"
    after = f"gone after {output.span(summary.took)}" if summary.gone else "still there"
    return [
        (summary.cluster, f"{held}, {after}"),
        (
            "what it had on AWS",
            f"removed {summary.removed} of {summary.resources}, interfaces drained {summary.drained}",
        ),
        ("what looks like it on AWS", _others(summary)),
        ("calls to AWS", f"{summary.calls}; refused: {refused or 'none'}"),
    ]


def _azure_rows(summary: AzureSummary) -> list[tuple[str, str]]:
    after = f"gone after {output.span(summary.took)}" if summary.gone else "still there"
    waited = "no delete met it"
    if summary.refused:
        across = ", across the kill" if summary.across_kill else ""
        late = "" if summary.late is None else f"; the next came {summary.late.total_seconds():.2f} s after its end"
        waited = f"{output.span(summary.reserved)}{across}; deletes that came early: {summary.early}{late}"
    return [
        (summary.claim, f"its interface {summary.interface} is {after}"),
        ("its reservation on Azure", waited),
        ("what looks like it on Azure", _others(summary)),
        ("calls to Azure", str(summary.calls)),
    ]


def _others(summary: CloudSummary) -> str:
    return f"{summary.kept} of {summary.to_keep} are there, touched {len(summary.touched)}"
