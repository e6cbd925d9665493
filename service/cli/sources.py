"""`knell sources`: what is watched, how it stands, what of it is not believed, and a person's word on that.
No object is touched here: what is released is proven once more by whoever watches, what is dropped is forgotten."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.text import Text

from service.cli import objects, output, session
from service.cli.holders import Holders, holders, words
from service.cli.jobs import confirm
from service.cli.moments import Moment, moments
from service.cli.notices import are, feature_off, objects_of, told
from service.engine.installation import Installation
from service.engine.inventory import Inventory
from service.engine.moments import Moments
from service.engine.views.reading import moment, server_ms
from service.engine.views.sources import HeldObjects, Keepsakes, SourceView, every_source, held_objects, keepsakes
from service.engine.witnesses import is_until_accepted
from service.settings import Settings

_NUMBERS = ("owned", "held")


@click.group()
def sources() -> None:
    """What is watched and how it stands: list, relist, release, drop."""


@sources.command("list")
@session.output_option
@session.config_option
def listing(form: str, config: Path | None) -> None:
    """Every source: what it watches, since when its picture is complete, who holds its Lease, what is wrong.

    Also those that Redis remembers although the settings do not declare them any more.
    """
    settings = session.prepared(config)
    now, found = session.call(_every, config)
    copies = session.call(lambda opened: Moments(opened).every(), config)
    holding, enabled = objects.run(_ask_clusters(settings, copies))
    if form == "json":
        pictures = [
            {**_picture(one, holding.get(one.name)), "feature_off": feature_off(one, settings),
             "enabled": enabled.get(one.name)}
            for one in found
        ]  # fmt: skip
        output.show_json({"at": now, "sources": pictures})
        return
    if not found:
        output.show([output.note("There is no source, neither in the settings nor on the server.")])
        return
    columns = ("source", "state", "resource", "cluster", "mode", "owned", "held", "listed", "version", "Lease")
    rows = [
        (one.name, _state(one, feature_off(one, settings)), one.resource, one.cluster or one.cluster_uid, one.mode,
         _or_dash(one.owned), one.held,
         output.relative(one.listed, now) or "never", one.resource_version or "-",
         words(holding.get(one.name), settings.watch.lease) if one.declared else "-")
        for one in found
    ]  # fmt: skip
    output.show([output.table("sources", columns, rows, numbers=_NUMBERS, wide=("mode", "version", "Lease"))])
    output.show(
        output.note(f"{one.name} was swept {output.relative(one.swept, now)}: {one.orphans} orphans")
        for one in found
        if one.swept is not None
    )
    output.show(output.note(line, "yellow") for one in found for line in told(one, settings))
    output.show(output.note(f"{one.fault}: {one.mend}.", "yellow") for one in enabled.values() if one.fault)
    unknown = dict.fromkeys(one.unknown for one in holding.values() if one.unknown)
    output.show(output.note(f"Who holds Leases is not known: {why}") for why in unknown)


@sources.command("relist")
@click.argument("name")
@session.config_option
def relist(name: str, config: Path | None) -> None:
    """Have everything of source NAME listed anew, as if its watch had just begun."""

    async def ask(installation: Installation) -> None:
        _declared(await _one(installation, name), "nobody would list it")
        await Inventory(installation, name).ask_for_relist()

    session.call(ask, config)
    click.echo(f"A list of {output.clean(name)} is asked for; whoever watches it begins within seconds.")


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
        view = _declared(await _one(installation, name), "nobody would look for its objects again")
        return view, await held_objects(installation, name)

    view, found = session.call(look, config)
    if not found.count:
        click.echo(f"{output.clean(name)} holds nothing; nothing was changed.")
        return
    if all(map(is_until_accepted, found.reasons)):
        raise session.Trouble(output.clean(next(iter(found.reasons))))
    if not yes:
        confirm(output.clean(_question(view, found, _IF_RELEASED[view.mode])))
    session.call(lambda opened: Inventory(opened, name).release_held(), config)
    click.echo(
        f"{objects_of(found.count)} of {output.clean(name)} {are(found.count)} believed to be deleted; "
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
    view = session.call(lambda opened: _one(opened, name), config)
    if view.declared:
        _drop_held(view, yes=yes, config=config)
    else:
        _drop_all(view, yes=yes, config=config)


def _drop_held(view: SourceView, *, yes: bool, config: Path | None) -> None:
    found = session.call(lambda opened: held_objects(opened, view.name), config)
    if not found.count:
        click.echo(f"{output.clean(view.name)} holds nothing; nothing was changed.")
        return
    if view.mode != "observe":
        raise session.Trouble(
            f"the objects that {output.clean(view.name)} holds are there and wait with our finalizer on them, so they "
            f"can't be forgotten; `knell sources release {output.clean(view.name)}` has them cleaned up, "
            f"`knell gc disable KIND/NAME` lets one go"
        )
    if not yes:
        confirm(output.clean(_question(view, found, _IF_DROPPED)))
    dropped = session.call(lambda opened: Inventory(opened, view.name).drop_held(), config)
    click.echo(f"{objects_of(dropped)} of {output.clean(view.name)} {are(dropped)} forgotten.")


def _drop_all(view: SourceView, *, yes: bool, config: Path | None) -> None:
    kept = session.call(lambda opened: keepsakes(opened, view.name), config)
    if not yes:
        confirm(output.clean(_farewell(view, kept)))

    async def forget(installation: Installation) -> None:
        await Inventory(installation, view.name).drop()
        await Moments(installation).forget_source(view.name)

    session.call(forget, config)
    click.echo(f"Everything of {output.clean(view.name)} is forgotten.")


_IF_RELEASED = {
    "observe": "If you release them, each is looked for once more, and what is still missing is taken for deleted: "
    "what it owned outside is removed. Release them?",
    "finalizer": "If you release them, their deletion goes on although their CRD goes, too: what they own outside is "
    "removed. Release them?",
}  # fmt: skip
_IF_DROPPED = (
    "If you drop them, they are forgotten: what they owned outside stays, and nobody is told again. Drop them?"
)


def _question(view: SourceView, found: HeldObjects, then: str) -> str:
    reasons = "; ".join(f"{count} because {why}" for why, count in found.reasons.items())
    named = f" ({', '.join(found.names)}{', ...' if found.count > len(found.names) else ''})" if found.names else ""
    what = "does not believe that" if view.mode == "observe" else "holds the deletion of"
    tail = f" {are(found.count)} deleted" if view.mode == "observe" else ""
    return f"{view.name} {what} {objects_of(found.count)}{named}{tail}: {reasons}. {then}"


def _farewell(view: SourceView, kept: Keepsakes) -> str:
    lost = (
        f" {objects_of(kept.gone)} of them {are(kept.gone)} gone, and what recognises their resources is lost where "
        f"their deletion is still open."
        if kept.gone
        else ""
    )
    unread = f" {kept.unreadable} records can't be read." if kept.unreadable else ""
    return (
        f"The settings declare no source {view.name}. If you drop it, everything that is remembered of it is "
        f"forgotten: where its watch stood, its guard, and {objects_of(kept.records)}.{lost}{unread} "
        f"Finalizers on objects stay as they are. Drop it?"
    )


async def _ask_clusters(settings: Settings, copies: Mapping[str, str]) -> tuple[dict[str, Holders], dict[str, Moment]]:
    return await asyncio.gather(holders(settings), moments(settings, copies))


async def _every(installation: Installation) -> tuple[Any, list[SourceView]]:
    return moment(await server_ms(installation.shards[0])), await every_source(installation)


async def _one(installation: Installation, name: str) -> SourceView:
    found = await every_source(installation)
    for view in found:
        if view.name == name:
            return view
    known = ", ".join(output.clean(view.name) for view in found) or "none"
    raise session.Misuse(f"no source {output.clean(name)} is known; there are: {known}")


def _declared(view: SourceView, otherwise: str) -> SourceView:
    if not view.declared:
        name = output.clean(view.name)
        raise session.Misuse(
            f"the settings do not declare {name}, so {otherwise}; declare it again, by this name also if it was "
            f"renamed, or forget it by `knell sources drop {name}`"
        )
    return view


def _picture(view: SourceView, holding: Holders | None) -> dict[str, Any]:
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
