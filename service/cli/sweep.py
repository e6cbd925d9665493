"""`knell sweep`: runs one pass of a sweep in the foreground, or with --dry-run shows what it would do.
It needs no Lease: concurrent passes write the same records, and publish nothing twice."""

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click

from service.cli import output, session
from service.cli.cluster_clients import connect_clusters
from service.cli.work import open_azure
from service.engine.installation import Installation
from service.kubernetes import ClusterError
from service.settings import AzureNodes, Settings
from workers.handlers.azure.errors import AzureError
from workers.judging.registry_builder import build_source_clusters
from workers.sweeps.kept_claims import UnreadableRecord
from workers.sweeps.sweep_pass import SweepAborted, SweepPass, SweepResult
from workers.sweeps.waiting_period import Orphan

SHOWN: Final = 50
"""Maximum rows of the table; the rest is counted. JSON has all."""

_BECOMES: Final = {
    "waits": "waits: not yet orphaned for long enough",
    "told": "removed from now on",
    "known": "being removed already",
    "left": "left: that was decided when it was to be removed",
    "doubted": "left: no Node of this cluster runs in that group",
    "stays": "stays by policy",
    "would be told": "would be removed",
}


@click.command()
@click.argument("source", required=False)
@click.option("--dry-run", is_flag=True, help="Write nothing and publish nothing: only show what a pass would do.")
@session.output_option
@session.config_option
def sweep(source: str | None, dry_run: bool, form: str, config: Path | None) -> None:
    """Find resources that no event announced: machines and interfaces on Azure whose NodeClaim does not exist.

    What is orphaned for the first time is only recorded. It is deleted once it was orphaned in two passes and for
    azure.sweep.age, behind all urgent work. Without SOURCE all swept sources are.
    """
    settings = session.interactive_settings(config)
    names = _choose_sources(settings, source)
    found = session.run_with_redis(lambda opened: _sweep(settings, opened, names, dry_run=dry_run), config)
    if form == "json":
        output.show_json(
            {"dry_run": dry_run, "sweeps": [_as_document(swept, settings.azure.nodes[swept.source]) for swept in found]}
        )
        return
    for swept in found:
        _show(swept, settings.azure.nodes[swept.source], dry_run=dry_run)


def _choose_sources(settings: Settings, source: str | None) -> list[str]:
    swept = list(settings.azure.nodes)
    if source is None and not swept:
        raise session.InvalidUsage("no source is swept: azure.nodes names none")
    if source is not None and source not in swept:
        known = ", ".join(swept) or "none"
        raise session.InvalidUsage(f"source {output.clean(source)} is not swept; those that are: {known}")
    return swept if source is None else [source]


async def _sweep(
    settings: Settings, installation: Installation, names: list[str], *, dry_run: bool
) -> list[SweepResult]:
    screen = output.status_line()
    async with AsyncExitStack() as stack:
        clusters = await stack.enter_async_context(connect_clusters(settings))
        places = build_source_clusters(settings, clusters, installation)
        stack.push_async_callback(places.aclose)
        side = await stack.enter_async_context(open_azure(settings, places, installation))
        # Progress is shown on a terminal only.
        shown: Any = stack.enter_context(screen.status("looking")) if screen.is_terminal else None
        found: list[SweepResult] = []
        for name in names:
            one = SweepPass(
                settings, installation, places, side.lister, name, rehearse=dry_run, shown=True,
                progress=_progress(shown, name),
            )  # fmt: skip
            try:
                found.append(await one.run())
            except (SweepAborted, UnreadableRecord, AzureError, ClusterError, TimeoutError) as error:
                raise session.CommandError(
                    f"no pass of {name} was made, and nothing is known of anything: {error}"
                ) from None
        return found


def _progress(shown: Any, source: str) -> Callable[[str, int], None]:
    def tell(words: str, count: int) -> None:
        if shown is not None:
            shown.update(f"{source}: {count} of {words}")

    return tell


def _show(swept: SweepResult, nodes: Sequence[AzureNodes], *, dry_run: bool) -> None:
    by = "Resource Graph" if swept.way == "graph" else "the providers' lists"
    title = f"{swept.source}: {swept.listed} resources by {by}, {swept.claims} NodeClaims, {swept.found} orphans"
    columns = ("NodeClaim", "what", "group", "orphaned since", "passes", "what becomes of it")
    first = sorted(swept.orphans, key=lambda one: (one.becomes == "waits", one.first, one.claim))[:SHOWN]
    rows = [
        (
            one.claim,
            _resource_kind(one),
            nodes[one.group_number].resource_group,
            output.moment(_orphaned_since(one)),
            one.passes,
            _BECOMES[one.becomes],
        )
        for one in first
    ]
    if rows:
        output.show(
            [output.table(title, columns, rows, numbers=("passes",), wide=("group", "passes"), cut=columns[-1])]
        )
    else:
        output.show([output.note(title, "bold")])
    if len(swept.orphans) > SHOWN:
        output.show([output.note(f"... and {len(swept.orphans) - SHOWN} more; --output json has all.")])
    for trouble in swept.trouble:
        output.show([output.note(trouble, "yellow")])
    if swept.decision.kind != "delete":
        output.show([output.note(f"Nothing of it is removed: {swept.decision.kind}: {swept.decision.reason}")])
    elif dry_run:
        output.show([output.note("Nothing was written, and nothing was published.")])


def _resource_kind(one: Orphan) -> str:
    return "virtual machine" if one.machine else "network interface"


def _orphaned_since(one: Orphan) -> datetime:
    return datetime.fromtimestamp(one.first / 1000, UTC)


def _as_document(swept: SweepResult, nodes: Sequence[AzureNodes]) -> dict[str, Any]:
    return {
        "source": swept.source,
        "by": swept.way,
        "policy": swept.decision.kind,
        "listed": swept.listed,
        "claims": swept.claims,
        "told": swept.published,
        "known": swept.known,
        "unidentified": swept.unidentified,
        "orphans": [
            {
                "claim": one.claim, "uid": one.uid, "what": _resource_kind(one),
                "subscription": nodes[one.group_number].subscription, "group": nodes[one.group_number].resource_group,
                "since": _orphaned_since(one), "passes": one.passes, "becomes": one.becomes,
            }
            for one in swept.orphans
        ],
    }  # fmt: skip
