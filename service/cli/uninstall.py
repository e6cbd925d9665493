"""`knell uninstall`: takes our finalizers off everything, so that Knell can be removed without leaving objects stuck.
It shows first what it would do, asks, and says at the end what could not be done."""

from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import click
from redis.exceptions import RedisError
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from service.cli import objects, output, session
from service.cli.uninstall_picture import Found, deleting, named_deleting, picture, preview, tell
from service.cli.whereabouts import Places, checked, places
from service.engine.calls import ServerAway
from service.engine.installation import Installation
from service.engine.moments import Moments
from service.engine.witnesses import Witnesses
from service.kubernetes import ClusterError
from service.settings import Settings
from service.watching.leaving import Failure, find_leases, find_marked, remove_rest, still_held, take_off


@click.command()
@click.option("--yes", is_flag=True, help="Don't ask.")
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
@click.option("--anyway", is_flag=True, help="Also while replicas are still running.")
@click.option(
    "--also-deleting",
    is_flag=True,
    help="Also take it off objects that are being deleted: they vanish, and what they own outside stays behind.",
)
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
def uninstall(
    yes: bool,
    dry_run: bool,
    anyway: bool,
    also_deleting: bool,
    named: tuple[str, ...],
    form: str,
    config: Path | None,
) -> None:
    """Take our finalizers off everything, and remove what else we keep in the clusters.

    Goes through all objects of every configured source's resource, in all namespaces and whatever the selectors say,
    and of what Redis remembers of sources that the settings do not declare any more. Stop the service first, or
    it marks everything anew. Nothing is changed while something can't be read, and objects that are being deleted are
    named and left to the service unless --also-deleting is said: they lose what held them, and what they still own
    outside stays behind. Nothing outside the clusters is touched, and in Redis only the copy of when sources were first
    enabled.
    """
    settings = session.prepared(config)
    resources = checked(named)
    words = _Words(yes=yes, dry_run=dry_run, anyway=anyway, also_deleting=also_deleting)
    failures = objects.run(_uninstall(settings, resources, words, form))
    if failures:
        raise session.Trouble(f"{failures} could not be done; see above, mend it, and run this again")


@dataclass(frozen=True, slots=True)
class _Words:
    """What was said on the command line."""

    yes: bool
    dry_run: bool
    anyway: bool
    also_deleting: bool


async def _uninstall(settings: Settings, named: tuple[str, ...], words: _Words, form: str) -> int:
    where = await places(settings, named)
    if not where.clusters():
        raise session.Misuse(
            "neither the settings nor Redis know sources in the clusters of the settings, so nobody can tell where our "
            "finalizers are; declare the clusters, and name the resources by --resource plural.group"
        )
    async with AsyncExitStack() as stack:
        found = [await _find(where, name, stack) for name in where.clusters()]
        if form != "json" or not (words.yes or words.dry_run):
            preview(found, to_stderr=form == "json")
        if words.dry_run and form == "json":
            output.show_json(picture(found, done=False))
        _require_read(found)
        if words.dry_run:
            return 0
        _require_stopped(found, words)
        _require_nothing_deleted(found, words)
        if not words.yes:
            click.confirm(_question(found), abort=True, err=True)
        await _carry_out(settings, found, words)
        failures = [failure for one in found for failure in one.failures]
        if form == "json":
            output.show_json(picture(found, done=True))
        else:
            tell(found, failures)
        return len(failures)


async def _find(where: Places, name: str, stack: AsyncExitStack) -> Found:
    settings = where.settings
    cluster, uid = await stack.enter_async_context(objects.opened(settings, name))
    remains = [
        await find_marked(cluster, resource, where.services(name, resource), where.namespaces(name, uid, resource))
        for resource in where.resources(name, uid)
    ]
    found = Found(name, cluster, uid, remains)
    found.unread += [Failure(what=one.resource, why=one.problem) for one in remains if one.problem]
    try:
        found.leases = await find_leases(cluster, settings.watch.namespace, where.sources(name, uid))
        # Holders write the time by clocks of their own, so one that is a little late counts as well.
        found.running = still_held(found.leases, 2 * settings.watch.lease, await cluster.server_time())
    except ClusterError as error:
        found.unread.append(Failure(what=f"Leases in {settings.watch.namespace}", why=str(error)))
    return found


def _require_read(found: list[Found]) -> None:
    """Who runs, and what is marked or being deleted, has to be known before anything is changed."""
    unread = [(each.name, failure) for each in found for failure in each.unread]
    if not unread:
        return
    what = "; ".join(f"{failure.what} of cluster {name}: {failure.why}" for name, failure in unread)
    first = unread[0][0]
    raise session.Trouble(
        f"nothing was changed, for this can't be read: {output.clean(what)}. If a permission is missing, `knell role "
        f"--cluster {first} | kubectl apply -f -` grants it to the service account, or run this with an "
        f"administrator's kubeconfig (clusters.{first}.kubeconfig)"
    )


def _require_stopped(found: list[Found], words: _Words) -> None:
    running = {lease.holder for one in found for lease in one.running}
    if running and not words.anyway:
        raise session.Trouble(
            f"still running: {', '.join(sorted(running))}; it would mark everything anew. Stop it and try again in a "
            f"moment (or say --anyway)"
        )


def _require_nothing_deleted(found: list[Found], words: _Words) -> None:
    if deleting(found) and not words.also_deleting:
        raise session.Trouble(
            f"nothing was changed, for these are being deleted and wait until what they own outside is removed: "
            f"{named_deleting(found)}. Let the service finish them, or say --also-deleting: then they vanish, and what "
            f"they still own outside stays behind"
        )


def _question(found: list[Found]) -> str:
    going, kept = deleting(found), [one for one in deleting(found) if one.protection]
    lost = f", {len(going)} of which are being deleted ({len(kept)} protected)" if going else ""
    return f"Take our finalizer off {sum(one.marked for one in found)} objects{lost} and remove the rest?"


async def _carry_out(settings: Settings, found: list[Found], words: _Words) -> None:
    columns = (TextColumn("taking finalizers off"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=output.status_line(), transient=True) as progress:
        task = progress.add_task("", total=sum(one.marked for one in found))
        for each in found:
            for one in each.remains:
                if one.served is not None:
                    each.failures += await take_off(
                        each.cluster, one.served, one.objects, lambda: progress.advance(task),
                        also_deleting=words.also_deleting,
                    )  # fmt: skip
    for each in found:
        if not each.failures:
            # The moments of first enabling stay while anything is left to be done: it will be run again.
            each.failures += await remove_rest(each.cluster, settings.watch.namespace, each.leases)
            await _forget_copies(settings, each)


async def _forget_copies(settings: Settings, each: Found) -> None:
    """Else a later installation would write the moments into the cluster again, and take the missing Leases for a
    restored backup."""
    installation = Installation(settings, name="knell-cli", patience=objects.PATIENCE)
    try:
        await installation.connections.client.execute_command("PING")
        await Moments(installation).forget_cluster(each.uid)
        for lease in each.leases:
            await Witnesses(installation).replace(each.uid, f"{settings.watch.namespace}/{lease.name}", None)
    except (RedisError, OSError, ServerAway):
        click.echo(
            f"Redis does not answer: copies of when the sources of {each.name} were first enabled may be left there "
            f"(hash {Moments(installation).key}); with these, a later installation goes on from the same moments. It "
            f"may also take {each.name} for restored from a backup: `knell clusters accept-restore {each.name}`.",
            err=True,
        )
    finally:
        await installation.aclose()
