"""`knell clusters`: lists the cluster behind each name of the settings, forgets it, and accepts a restored backup.
Without that, a name that leads to another cluster is refused, and a restored cluster is held."""

from pathlib import Path
from typing import Any

import click
from rich.text import Text

from service.cli import cluster_clients, output, session
from service.cli.source_notices import count_objects
from service.engine.installation import Installation
from service.engine.lease_counters import LeaseCounterStore, restore_reason
from service.engine.views.sources import held_objects
from service.kubernetes import ClusterError
from service.settings import Settings
from service.watching.cluster_identity import ClusterIdentities, WrongCluster, cluster_of, connect_to
from service.watching.restored_cluster import (
    ConcurrentChange,
    RestoreState,
    accept_restore,
    restore_state,
    sources_in_cluster,
)


@click.group()
def clusters() -> None:
    """Show which cluster each name stands for, forget it, or accept that one was restored."""


@clusters.command("list")
@session.output_option
@session.config_option
def show(form: str, config: Path | None) -> None:
    """List the clusters of the settings: whether they answer, are the ones they were, and were not restored."""
    settings = session.interactive_settings(config)
    known = session.run_with_redis(lambda opened: ClusterIdentities(settings, opened).remembered(), config)
    found = cluster_clients.run_with_clusters(_read_states(settings, known))
    if form == "json":
        output.show_json({"clusters": found})
        return
    styles = {"fine": "green", "refused": "bold red", "restored": "bold red"}
    rows = [
        (
            one["name"],
            one["uid"],
            Text(one["state"], style=styles.get(one["state"], "yellow")),
            one["sources"],
            one["why"],
        )
        for one in found
    ]
    output.show([output.table("Clusters", ("name", "uid", "state", "sources", "why"), rows, numbers=("sources",))])


@clusters.command("forget")
@click.argument("name")
@session.config_option
def forget(name: str, config: Path | None) -> None:
    """Forget which cluster NAME stood for; the next one that answers under it is taken for the right one."""
    settings = session.interactive_settings(config)
    if session.run_with_redis(lambda opened: ClusterIdentities(settings, opened).forget(name), config):
        click.echo(f"{output.clean(name)} is forgotten; the next cluster that answers under this name is remembered.")
    else:
        click.echo(f"Nothing is remembered of {output.clean(name)}; nothing was changed.")


@clusters.command("accept-restore")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Don't ask.")
@session.config_option
def accept(name: str, yes: bool, config: Path | None) -> None:
    """Accept that cluster NAME was restored from a backup, and is as it should be.

    Until then nothing that is missing in it counts as deleted, and nothing of it is swept. Afterwards each object that
    is still missing is taken for deleted, within what policy and guard allow; `knell sources drop SOURCE` before it
    forgets those that a source holds, so that what they own stays.
    """
    settings = session.interactive_settings(config)
    if name not in settings.clusters:
        known = ", ".join(settings.clusters) or "none"
        raise session.InvalidUsage(f"{output.clean(name)!r} is no cluster of the settings ({known})")
    found, question = session.run_with_redis(lambda opened: _restore_question(opened, name), config)
    if not found.why:
        click.echo(f"Nothing shows that {output.clean(name)} was restored from a backup; nothing was changed.")
        return
    if not yes:
        session.confirm(output.clean(question))
    session.run_with_redis(lambda opened: _accept(opened, name, found), config)
    click.echo(
        f"{output.clean(name)} is accepted as it is; all of its sources are listed again within seconds, and then "
        "what workers hold because of it is checked again."
    )


async def _restore_question(installation: Installation, name: str) -> tuple[RestoreState, str]:
    settings = installation.settings
    try:
        async with cluster_clients.open_cluster(settings, name) as (cluster, uid):
            found = await restore_state(installation, cluster, uid)
    except ClusterError as error:
        raise session.CommandError(str(error)) from None
    held = {source: (await held_objects(installation, source)).count for source in sources_in_cluster(settings, name)}
    which = ", ".join(f"{source} holds {count_objects(count)}" for source, count in held.items() if count)
    return found, (
        f"{name}: {found.why}. If you accept it, what is missing in it counts as deleted again, and what it owned "
        f"outside is removed{f' ({which}; `knell sources drop SOURCE` forgets them instead)' if which else ''}. Accept?"
    )


async def _accept(installation: Installation, name: str, found: RestoreState) -> None:
    try:
        async with cluster_clients.open_cluster(installation.settings, name) as (cluster, uid):
            await accept_restore(installation, cluster, uid, found.record, session.operator())
    except (ClusterError, ConcurrentChange) as error:
        raise session.CommandError(str(error)) from None


async def _read_states(settings: Settings, known: dict[str, str]) -> list[dict[str, Any]]:
    installation = Installation(settings, name="knell-cli", patience=session.PATIENCE)
    identities = ClusterIdentities(settings, installation)
    found = []
    try:
        restored = await LeaseCounterStore(installation).restored_clusters()
        for name in settings.clusters:
            sources = sum(cluster_of(settings, source) == name for source in settings.sources)
            state, uid, why = "fine", known.get(name, ""), ""
            try:
                async with connect_to(settings, name) as cluster:
                    uid = await cluster.identity()
                identities.check(name, uid, known)
                if uid in restored:
                    state, why = "restored", restore_reason(name, restored[uid].why)
            except WrongCluster as error:
                state, why = "refused", str(error)
            except ClusterError as error:
                state, why = "not reached", str(error)
            found.append({"name": name, "uid": uid, "state": state, "sources": sources, "why": why})
    finally:
        await installation.aclose()
    return found
