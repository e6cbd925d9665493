"""`knell kept`: what people decided to keep, and their word that it need not be kept any more.
Only what is remembered is changed here: tags on resources are for who may write them, and are named."""

from collections.abc import Iterator
from pathlib import Path

import click
import msgspec

from service.cli import output, session
from service.cli.jobs import confirm
from service.contract.kept import RETAINED_TAG, Decision
from service.stream.installation import Installation
from service.stream.inventory import Inventory
from service.stream.kept import KeptMemory
from service.stream.orphans import Orphans
from service.stream.views.reading import moment


class Kept(msgspec.Struct, frozen=True):
    """`decisions` of one name; None where they can't be read."""

    name: str
    decisions: list[Decision] | None


@click.group()
def kept() -> None:
    """What was kept on purpose: list, forget."""


@kept.command("list")
@session.output_option
@session.config_option
def listing(form: str, config: Path | None) -> None:
    """Everything that was retained, abandoned or dropped, by place and name; a later object of that name is held."""
    found = session.call(_every, config)
    if form == "json":
        output.show_json({"kept": found})
        return
    if not found:
        output.show([output.note("Nothing was kept on purpose, as far as is remembered.")])
        return
    columns = ("name", "kept with", "since", "why", "resources", "remark")
    output.show([output.table("kept", columns, [row for one in found for row in _rows(one)])])


def _rows(one: Kept) -> Iterator[tuple[str, ...]]:
    if one.decisions is None:
        yield one.name, "", "", "this record can't be read", "", ""
    for decision in one.decisions or ():
        untagged = sum(bool(resource.tag) for resource in decision.resources)
        count = f"{len(decision.resources)} known" + (f", {untagged} not tagged" if untagged else "")
        whose = f"{decision.object} (uid {decision.uid})"
        yield one.name, whose, output.moment(moment(decision.at)), decision.why, count, decision.remark


async def _every(installation: Installation) -> list[Kept]:
    return sorted(
        [Kept(name, decisions) async for name, decisions in KeptMemory(installation).every()],
        key=lambda one: one.name,
    )


@kept.command("forget")
@click.argument("name")
@click.option("--uid", help="Only what was kept with the object of this uid.")
@click.option("--yes", is_flag=True, help="Don't ask.")
@session.config_option
def forget(name: str, uid: str | None, yes: bool, config: Path | None) -> None:
    """Forget that something was kept: a later object of that name is not held for it any more.

    NAME is as `knell kept list` shows it. What carries the tag knell.dev/retained stays all the same, until a person
    takes that off.
    """
    found = session.call(lambda opened: _one(opened, name), config)
    chosen = [one for one in found.decisions or () if uid in (None, one.uid)]
    if found.decisions is not None and not chosen:
        raise session.Trouble(_unknown(name))
    if not yes:
        confirm(output.clean(_question(name, chosen)))
    session.call(lambda opened: _forget(opened, name, chosen if found.decisions is not None else None), config)
    click.echo(f"{output.clean(name)} is forgotten.")
    for line in _tagged(chosen):
        click.echo(output.clean(line))


def _question(name: str, chosen: list[Decision]) -> str:
    what = ", ".join(f"{one.object} ({one.why})" for one in chosen) or "a record that can't be read"
    return (
        f"What was kept under {name} with {what} may be removed with the next object of that name, unless a tag keeps "
        f"it. Forget it?"
    )


def _tagged(chosen: list[Decision]) -> Iterator[str]:
    """How what is tagged is freed."""
    marked = [(one.place, resource) for one in chosen for resource in one.resources if not resource.tag]
    if not marked:
        return
    yield f"These carry the tag {RETAINED_TAG} and stay until a person takes it off:"
    for place, resource in marked:
        yield f"  {resource.kind} {resource.id}: {_command(place, resource.kind, resource.id)}"


def _command(place: str, kind: str, one: str) -> str:
    region = place.split("/")[2]
    if place.startswith("azure/"):
        tag = RETAINED_TAG.replace("/", "_")
        return f"az tag update --operation Delete --resource-id {one} --tags {tag}"
    if kind == "aws.classic-balancer":
        return f"aws elb remove-tags --region {region} --load-balancer-names {one} --tags Key={RETAINED_TAG}"
    if one.startswith("arn:"):
        return f"aws elbv2 remove-tags --region {region} --resource-arns {one} --tag-keys {RETAINED_TAG}"
    return f"aws ec2 delete-tags --region {region} --resources {one} --tags Key={RETAINED_TAG}"


async def _one(installation: Installation, name: str) -> Kept:
    async for key, decisions in KeptMemory(installation).every():
        if key == name:
            return Kept(key, decisions)
    raise session.Trouble(_unknown(name))


async def _forget(installation: Installation, name: str, chosen: list[Decision] | None) -> None:
    memory = KeptMemory(installation)
    if chosen is None:
        await installation.caller.command("HDEL", memory.key, name)
    for one in chosen or ():
        # What a sweep goes by, where the object was only observed.
        await Inventory(installation, one.source).forget([one.uid])
        await Orphans(installation, one.source).forget([one.uid])
        await memory.forget(name, one.uid)


def _unknown(name: str) -> str:
    return f"nothing is remembered as kept under {output.clean(name)}; `knell kept list` shows what is"
