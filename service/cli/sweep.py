"""`knell sweep`: runs one pass of a sweep in the foreground, or with --dry-run shows what it would do.
It needs no Lease: concurrent passes write the same records, and publish nothing twice."""

from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click

from service.cli import output, session
from service.cli.cluster_clients import connect_clusters
from service.engine.installation import Installation
from service.kubernetes import ClusterError
from service.settings import Settings
from service.sources.registry import known_sources, source_named
from workers.app import open_app
from workers.handlers.orphans import ListingFailed, OrphanFinder
from workers.sweeps.kept_owners import UnreadableRecord
from workers.sweeps.sweep_pass import SweepAborted, SweepPass, SweepResult
from workers.sweeps.waiting_period import Orphan

SHOWN: Final = 50
"""Maximum rows of the table; the rest is counted. JSON has all."""

_BECOMES: Final = {
    "waits": "waits: not yet orphaned for long enough",
    "told": "removed from now on",
    "known": "being removed already",
    "left": "left: that was decided when it was to be removed",
    "stays": "stays by policy",
    "would be told": "would be removed",
}


@click.command()
@click.argument("source", required=False)
@click.option("--dry-run", is_flag=True, help="Write nothing and publish nothing: only show what a pass would do.")
@session.output_option
@session.config_option
def sweep(source: str | None, dry_run: bool, form: str, config: Path | None) -> None:
    """Find resources that no event announced, such as machines and interfaces on Azure whose NodeClaim does not exist.

    What is orphaned for the first time is only recorded. It is deleted once it was orphaned in two passes and for as
    long as the settings say (azure.sweep.age), behind all urgent work. Without SOURCE all swept sources are.
    """
    settings = session.interactive_settings(config)
    names = _choose_sources(settings, source)
    found = session.run_with_redis(lambda opened: _sweep(settings, opened, names, dry_run=dry_run), config)
    if form == "json":
        output.show_json({"dry_run": dry_run, "sweeps": [_as_document(*one) for one in found]})
        return
    for swept, finder in found:
        _show(swept, finder, dry_run=dry_run)


def _choose_sources(settings: Settings, source: str | None) -> list[str]:
    swept = [name for name, declared in settings.sources.items() if source_named(declared.collector).swept]
    if source is None and not swept:
        collectors = ", ".join(known.name for known in known_sources() if known.swept)
        raise session.InvalidUsage(f"no source is swept: none has a collector that has a sweep ({collectors})")
    if source is not None and source not in swept:
        known = ", ".join(swept) or "none"
        raise session.InvalidUsage(f"source {output.clean(source)} is not swept; those that are: {known}")
    return swept if source is None else [source]


async def _sweep(
    settings: Settings, installation: Installation, names: list[str], *, dry_run: bool
) -> list[tuple[SweepResult, OrphanFinder]]:
    screen, collectors = output.status_line(), {settings.sources[name].collector for name in names}
    async with AsyncExitStack() as stack:
        clusters = await stack.enter_async_context(connect_clusters(settings))
        app = await stack.enter_async_context(open_app(settings, clusters, installation, collectors=collectors))
        # Progress is shown on a terminal only.
        shown: Any = stack.enter_context(screen.status("looking")) if screen.is_terminal else None
        found: list[tuple[SweepResult, OrphanFinder]] = []
        for name in names:
            finder = app.orphan_finder(name)
            one = SweepPass(
                settings, installation, app.source_clusters, finder, name, rehearse=dry_run, shown=True,
                progress=_progress(shown, name),
            )  # fmt: skip
            try:
                found.append((await one.run(), finder))
            except (SweepAborted, UnreadableRecord, ListingFailed, ClusterError, TimeoutError) as error:
                raise session.CommandError(
                    f"no pass of {name} was made, and nothing is known of anything: {error}"
                ) from None
        return found


def _progress(shown: Any, source: str) -> Callable[[str, int], None]:
    def tell(words: str, count: int) -> None:
        if shown is not None:
            shown.update(f"{source}: {count} of {words}")

    return tell


def _show(swept: SweepResult, finder: OrphanFinder, *, dry_run: bool) -> None:
    words, places = finder.words, finder.places(swept.source)
    by = words.methods.get(swept.method, swept.method)
    title = f"{swept.source}: {swept.listed} resources by {by}, {swept.owners} {words.owners}, {swept.found} orphans"
    columns = (words.owner, "what", words.place, "orphaned since", "passes", "what becomes of it")
    first = sorted(swept.orphans, key=lambda one: (one.becomes == "waits", one.first, one.owner))[:SHOWN]
    rows = [
        (
            one.owner,
            finder.kind(one.ids),
            places[one.place].title,
            output.moment(_orphaned_since(one)),
            one.passes,
            words.doubted if one.becomes == "doubted" else _BECOMES[one.becomes],
        )
        for one in first
    ]
    if rows:
        output.show(
            [output.table(title, columns, rows, numbers=("passes",), wide=(words.place, "passes"), cut=columns[-1])]
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


def _orphaned_since(one: Orphan) -> datetime:
    return datetime.fromtimestamp(one.first / 1000, UTC)


def _as_document(swept: SweepResult, finder: OrphanFinder) -> dict[str, Any]:
    owner, places = finder.words.owner_field, finder.places(swept.source)
    return {
        "source": swept.source,
        "by": swept.method,
        "policy": swept.decision.kind,
        "listed": swept.listed,
        f"{owner}s": swept.owners,
        "told": swept.published,
        "known": swept.known,
        "unidentified": swept.unidentified,
        "orphans": [
            {
                owner: one.owner, "uid": one.uid, "what": finder.kind(one.ids), **places[one.place].fields,
                "since": _orphaned_since(one), "passes": one.passes, "becomes": one.becomes,
            }
            for one in swept.orphans
        ],
    }  # fmt: skip
