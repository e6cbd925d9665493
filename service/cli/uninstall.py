"""`knell uninstall`: removes our finalizers from all objects, so that none is stuck after Knell is gone.
It shows what it would do, asks for confirmation, and reports what could not be done."""

from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import click
from redis.exceptions import RedisError
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from service.admission.installed_objects import find_installed, remove_installed
from service.admission.protection_status import protected_clusters, uses_protection
from service.cli import cluster_clients, output, session
from service.cli.finalizer_locations import FinalizerLocations, check_resources, find_locations
from service.cli.uninstall_report import (
    ClusterLeftovers,
    as_document,
    deleting_objects,
    deleting_text,
    preview,
    show_result,
)
from service.engine.calls import ServerUnavailable
from service.engine.enabled_times import EnabledTimes
from service.engine.installation import Installation
from service.engine.lease_counters import LeaseCounterStore
from service.kubernetes import ClusterError, Forbidden
from service.settings import Settings
from service.watching.uninstall import (
    UninstallFailure,
    find_finalizers,
    find_leases,
    recently_renewed,
    remove_finalizers,
    remove_leases_and_configmap,
)


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
    """Remove our finalizers from all objects, and what else Knell keeps in the clusters.

    First of all the webhook configuration and the admission policies with their bindings, so that no deletion is
    denied any more, also if the settings do not mention them.

    Goes through all objects of every configured source's resource, in all namespaces and whatever the selectors say,
    and of what Redis remembers of sources that the settings do not declare any more. Stop the service first, or
    it adds them again. Nothing is changed while something can't be read, and objects that are being deleted are
    named and left to the service unless --also-deleting is said: they lose what held them, and what they still own
    outside stays behind. Nothing outside the clusters is touched, and in Redis only the copy of when sources were first
    enabled.
    """
    settings = session.interactive_settings(config)
    resources = check_resources(named)
    options = _Options(yes=yes, dry_run=dry_run, anyway=anyway, also_deleting=also_deleting)
    failures = cluster_clients.run_with_clusters(_uninstall(settings, resources, options, form))
    if failures:
        raise session.CommandError(f"{failures} could not be done; see above, mend it, and run this again")


@dataclass(frozen=True, slots=True)
class _Options:
    """Options of the command line."""

    yes: bool
    dry_run: bool
    anyway: bool
    also_deleting: bool


async def _uninstall(settings: Settings, named: tuple[str, ...], options: _Options, form: str) -> int:
    where = await find_locations(settings, named)
    clusters = list(
        dict.fromkeys([*where.clusters(), *(protected_clusters(settings) if uses_protection(settings) else [])])
    )
    if not clusters:
        raise session.InvalidUsage(
            "neither the settings nor Redis know sources in the clusters of the settings, so it is unknown where our "
            "finalizers are; declare the clusters, and name the resources by --resource plural.group"
        )
    async with AsyncExitStack() as stack:
        found = [await _read_cluster(where, name, stack) for name in clusters]
        if form != "json" or not (options.yes or options.dry_run):
            preview(found, to_stderr=form == "json")
        if options.dry_run and form == "json":
            output.show_json(as_document(found, done=False))
        _require_read(found)
        if options.dry_run:
            return 0
        _require_stopped(found, options)
        _require_nothing_deleted(found, options)
        if not options.yes:
            click.confirm(_question(found), abort=True, err=True)
        await _remove_everything(settings, found, options)
        failures = [failure for one in found for failure in one.failures]
        if form == "json":
            output.show_json(as_document(found, done=True))
        else:
            show_result(found, failures)
        return len(failures)


async def _read_cluster(where: FinalizerLocations, name: str, stack: AsyncExitStack) -> ClusterLeftovers:
    settings = where.settings
    cluster, uid = await stack.enter_async_context(cluster_clients.open_cluster(settings, name))
    remains = [
        await find_finalizers(cluster, resource, where.services(name, resource), where.namespaces(name, uid, resource))
        for resource in where.resources(name, uid)
    ]
    found = ClusterLeftovers(name, cluster, uid, remains)
    await _read_admission(settings, found)
    found.unread += [UninstallFailure(what=one.resource, why=one.problem) for one in remains if one.problem]
    try:
        found.leases = await find_leases(cluster, settings.watch.namespace, where.sources(name, uid))
        # Lease holders write renewTime by their own clocks, so twice the duration is allowed.
        found.running = recently_renewed(found.leases, 2 * settings.watch.lease, await cluster.server_time())
    except ClusterError as error:
        found.unread.append(UninstallFailure(what=f"Leases in {settings.watch.namespace}", why=str(error)))
    return found


async def _read_admission(settings: Settings, found: ClusterLeftovers) -> None:
    """Also where the settings do not mention protection: policies may be applied without that, or from before. Then
    the account of the service may not read them, which must not stand in the way."""
    found.admission, unread = await find_installed(found.cluster)
    needed = uses_protection(settings) and found.name in protected_clusters(settings)
    if not needed and unread and all(isinstance(one.error, Forbidden) for one in unread):
        click.echo(
            f"Whether admission policies or a webhook configuration of Knell are left in {found.name} is not "
            f"known, for these credentials may not read them; an administrator sees them with `kubectl get "
            f"validatingadmissionpolicies,validatingadmissionpolicybindings,validatingwebhookconfigurations`.",
            err=True,
        )
        return
    found.unread += [UninstallFailure(what=one.what, why=str(one.error)) for one in unread]


def _require_read(found: list[ClusterLeftovers]) -> None:
    """Nothing is changed unless all running replicas, marked objects and deletions could be read."""
    unread = [(each.name, failure) for each in found for failure in each.unread]
    if not unread:
        return
    what = "; ".join(f"{failure.what} of cluster {name}: {failure.why}" for name, failure in unread)
    first = unread[0][0]
    raise session.CommandError(
        f"nothing was changed, for this can't be read: {output.clean(what)}. If a permission is missing, `knell role "
        f"--cluster {first} | kubectl apply -f -` grants it to the service account, or run this with an "
        f"administrator's kubeconfig (clusters.{first}.kubeconfig)"
    )


def _require_stopped(found: list[ClusterLeftovers], options: _Options) -> None:
    running = {lease.holder for one in found for lease in one.running}
    if running and not options.anyway:
        raise session.CommandError(
            f"still running: {', '.join(sorted(running))}; it would add them again. Stop it and try again in a "
            f"moment (or say --anyway)"
        )


def _require_nothing_deleted(found: list[ClusterLeftovers], options: _Options) -> None:
    if deleting_objects(found) and not options.also_deleting:
        raise session.CommandError(
            f"nothing was changed, for these are being deleted and wait until what they own outside is removed: "
            f"{deleting_text(found)}. Let the service finish them, or say --also-deleting: then they vanish, and what "
            f"they still own outside stays behind"
        )


def _question(found: list[ClusterLeftovers]) -> str:
    going, kept = deleting_objects(found), [one for one in deleting_objects(found) if one.protection]
    lost = f", {len(going)} of which are being deleted ({len(kept)} protected)" if going else ""
    denials = ", lift the protection at admission" if any(one.ours for each in found for one in each.admission) else ""
    return f"Take our finalizer off {sum(one.marked for one in found)} objects{lost}{denials} and remove the rest?"


async def _remove_everything(settings: Settings, found: list[ClusterLeftovers], options: _Options) -> None:
    # First: with the webhook still configured, and the service stopped, no Namespace that it covers could be deleted.
    for each in found:
        failed = await remove_installed(each.cluster, each.admission)
        each.failures += [UninstallFailure(what=one.what, why=str(one.error)) for one in failed]
    columns = (TextColumn("taking finalizers off"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=output.status_line(), transient=True) as progress:
        task = progress.add_task("", total=sum(one.marked for one in found))
        for each in found:
            for one in each.remains:
                if one.served is not None:
                    each.failures += await remove_finalizers(
                        each.cluster, one.served, one.objects, lambda: progress.advance(task),
                        also_deleting=options.also_deleting,
                    )  # fmt: skip
    for each in found:
        if not each.failures:
            # First-enabling times stay after a failure, because the command will be run again.
            each.failures += await remove_leases_and_configmap(each.cluster, settings.watch.namespace, each.leases)
            await _forget_in_redis(settings, each)


async def _forget_in_redis(settings: Settings, each: ClusterLeftovers) -> None:
    """Otherwise a later installation would restore the first-enabling times from Redis, and take the missing Leases
    for a restored backup."""
    installation = Installation(settings, name="knell-cli", patience=cluster_clients.PATIENCE)
    try:
        await installation.connections.client.execute_command("PING")
        await EnabledTimes(installation).remove_cluster(each.uid)
        for lease in each.leases:
            await LeaseCounterStore(installation).replace(each.uid, f"{settings.watch.namespace}/{lease.name}", None)
    except (RedisError, OSError, ServerUnavailable):
        click.echo(
            f"Redis does not answer: copies of when the sources of {each.name} were first enabled may be left there "
            f"(hash {EnabledTimes(installation).key}); with these, a later installation goes on from the same moments. "
            f"It may also take {each.name} for restored from a backup: `knell clusters accept-restore {each.name}`.",
            err=True,
        )
    finally:
        await installation.aclose()
