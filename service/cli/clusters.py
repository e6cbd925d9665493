"""`knell clusters`: which cluster each name of the settings stands for, and how to forget it when that is to change.
A name that suddenly leads to another cluster is refused by everything else until a person has said so here."""

from pathlib import Path
from typing import Any

import click
from rich.text import Text

from service.cli import objects, output, session
from service.cluster import ClusterError
from service.settings import Settings
from service.stream.installation import Installation
from service.watching.clusters import Identities, OtherCluster, cluster_of, reached


@click.group()
def clusters() -> None:
    """Show which cluster each name stands for, or forget it."""


@clusters.command("list")
@session.output_option
@session.config_option
def show(form: str, config: Path | None) -> None:
    """List the clusters of the settings: whether they answer, and whether they are the ones they were."""
    settings = session.prepared(config)
    known = session.call(lambda opened: Identities(settings, opened).remembered(), config)
    found = objects.run(_look(settings, known))
    if form == "json":
        output.show_json({"clusters": found})
        return
    styles = {"fine": "green", "refused": "bold red"}
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
    settings = session.prepared(config)
    if session.call(lambda opened: Identities(settings, opened).forget(name), config):
        click.echo(f"{output.clean(name)} is forgotten; the next cluster that answers under this name is remembered.")
    else:
        click.echo(f"Nothing is remembered of {output.clean(name)}; nothing was changed.")


async def _look(settings: Settings, known: dict[str, str]) -> list[dict[str, Any]]:
    installation = Installation(settings, name="knell-cli", patience=session.PATIENCE)
    identities = Identities(settings, installation)
    found = []
    try:
        for name in settings.clusters:
            sources = sum(cluster_of(settings, source) == name for source in settings.sources)
            state, uid, why = "fine", known.get(name, ""), ""
            try:
                async with reached(settings, name) as cluster:
                    uid = await cluster.identity()
                identities.check(name, uid, known)
            except OtherCluster as error:
                state, why = "refused", str(error)
            except ClusterError as error:
                state, why = "not reached", str(error)
            found.append({"name": name, "uid": uid, "state": state, "sources": sources, "why": why})
    finally:
        await installation.aclose()
    return found
