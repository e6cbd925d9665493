"""`knell sources`: lists sources and their state, requests a relist, and releases or drops the objects they hold.
It changes no object: the watcher checks released objects once more, dropped ones are forgotten."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.text import Text

from service.cli import cluster_clients, output, session
from service.cli.enabled_time_comparison import EnabledTimeComparison, compare_enabled_times
from service.cli.lease_holders import LeaseHolders, holders_text, read_lease_holders
from service.cli.source_notices import count_objects, feature_off, is_or_are, notices_of
from service.engine.batch_reads import server_ms, to_datetime
from service.engine.enabled_times import EnabledTimes
from service.engine.installation import Installation
from service.engine.inventory import Inventory
from service.engine.lease_counters import is_restore_reason
from service.engine.views.sources import (
    HeldObjects,
    InventoryCounts,
    SourceView,
    every_source,
    held_objects,
    inventory_counts,
)
from service.settings import Settings

_NUMBERS = ("owned", "held")


@click.group()
def sources() -> None:
    """Sources and their state: list, relist, release, drop."""


@sources.command("list")
@session.output_option
@session.config_option
def listing(form: str, config: Path | None) -> None:
    """Every source: what it watches, when it was last listed, who holds its Lease, what is wrong.

    Also those that Redis remembers although the settings do not declare them any more.
    """
    settings = session.interactive_settings(config)
    now, found = session.run_with_redis(_read_sources, config)
    copies = session.run_with_redis(lambda opened: EnabledTimes(opened).all_times(), config)
    holding, enabled = cluster_clients.run_with_clusters(_read_clusters(settings, copies))
    if form == "json":
        documents = [
            {**_as_document(one, holding.get(one.name)), "feature_off": feature_off(one, settings),
             "enabled": enabled.get(one.name)}
            for one in found
        ]  # fmt: skip
        output.show_json({"at": now, "sources": documents})
        return
    if not found:
        output.show([output.note("There is no source, neither in the settings nor on the server.")])
        return
    columns = ("source", "state", "resource", "cluster", "mode", "owned", "held", "listed", "version", "Lease")
    rows = [
        (one.name, _state(one, feature_off(one, settings)), one.resource, one.cluster or one.cluster_uid, one.mode,
         _or_dash(one.owned), one.held,
         output.relative(one.listed, now) or "never", one.resource_version or "-",
         holders_text(holding.get(one.name), settings.watch.lease) if one.declared else "-")
        for one in found
    ]  # fmt: skip
    output.show([output.table("sources", columns, rows, numbers=_NUMBERS, wide=("mode", "version", "Lease"))])
    output.show(
        output.note(f"{one.name} was swept {output.relative(one.swept, now)}: {one.orphans} orphans")
        for one in found
        if one.swept is not None
    )
    output.show(output.note(line, "yellow") for one in found for line in notices_of(one, settings))
    output.show(output.note(f"{one.fault}: {one.mend}.", "yellow") for one in enabled.values() if one.fault)
    unknown = dict.fromkeys(one.unknown for one in holding.values() if one.unknown)
    output.show(output.note(f"Who holds Leases is not known: {why}") for why in unknown)


@sources.command("relist")
@click.argument("name")
@session.config_option
def relist(name: str, config: Path | None) -> None:
    """List all objects of source NAME again, as if its watch had just begun."""

    async def ask(installation: Installation) -> None:
        _require_declared(await _find_source(installation, name), "no process would list it")
        await Inventory(installation, name).request_relist()

    session.run_with_redis(ask, config)
    click.echo(f"A list of {output.clean(name)} is requested; the replica that watches it begins within seconds.")


@sources.command("release")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Don't ask.")
@session.config_option
def release(name: str, yes: bool, config: Path | None) -> None:
    """Believe what source NAME holds: that its missing objects are really deleted.

    Each of them is looked for once more by the next list, and only what is still gone then is published and cleaned
    up, within what policy and guard allow. An object that is there again is left alone.
    """

    async def look(installation: Installation) -> tuple[SourceView, HeldObjects]:
        view = _require_declared(await _find_source(installation, name), "no process would look for its objects again")
        return view, await held_objects(installation, name)

    view, found = session.run_with_redis(look, config)
    if not found.count:
        click.echo(f"{output.clean(name)} holds nothing; nothing was changed.")
        return
    if all(map(is_restore_reason, found.reasons)):
        raise session.CommandError(output.clean(next(iter(found.reasons))))
    if not yes:
        session.confirm(output.clean(_question(view, found, _IF_RELEASED[view.mode])))
    session.run_with_redis(lambda opened: Inventory(opened, name).release_held(), config)
    click.echo(
        f"{count_objects(found.count)} of {output.clean(name)} {is_or_are(found.count)} believed to be deleted; "
        f"the next list, within seconds, proves it and publishes what is gone."
    )


@sources.command("drop")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Don't ask.")
@session.config_option
def drop(name: str, yes: bool, config: Path | None) -> None:
    """Forget what source NAME holds: nothing is ever done for those objects.

    Of a source that the settings do not declare any more everything is forgotten.
    """
    view = session.run_with_redis(lambda opened: _find_source(opened, name), config)
    if view.declared:
        _drop_held(view, yes=yes, config=config)
    else:
        _drop_all(view, yes=yes, config=config)


def _drop_held(view: SourceView, *, yes: bool, config: Path | None) -> None:
    found = session.run_with_redis(lambda opened: held_objects(opened, view.name), config)
    if not found.count:
        click.echo(f"{output.clean(view.name)} holds nothing; nothing was changed.")
        return
    if view.mode != "observe":
        raise session.CommandError(
            f"the objects that {output.clean(view.name)} holds are there and wait with our finalizer on them, so they "
            f"can't be forgotten; `knell sources release {output.clean(view.name)}` has them cleaned up, "
            f"`knell gc disable KIND/NAME` releases one"
        )
    if not yes:
        session.confirm(output.clean(_question(view, found, _IF_DROPPED)))
    dropped = session.run_with_redis(lambda opened: Inventory(opened, view.name).drop_held(), config)
    click.echo(f"{count_objects(dropped)} of {output.clean(view.name)} {is_or_are(dropped)} forgotten.")


def _drop_all(view: SourceView, *, yes: bool, config: Path | None) -> None:
    kept = session.run_with_redis(lambda opened: inventory_counts(opened, view.name), config)
    if not yes:
        session.confirm(output.clean(_drop_question(view, kept)))

    async def forget(installation: Installation) -> None:
        await Inventory(installation, view.name).delete()
        await EnabledTimes(installation).remove_source(view.name)

    session.run_with_redis(forget, config)
    click.echo(f"Everything of {output.clean(view.name)} is forgotten.")


_IF_RELEASED = {
    "observe": "If you release them, each is looked for once more, and what is still missing is taken for deleted: "
    "what it owned outside is removed. Release them?",
    "finalizer": "If you release them, their deletion goes on although their CRD goes, too: what they own outside is "
    "removed. Release them?",
}  # fmt: skip
_IF_DROPPED = (
    "If you drop them, they are forgotten: what they owned outside stays, and it is not reported again. Drop them?"
)


def _question(view: SourceView, found: HeldObjects, then: str) -> str:
    reasons = "; ".join(f"{count} because {why}" for why, count in found.reasons.items())
    named = f" ({', '.join(found.names)}{', ...' if found.count > len(found.names) else ''})" if found.names else ""
    what = "does not believe that" if view.mode == "observe" else "holds the deletion of"
    tail = f" {is_or_are(found.count)} deleted" if view.mode == "observe" else ""
    return f"{view.name} {what} {count_objects(found.count)}{named}{tail}: {reasons}. {then}"


def _drop_question(view: SourceView, kept: InventoryCounts) -> str:
    lost = (
        f" {count_objects(kept.gone)} of them {is_or_are(kept.gone)} gone, and what recognises their resources is lost "
        f"where their deletion is still open."
        if kept.gone
        else ""
    )
    unread = f" {kept.unreadable} records can't be read." if kept.unreadable else ""
    return (
        f"The settings declare no source {view.name}. If you drop it, everything that is remembered of it is "
        f"forgotten: where its watch stood, its guard, and {count_objects(kept.records)}.{lost}{unread} "
        f"Finalizers on objects stay as they are. Drop it?"
    )


async def _read_clusters(
    settings: Settings, copies: Mapping[str, str]
) -> tuple[dict[str, LeaseHolders], dict[str, EnabledTimeComparison]]:
    return await asyncio.gather(read_lease_holders(settings), compare_enabled_times(settings, copies))


async def _read_sources(installation: Installation) -> tuple[Any, list[SourceView]]:
    return to_datetime(await server_ms(installation.shards[0])), await every_source(installation)


async def _find_source(installation: Installation, name: str) -> SourceView:
    found = await every_source(installation)
    for view in found:
        if view.name == name:
            return view
    known = ", ".join(output.clean(view.name) for view in found) or "none"
    raise session.InvalidUsage(f"no source {output.clean(name)} is known; there are: {known}")


def _require_declared(view: SourceView, otherwise: str) -> SourceView:
    if not view.declared:
        name = output.clean(view.name)
        raise session.InvalidUsage(
            f"the settings do not declare {name}, so {otherwise}; declare it again, by this name also if it was "
            f"renamed, or forget it by `knell sources drop {name}`"
        )
    return view


def _as_document(view: SourceView, holding: LeaseHolders | None) -> dict[str, Any]:
    shown: dict[str, Any] = {name: getattr(view, name) for name in view.__struct_fields__}
    leases = None if holding is None or holding.unknown else msgspec.to_builtins(holding.leases)
    return {**shown, "leases": leases, "leases_unknown": holding.unknown if holding is not None else ""}


def _state(view: SourceView, feature: str) -> Text:
    if not view.declared:
        return Text("not declared", style="yellow")
    if feature:
        return Text("switched off", style="yellow")
    if view.problem:
        return Text("in trouble", style="bold red")
    if view.held or view.guard_tripped is not None:
        return Text("holds", style="yellow")
    return Text("fine", style="green") if view.listed is not None else Text("never listed", style="yellow")


def _or_dash(value: int | None) -> str:
    return "-" if value is None else str(value)
