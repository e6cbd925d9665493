"""Finds and removes the tags of kept resources for `knell kept`, with the credentials of this process.
The calls draw on the shared budgets, as those of workers do."""

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from service.cli import output
from service.cli.reaching import reached_clusters
from service.cli.work import aws_of, azure_of
from service.contract.kept import RETAINED_TAG, Decision
from service.engine.installation import Installation
from workers.handlers.memory import OTHERS, RetainedTags, TagRemoval, TagSearch
from workers.judging.wiring import places_in

AWS, AZURE = "aws", "azure"


@asynccontextmanager
async def tags_of(
    installation: Installation, providers: Collection[str], decisions: Sequence[Decision]
) -> AsyncIterator[dict[str, RetainedTags]]:
    """By provider, for those that are asked for. The clusters are reached only where a decision needs an identity of
    one of them."""
    settings, found = installation.settings, dict[str, RetainedTags]()
    async with AsyncExitStack() as stack:
        wants_identity = any(one.identity for one in decisions)
        clusters = await stack.enter_async_context(reached_clusters(settings)) if wants_identity else {}
        places = places_in(settings, clusters, installation)
        stack.push_async_callback(places.aclose)
        if AWS in providers:
            found[AWS] = (await stack.enter_async_context(aws_of(settings, places, installation))).retained_tags
        if AZURE in providers:
            found[AZURE] = (await stack.enter_async_context(azure_of(settings, places, installation))).retained_tags
        yield found


def provider_of(place: str) -> str:
    return place.partition("/")[0]


def tagged_by(decision: Decision) -> bool:
    """Whether a resource may carry the tag of this decision: one is recorded, or not all of them are known."""
    return bool(decision.remark) or any(not resource.tag for resource in decision.resources)


async def take_off(
    tags: RetainedTags, decision: Decision, chosen: Sequence[Decision]
) -> list[TagRemoval]:  # fmt: skip
    """Shows a progress bar on standard error where that is a terminal."""
    columns = (TextColumn("taking tags off"), BarColumn(), MofNCompleteColumn())
    found = list[TagRemoval]()
    with Progress(*columns, console=output.status_line(), transient=True) as progress:
        task = progress.add_task("", total=sum(not resource.tag for resource in decision.resources))
        async for removal in tags.remove(decision, chosen):
            found.append(removal)
            progress.advance(task)
    return found


def tell_removals(place: str, removals: Sequence[TagRemoval]) -> None:
    """What was done, what stays for another object's sake, and how a person does what failed."""
    if removed := sum(one.removed for one in removals):
        click.echo(f"The tag {RETAINED_TAG} was taken off {removed} resources.")
    for one in removals:
        if one.others:
            click.echo(output.clean(f"{one.kind} {one.id} keeps its tag, which is of another object: {one.others}"))
    for one in removals:
        if one.failed:
            by_hand = "" if one.id == OTHERS else f"; by hand: {untag_command(place, one.kind, one.id)}"
            click.echo(output.clean(f"{one.kind} {one.id} may still carry the tag: {one.failed}{by_hand}"), err=True)


async def search(installation: Installation, places: Sequence[str], known: Sequence[Decision]) -> list[TagSearch]:
    """What carries the tag in these places; `known` are all decisions that are remembered."""
    found = list[TagSearch]()
    async with tags_of(installation, {provider_of(place) for place in places}, known) as tags:
        for place in places:
            side = tags.get(provider_of(place))
            if side is None:
                found.append(TagSearch(place=place, found=[], unread=["this is no place of a known provider"]))
            else:
                found.append(await side.find(place, [one for one in known if one.place == place]))
    return found


def untag_command(place: str, kind: str, one: str) -> str:
    """What a person can run instead."""
    if provider_of(place) == AZURE:
        tag = RETAINED_TAG.replace("/", "_")
        return f"az tag update --operation Delete --resource-id {one} --tags {tag}"
    region = place.split("/")[2]
    if kind == "aws.classic-balancer":
        return f"aws elb remove-tags --region {region} --load-balancer-names {one} --tags Key={RETAINED_TAG}"
    if one.startswith("arn:"):
        return f"aws elbv2 remove-tags --region {region} --resource-arns {one} --tag-keys {RETAINED_TAG}"
    return f"aws ec2 delete-tags --region {region} --resources {one} --tags Key={RETAINED_TAG}"
