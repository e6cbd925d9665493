"""`knell held`: lists events, deletions and jobs that need an operator, and replays or drops them.
Replaying a held job retries it, dropping it abandons it, with the same confirmation. Entries that only wait are listed
by --waiting, and can be replayed or dropped as well."""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Final, TypeAlias

import click
import msgspec

from service.cli import addresses, output, session
from service.cli.jobs import abandon_job, job_name, retry_job, short_job
from service.contract import decode_event
from service.contract.resource_names import qualified, short_kind
from service.engine.batch_reads import texts
from service.engine.installation import Installation
from service.engine.inventory import Inventory
from service.engine.keys import deletion_of
from service.engine.shard import Shard
from service.engine.views.deletions import DeletionView, event_of, one_deletion, some_deletions
from service.engine.views.held import KINDS, HeldList, HeldView, held_members, list_held, shards_holding

_KIND = click.Choice(KINDS)
_HELD: Final = "KIND/NAME[#JOB]|ID"
_WIDE: Final = ("name", "again in", "about", "shard")

Whose: TypeAlias = Mapping[str, DeletionView]


@click.group()
def held() -> None:
    """What needs an operator: list, replay, drop."""


@held.command("list")
@click.option("--kind", type=_KIND, help="Only events, deletions or jobs.")
@click.option("--waiting", is_flag=True, help="What waits by itself and needs no operator, instead.")
@click.option("--limit", default=50, show_default=True, type=click.IntRange(min=1), help="Entries at most.")
@session.listing_option
@session.config_option
def listing(kind: str | None, waiting: bool, limit: int, form: str, config: Path | None) -> None:
    """Everything that needs an operator, with the reason; what is held longest comes first."""
    found, whose = session.run_with_redis(lambda opened: _listed(opened, kind, limit, waiting=waiting), config)
    _show_listing(found, whose, form, waiting=waiting)


async def _listed(installation: Installation, kind: str | None, limit: int, *, waiting: bool) -> tuple[HeldList, Whose]:
    found = await list_held(installation, kind=kind, limit=limit, waiting=waiting)
    return found, await some_deletions(installation, filter(None, map(_deletion, found.held)))


def _deletion(view: HeldView) -> str:
    """The deletion id of a held deletion or job; empty for an event."""
    return "" if view.kind == "event" else deletion_of(view.name.partition(":")[2])


def _show_listing(found: HeldList, whose: Whose, form: str, *, waiting: bool) -> None:
    if form == "json":
        output.show_json(found)
        return
    if form == "name":
        output.show_names(_name(view, whose.get(_deletion(view))) for view in found.held)
        return
    if not found.held:
        output.show([output.note("Nothing waits." if waiting else "Nothing is held.")])
        _show_others(found, waiting=waiting)
        return
    short = addresses.short_ids(one.uid for one in whose.values())
    rows = [
        (*_brief(view, whose.get(_deletion(view)), short), output.age(view.since, found.at), view.name,
         _again(view, found), view.about, view.shard, view.why)
        for view in found.held
    ]  # fmt: skip
    columns = ("id", "kind", "object", "age", *_WIDE, "reason")
    numbers = ("age", "again in", "shard")
    title = "waiting" if waiting else "held"
    output.show([output.table(title, columns, rows, numbers=numbers, wide=_WIDE, cut="reason")])
    if found.more:
        output.show([output.note(f"and more (--limit, now {len(found.held)})")])
    _show_others(found, waiting=waiting)


def _show_others(found: HeldList, *, waiting: bool) -> None:
    if found.waiting and not waiting:
        output.show([output.note(f"{found.waiting} more wait by themselves (`--waiting` lists them).")])


def _name(view: HeldView, whose: DeletionView | None) -> str:
    """An address that other commands accept."""
    if whose is None:
        return view.name
    return job_name(view.name, whose) if view.kind == "job" else addresses.kind_and_name(whose.resource, whose.name)


def _brief(view: HeldView, whose: DeletionView | None, short: Mapping[str, str]) -> tuple[str, str, str]:
    """Id, kind and object; empty where the record is gone."""
    if whose is None:
        return view.name, "", ""
    kind, named = short_kind(whose.resource), qualified(whose.namespace, whose.name)
    if view.kind == "job":
        return short_job(view.name, whose, short), kind, named
    return short.get(whose.uid, "-"), kind, named


def _again(view: HeldView, found: HeldList) -> str:
    return output.span(max(timedelta(0), view.again - found.at)) if found.at and view.again else ""


@held.command("replay")
@addresses.address_argument(_HELD, required=False)
@click.option("--all", "everything", is_flag=True, help="Everything held, or everything of one kind.")
@click.option("--kind", type=_KIND, help="With --all: only events, deletions or jobs.")
@click.option("--shard", type=click.IntRange(min=0), help="Where two shards have an event of this name.")
@session.config_option
def replay(
    what: str | None,
    namespace: str | None,
    cluster: str | None,
    everything: bool,
    kind: str | None,
    shard: int | None,
    config: Path | None,
) -> None:
    """Try something again: an event or deletion goes back on the stream, a job is due at once.

    It is addressed by its object (awscluster/shop -n team), a job also by its number (awscluster/shop#1.3), or by its
    id, as `knell held list` shows it.
    """
    if everything == (what is not None):
        raise session.InvalidUsage("give one address, or --all")
    if what is None:
        session.run_with_redis(lambda opened: _replay_all(opened, kind), config)
    else:
        address = addresses.Address(what, namespace, cluster)
        click.echo(session.run_with_redis(lambda opened: _replay_one(opened, address, shard), config))


async def _replay_all(installation: Installation, kind: str | None) -> None:
    """Collects all names first, because replaying changes the set that is scanned."""
    found = [
        (shard, member.name)
        for shard in installation.shards
        for page in [page async for page in held_members(shard, kind)]
        for member in page
    ]
    failed = 0
    for shard, name in found:
        try:
            click.echo(await _replay(installation, shard, name))
        except session.CommandError as trouble:
            failed += 1
            click.echo(trouble.message, err=True)
    click.echo(f"{len(found) - failed} replayed, {failed} not.")
    if failed:
        raise session.CommandError("not everything could be replayed; the reasons stand above")


async def _replay_one(installation: Installation, address: addresses.Address, shard: int | None) -> str:
    name = await addresses.find_held(installation, address)
    return await _replay(installation, await _shard_of(installation, name, shard), name)


async def _replay(installation: Installation, shard: Shard, name: str) -> str:
    kind, _, identity = name.partition(":")
    if kind == "job":
        return await retry_job(installation, identity)
    event = await event_of(installation, identity) if kind == "deletion" else []
    if kind == "deletion" and not event:
        raise session.CommandError(f"the record of {output.clean(name)} is gone; drop it, a relist brings it back")
    word = await shard.unhold(name, replay=True, who=session.operator(), event=list(event))
    if word != "replayed":
        raise session.CommandError(_not_held(name))
    return f"{output.clean(name)} is on the stream again."


@held.command("drop")
@addresses.address_argument(_HELD)
@click.option("--yes", is_flag=True, help="Don't ask.")
@click.option("--shard", type=click.IntRange(min=0), help="Where two shards have an event of this name.")
@session.config_option
def drop(
    what: str, namespace: str | None, cluster: str | None, yes: bool, shard: int | None, config: Path | None
) -> None:
    """Drop something for good. It is addressed as in `knell held replay`."""
    address = addresses.Address(what, namespace, cluster)
    name, number, told = session.run_with_redis(lambda opened: _find_held(opened, address, shard), config)
    kind, _, identity = name.partition(":")
    if kind == "job":
        click.echo(abandon_job(identity, yes=yes, config=config))
        return
    if not yes:
        session.confirm(output.clean(_QUESTIONS[kind].format(name=told)))
    word = session.run_with_redis(lambda opened: _drop(opened, number, name), config)
    if word == "leftover":
        click.echo(
            f"{output.clean(name)} is dropped; its deletion goes on, for it was planned by way of another event."
        )
        return
    if word != "dropped":
        raise session.CommandError(_not_held(name))
    click.echo(f"{output.clean(name)} is dropped.")


_QUESTIONS = {
    "event": "{name} was never read by anybody. If you drop it, what it asked for is not done. Drop it?",
    "deletion": "If you drop {name}, nothing outside is removed for it: what its object owns stays, and the object is "
    "released as soon as it can be. Drop it?",
}  # fmt: skip


async def _drop(installation: Installation, number: int, name: str) -> str:
    """An object that still exists gets another deletion, which keeps everything and removes the finalizer. The watcher
    publishes it for an object with our finalizer, this command for an observed one. The drop is recorded first, so that
    every later plan for this object keeps everything."""
    shard = installation.shards[number]
    fields = await _event_fields(installation, shard, name)
    memory, uid = Inventory(installation, fields.get("source", "")), fields.get("uid", "")
    lasting = bool(memory.source and uid and fields.get("reason") != "orphan")
    record = await memory.get(uid) if lasting else None
    # An observed object has an inventory record, in which the drop is kept.
    new = lasting and not record and await memory.save_dropped(uid, fields.get("namespace", ""), fields.get("name", ""))
    word = await shard.unhold(name, replay=False, who=session.operator())
    if word != "dropped":
        if new:
            await memory.remove_dropped([uid])
        return word
    if name.startswith("event:") or not fields:
        return word
    if record is not None and record.gone:
        event = decode_event({key.encode(): value.encode() for key, value in fields.items()})
        await installation.publish([msgspec.structs.replace(event, round=event.round + 1)])
    await memory.request_relist()
    return word


async def _event_fields(installation: Installation, shard: Shard, name: str) -> dict[str, str]:
    """Fields of the held event, or of the event of a held deletion; empty if there is none."""
    kind, _, identity = name.partition(":")
    if kind == "deletion":
        known = await event_of(installation, identity)
        return dict(zip(map(str, known[::2]), map(str, known[1::2]), strict=True))
    return texts(await installation.caller.command("HGETALL", f"{shard.stem}kept:{identity}"))


async def _find_held(installation: Installation, address: addresses.Address, shard: int | None) -> tuple[str, int, str]:
    """Its name, its shard number, and its description in the confirmation."""
    name = await addresses.find_held(installation, address, strict=True)
    place = await _shard_of(installation, name, shard)
    view = await one_deletion(installation, name.removeprefix("deletion:")) if name.startswith("deletion:") else None
    return name, place.number, f"{name} ({view.object})" if view is not None else name


async def _shard_of(installation: Installation, name: str, shard: int | None) -> Shard:
    found = await shards_holding(installation, name)
    if shard is not None:
        found = [number for number in found if number == shard]
    if not found:
        raise session.CommandError(_not_held(name))
    if len(found) > 1:
        raise session.InvalidUsage(f"shards {', '.join(map(str, found))} have a {name}; say which by --shard")
    return installation.shards[found[0]]


def _not_held(name: str) -> str:
    return f"{output.clean(name)} is not held (any more); `knell held list` shows what is"
