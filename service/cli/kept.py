"""`knell kept`: lists resources that were kept on purpose, and forgets that they were.
A decision to keep is a record in Redis and a tag on the resources; both are shown, and removed together."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import msgspec

from service.cli import addresses, output, session
from service.cli.addresses import Address, AddressMatch
from service.cli.kept_tags import (
    configured_places,
    kept_places,
    may_be_tagged,
    open_tags,
    place_forms,
    provider_of,
    remove_tags,
    search_tags,
    show_removals,
    untag_command,
)
from service.contract.kept import RETAINED_TAG, KeepDecision, KeptResource
from service.engine.batch_reads import to_datetime
from service.engine.installation import Installation
from service.engine.inventory import Inventory
from service.engine.kept_store import KeptStore
from service.engine.orphans import OrphanSightings

_FORMS = place_forms()


class KeptEntry(msgspec.Struct, frozen=True):
    """Decisions under one name; None if the record can't be read."""

    name: str
    decisions: list[KeepDecision] | None


class UnrecordedTag(msgspec.Struct, frozen=True, kw_only=True):
    """A resource with our tag, but without a record of its object; `command` removes the tag."""

    place: str
    kind: str
    id: str
    value: str
    command: str


class UnreadPlace(msgspec.Struct, frozen=True, kw_only=True):
    place: str
    why: str


@click.group()
def kept() -> None:
    """What was kept on purpose: list, forget."""


# ---- list


@kept.command("list")
@click.option("--tags", is_flag=True, help="Also look in the clouds for tags of which there is no record.")
@click.option(
    "--place", "places", multiple=True, metavar="PLACE",
    help=f"With --tags, look here as well: {_FORMS}.",
)  # fmt: skip
@session.listing_option
@session.config_option
def listing(tags: bool, places: tuple[str, ...], form: str, config: Path | None) -> None:
    """Everything that was retained, abandoned or dropped, by place and name; a later object of that name is held.

    --tags looks in the places of the records, in the groups of azure.nodes, and where --place says: settings name no
    region of AWS.
    """
    patterns = [known.pattern for known in kept_places()]
    if odd := [place for place in places if not any(re.fullmatch(pattern, place) for pattern in patterns)]:
        raise session.InvalidUsage(f"{output.clean(odd[0])!r} is no place; write {_FORMS}")
    if places and not tags:
        raise session.InvalidUsage("--place says where to look for tags; say --tags as well")
    found = session.run_with_redis(_read_entries, config)
    unrecorded, unread = list[UnrecordedTag](), list[UnreadPlace]()
    if tags:
        unrecorded, unread = session.run_with_redis(lambda opened: _search(opened, found, places), config)
    if form == "json":
        output.show_json({"kept": found} | ({"unrecorded": unrecorded, "unread": unread} if tags else {}))
        return
    if form == "name":
        output.show_names(dict.fromkeys(name for one in found for name in _object_names(one)))
        return
    for one in found:
        _show(one)
    if not found:
        output.show([output.note("Nothing was kept on purpose, as far as is remembered.")])
    if tags:
        _show_unrecorded(unrecorded, unread)


def _object_names(one: KeptEntry) -> list[str]:
    """Addresses of the objects, as `knell kept forget` accepts them."""
    if one.decisions is None:
        return [one.name]
    return [addresses.kind_and_name(each.resource, each.object_name) for each in one.decisions]


def _show(one: KeptEntry) -> None:
    if one.decisions is None:
        output.show([output.facts(one.name, [("record", "can't be read")])])
    for decision in one.decisions or ():
        output.show([output.facts(one.name, _facts(decision))])
        if decision.resources:
            rows = [(f"{each.kind} {each.id}", each.tag or "tagged") for each in decision.resources]
            output.show([output.table("resources", ("resource", "tag"), rows)])


def _facts(decision: KeepDecision) -> Iterator[tuple[str, str]]:
    yield "kept with", f"{decision.object} (uid {decision.uid})"
    yield "since", output.moment(to_datetime(decision.at))
    yield "why", decision.why
    yield "identity", decision.identity
    untagged = sum(bool(each.tag) for each in decision.resources)
    yield "resources", f"{len(decision.resources)} known" + (f", {untagged} not tagged" if untagged else "")
    yield "remark", decision.remark


def _show_unrecorded(found: list[UnrecordedTag], unread: list[UnreadPlace]) -> None:
    if found:
        rows = [(f"{one.kind} {one.id}", one.value) for one in found]
        output.show([output.table("tagged, without a record", ("resource", "kept with"), rows)])
        output.show([output.note("The command that takes each tag off is in --output json.")])
    elif not unread:
        output.show([output.note(f"Nothing else carries the tag {RETAINED_TAG} there.")])
    for one in unread:
        output.show([output.note(f"{one.place} could not be read, so there may be more: {one.why}", "yellow")])


async def _read_entries(installation: Installation) -> list[KeptEntry]:
    return sorted(
        [KeptEntry(name, decisions) async for name, decisions in KeptStore(installation).all_decisions()],
        key=lambda one: one.name,
    )


async def _search(
    installation: Installation, found: list[KeptEntry], named: Sequence[str]
) -> tuple[list[UnrecordedTag], list[UnreadPlace]]:
    known = [decision for one in found for decision in one.decisions or ()]
    configured = configured_places(installation.settings)
    places = sorted({*(one.place for one in known), *configured, *(place.lower() for place in named)})
    searched = await search_tags(installation, places, known)
    unrecorded = [
        UnrecordedTag(
            place=each.place,
            kind=one.kind,
            id=one.id,
            value=one.value,
            command=untag_command(each.place, one.kind, one.id),
        )
        for each in searched
        for one in each.found
        if not any(decision.wrote_tag(one.value) for decision in known)
    ]
    return unrecorded, [UnreadPlace(place=each.place, why=why) for each in searched for why in each.unread]


# ---- forget


@kept.command("forget")
@click.argument("what", metavar="PLACE/NAME|KIND/NAME|UID")
@click.option("--namespace", "-n", help="Namespace of the object; needed only where several have one of that name.")
@click.option("--uid", help="Only what was kept with the object of this uid.")
@click.option("--record-only", is_flag=True, help="Leave the tags on the resources; needs no access to the cloud.")
@click.option("--yes", is_flag=True, help="Don't ask.")
@session.config_option
def forget(
    what: str, namespace: str | None, uid: str | None, record_only: bool, yes: bool, config: Path | None
) -> None:
    """Forget that something was kept: it may go with the next object of that name, which is not held any more.

    PLACE/NAME is as `knell kept list` shows it; the object that it was kept with (awscluster/shop -n team), or the
    start of its uid, stands for what was kept with that one. First the tag knell.dev/retained is taken off the
    resources of the record, with the credentials of this process, then the record goes; a resource whose tag was
    written for another object keeps it. Where a tag can't be taken off, the record stays. The tag
    knell.dev/prevent-delete is left alone.
    """
    address = Address(what, namespace)
    found = session.run_with_redis(lambda opened: _find_entry(opened, address), config)
    name = found.name
    if found.decisions is None and not record_only:
        raise session.CommandError(
            f"the record of {output.clean(name)} can't be read, so the resources that carry its tag are not known; "
            f"--record-only removes the record alone"
        )
    meant = found.decisions or ()
    if name != what:
        meant = [one for one in meant if addresses.fits_decision(address, one)]
    chosen = [one for one in meant if uid in (None, one.uid) and namespace in (None, one.namespace)]
    if name != what and len({one.uid for one in chosen}) > 1:
        ways = [AddressMatch(one.uid, [one.uid], f"{one.object}, {one.why}") for one in chosen]
        raise addresses.ambiguous_address(address, ways)
    if found.decisions is not None and not chosen:
        raise session.CommandError(_not_found(name))
    others = [one for one in found.decisions or () if one not in chosen]
    if not yes:
        session.confirm(output.clean(_question(name, chosen, record_only=record_only)))
    if record_only:
        session.run_with_redis(
            lambda opened: _forget_records(opened, name, chosen if found.decisions is not None else None), config
        )
    elif left := session.run_with_redis(lambda opened: _remove_tags_and_record(opened, name, chosen, others), config):
        whose = ", ".join(f"{one.object} (uid {one.uid})" for one in left)
        raise session.CommandError(
            f"{output.clean(name)} is still remembered with {output.clean(whose)}; mend what is said above, or take "
            f"the tags off by hand, and repeat the command, or forget the record alone with --record-only"
        )
    click.echo(f"{output.clean(name)} is forgotten.")
    if record_only:
        for line in _untag_instructions(chosen):
            click.echo(output.clean(line))


def _question(name: str, chosen: list[KeepDecision], *, record_only: bool) -> str:
    what = ", ".join(f"{one.object} ({one.why})" for one in chosen) or "a record that can't be read"
    unless = ", unless a tag keeps it" if record_only else ""
    ask = "Forget it?"
    if not record_only and any(map(may_be_tagged, chosen)):
        number = len(_tagged_resources(chosen))
        ask = f"Take the tag {RETAINED_TAG} off its resources ({number} are recorded), and forget it?"
    return f"What was kept under {name} with {what} may be removed with the next object of that name{unless}. {ask}"


def _tagged_resources(chosen: Sequence[KeepDecision]) -> list[tuple[str, KeptResource]]:
    """Recorded resources that carry the tag, each with its place."""
    return [(one.place, resource) for one in chosen for resource in one.resources if not resource.tag]


def _without_shared(one: KeepDecision, others: Sequence[KeepDecision]) -> KeepDecision:
    """Leaves out resources of other decisions that stay: these need the tag."""
    needed = {(place, resource.id) for place, resource in _tagged_resources(others)}
    shared = [each for each in one.resources if (one.place, each.id) in needed]
    for each in shared:
        click.echo(output.clean(f"{each.kind} {each.id} keeps its tag, for it is kept with another object as well"))
    if shared and one.remark:
        raise session.CommandError(
            f"the record of {output.clean(one.object)} may not name all of its resources, so that the others' can't be "
            f"told from its own; forget both (without --uid), or the record alone (--record-only)"
        )
    return msgspec.structs.replace(one, resources=tuple(each for each in one.resources if each not in shared))


def _untag_instructions(chosen: list[KeepDecision]) -> Iterator[str]:
    """Commands that remove the tags."""
    if not (marked := _tagged_resources(chosen)):
        return
    yield f"These carry the tag {RETAINED_TAG} and stay until a person takes it off:"
    for place, resource in marked:
        yield f"  {resource.kind} {resource.id}: {untag_command(place, resource.kind, resource.id)}"


async def _remove_tags_and_record(
    installation: Installation, name: str, chosen: list[KeepDecision], others: Sequence[KeepDecision]
) -> list[KeepDecision]:
    """Returns the decisions that stay, because a resource may still carry their tag. The record is removed last, so
    that an interrupted command can be repeated."""
    tagged, left = [one for one in chosen if may_be_tagged(one)], list[KeepDecision]()
    async with open_tags(installation, {provider_of(one.place) for one in tagged}, tagged) as tags:
        for one in chosen:
            if one in tagged:
                side = tags.get(provider_of(one.place))
                if side is None:
                    raise session.CommandError(f"{output.clean(one.place)} is no place of a provider that is known")
                removals = await remove_tags(side, _without_shared(one, others), chosen)
                show_removals(one.place, removals)
                if any(removal.failed for removal in removals):
                    left.append(one)
                    continue
            await _forget_records(installation, name, [one])
    return left


async def _find_entry(installation: Installation, address: Address) -> KeptEntry:
    found = [
        one
        for one in await _read_entries(installation)
        if one.name == address.what or any(addresses.fits_decision(address, each) for each in one.decisions or ())
    ]
    exact = [one for one in found if one.name == address.what]
    if not found:
        raise session.CommandError(_not_found(str(address)))
    if len(exact or found) > 1:
        raise addresses.ambiguous_address(
            address, [AddressMatch(one.name, [one.name], _objects_text(one)) for one in found]
        )
    return (exact or found)[0]


def _objects_text(one: KeptEntry) -> str:
    return ", ".join(f"{each.object}, {each.why}" for each in one.decisions or ())


async def _forget_records(installation: Installation, name: str, chosen: list[KeepDecision] | None) -> None:
    memory = KeptStore(installation)
    if chosen is None:
        await installation.caller.command("HDEL", memory.key, name)
    for one in chosen or ():
        # Sweeps read these records of observed objects.
        await Inventory(installation, one.source).remove([one.uid])
        await OrphanSightings(installation, one.source).remove([one.uid])
        await memory.remove(name, one.uid)


def _not_found(name: str) -> str:
    return f"nothing is remembered as kept under {output.clean(name)}; `knell kept list` shows what is"
