"""`knell uninstall`: takes our finalizers off everything, so that Knell can be removed without leaving objects stuck.
It shows first what it would do, asks, and says at the end what could not be done."""

from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from service.cli import objects, output, session
from service.cli.whereabouts import Places, checked, places
from service.cluster import Cluster, ClusterError
from service.settings import Settings
from service.watching.leaving import (
    Failure,
    HeldLease,
    Remains,
    find_leases,
    find_marked,
    remove_rest,
    still_held,
    take_off,
)


@dataclass(slots=True)
class _Found:
    """What there is of ours in one cluster."""

    name: str
    cluster: Cluster
    uid: str
    remains: list[Remains]
    leases: list[HeldLease]
    failures: list[Failure] = field(default_factory=list)


@click.command()
@click.option("--yes", is_flag=True, help="Don't ask.")
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
@click.option("--anyway", is_flag=True, help="Also while replicas are still running.")
@click.option(
    "--resource",
    "named",
    multiple=True,
    metavar="PLURAL.GROUP",
    help="Go through this resource, too, in every cluster. Repeatable; for sources that were removed from the "
    "settings, should Redis not know them any more.",
)
@session.output_option
@session.config_option
def uninstall(yes: bool, dry_run: bool, anyway: bool, named: tuple[str, ...], form: str, config: Path | None) -> None:
    """Take our finalizers off everything, and remove what else we keep in the clusters.

    Goes through all objects of every configured source's resource, in all namespaces and whatever the selectors say,
    and of what Redis remembers of sources that the settings do not declare any more.
    Objects that are going lose what held them: what they still own outside stays behind. Stop the service first, or
    it marks everything anew. Nothing in Redis and nothing outside the clusters is touched.
    """
    settings = session.prepared(config)
    resources = checked(named)
    failures = objects.run(_uninstall(settings, resources, yes=yes, dry_run=dry_run, anyway=anyway, form=form))
    if failures:
        raise session.Trouble(f"{failures} could not be done; see above, mend it, and run this again")


async def _uninstall(
    settings: Settings, named: tuple[str, ...], *, yes: bool, dry_run: bool, anyway: bool, form: str
) -> int:
    where = await places(settings, named)
    if not where.clusters():
        raise session.Misuse(
            "neither the settings nor Redis know sources in the clusters of the settings, so nobody can tell where our "
            "finalizers are; declare the clusters, and name the resources by --resource plural.group"
        )
    async with AsyncExitStack() as stack:
        found = [await _find(where, name, stack) for name in where.clusters()]
        if form != "json" or not (yes or dry_run):
            _preview(found, to_stderr=form == "json")
        if dry_run:
            if form == "json":
                output.show_json(_picture(found, done=False))
            return 0
        running = [lease for one in found for lease in still_held(one.leases, settings.watch.lease)]
        if running and not anyway:
            who = ", ".join(sorted({lease.holder for lease in running}))
            raise session.Trouble(
                f"still running: {who}; it would mark everything anew. Stop it and try again in a moment "
                f"(or say --anyway)"
            )
        objects_marked = sum(len(one.objects) for each in found for one in each.remains)
        if not yes:
            click.confirm(f"Take our finalizer off {objects_marked} objects and remove the rest?", abort=True, err=True)
        await _carry_out(settings, found, objects_marked)
        failures = [failure for one in found for failure in one.failures]
        if form == "json":
            output.show_json(_picture(found, done=True))
        else:
            _tell(objects_marked, failures)
        return len(failures)


async def _find(where: Places, name: str, stack: AsyncExitStack) -> _Found:
    settings = where.settings
    cluster, uid = await stack.enter_async_context(objects.opened(settings, name))
    remains = [await find_marked(cluster, resource) for resource in where.resources(name, uid)]
    found = _Found(name, cluster, uid, remains, [])
    found.failures += [Failure(what=one.resource, why=one.problem) for one in remains if one.problem]
    try:
        found.leases = await find_leases(cluster, settings.watch.namespace, where.sources(name, uid))
    except ClusterError as error:
        found.failures.append(Failure(what=f"Leases in {settings.watch.namespace}", why=str(error)))
    return found


async def _carry_out(settings: Settings, found: list[_Found], total: int) -> None:
    columns = (TextColumn("taking finalizers off"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=output.status_line(), transient=True) as progress:
        task = progress.add_task("", total=total)
        for each in found:
            for one in each.remains:
                if one.served is not None:
                    each.failures += await take_off(
                        each.cluster, one.served, one.objects, lambda: progress.advance(task)
                    )  # fmt: skip
    for each in found:
        if not each.failures:
            # The moments of first enabling stay while anything is left to be done: it will be run again.
            each.failures += await remove_rest(each.cluster, settings.watch.namespace, each.leases)


def _preview(found: list[_Found], *, to_stderr: bool) -> None:
    rows = [
        (each.name, one.resource, len(one.objects), sum(mark.going for mark in one.objects), _note(one))
        for each in found
        for one in each.remains
    ]
    columns = ("cluster", "resource", "objects with our finalizer", "of these going", "note")
    parts = [output.table("What would be taken off", columns, rows, numbers=columns[2:4])]
    parts += [
        output.note(f"{each.name} (uid {each.uid}): {len(each.leases)} Leases and the ConfigMap would be removed.")
        for each in found
    ]
    screen = output.status_line() if to_stderr else output.console()
    for part in parts:
        screen.print(part)


def _note(one: Remains) -> str:
    return one.problem or ("not installed" if one.served is None else "")


def _tell(total: int, failures: list[Failure]) -> None:
    output.show([output.note(f"{total} objects had our finalizer; {len(failures)} things could not be done.")])
    if failures:
        rows = [(one.what, one.why) for one in failures]
        output.show([output.table("Not done", ("what", "why"), rows)])


def _picture(found: list[_Found], *, done: bool) -> dict[str, Any]:
    return {
        "done": done,
        "clusters": [
            {
                "name": each.name,
                "uid": each.uid,
                "leases": [lease.name for lease in each.leases],
                "resources": [
                    {
                        "resource": one.resource,
                        "marked": len(one.objects),
                        "going": sum(mark.going for mark in one.objects),
                        "note": _note(one),
                    }
                    for one in each.remains
                ],
                "failures": each.failures,
            }
            for each in found
        ],
    }
