"""Search and removal of the tags of kept resources, for `knell kept`.
It uses the credentials of this process, and draws on the shared budgets as workers do."""

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from service.cli import output
from service.cli.cluster_clients import connect_clusters
from service.cli.work import open_aws, open_azure
from service.contract.kept import RETAINED_TAG, KeepDecision
from service.engine.installation import Installation
from workers.handlers.kept_resources import OTHERS, RetainedTags, TagRemoval, TagSearch
from workers.judging.registry_builder import build_source_clusters

AWS, AZURE = "aws", "azure"


@asynccontextmanager
async def open_tags(
    installation: Installation, providers: Collection[str], decisions: Sequence[KeepDecision]
) -> AsyncIterator[dict[str, RetainedTags]]:
    """Tag clients by provider. Clusters are connected only if a decision needs an identity from one of them."""
    settings, found = installation.settings, dict[str, RetainedTags]()
    async with AsyncExitStack() as stack:
        wants_identity = any(one.identity for one in decisions)
        clusters = await stack.enter_async_context(connect_clusters(settings)) if wants_identity else {}
        places = build_source_clusters(settings, clusters, installation)
        stack.push_async_callback(places.aclose)
        if AWS in providers:
            found[AWS] = (await stack.enter_async_context(open_aws(settings, places, installation))).retained_tags
        if AZURE in providers:
            found[AZURE] = (await stack.enter_async_context(open_azure(settings, places, installation))).retained_tags
        yield found


def provider_of(place: str) -> str:
    return place.partition("/")[0]


def may_be_tagged(decision: KeepDecision) -> bool:
    """Whether a resource may carry the tag of this decision: a tagged one is recorded, or the record is incomplete."""
    return bool(decision.remark) or any(not resource.tag for resource in decision.resources)


async def remove_tags(
    tags: RetainedTags, decision: KeepDecision, chosen: Sequence[KeepDecision]
) -> list[TagRemoval]:  # fmt: skip
    """Shows a progress bar if standard error is a terminal."""
    columns = (TextColumn("taking tags off"), BarColumn(), MofNCompleteColumn())
    found = list[TagRemoval]()
    with Progress(*columns, console=output.status_line(), transient=True) as progress:
        task = progress.add_task("", total=sum(not resource.tag for resource in decision.resources))
        async for removal in tags.remove(decision, chosen):
            found.append(removal)
            progress.advance(task)
    return found


def show_removals(place: str, removals: Sequence[TagRemoval]) -> None:
    """Prints what was removed, what stays for another object, and the command for what failed."""
    if removed := sum(one.removed for one in removals):
        click.echo(f"The tag {RETAINED_TAG} was taken off {removed} resources.")
    for one in removals:
        if one.others:
            click.echo(output.clean(f"{one.kind} {one.id} keeps its tag, which is of another object: {one.others}"))
    for one in removals:
        if one.failed:
            by_hand = "" if one.id == OTHERS else f"; by hand: {untag_command(place, one.kind, one.id)}"
            click.echo(output.clean(f"{one.kind} {one.id} may still carry the tag: {one.failed}{by_hand}"), err=True)


async def search_tags(
    installation: Installation, places: Sequence[str], known: Sequence[KeepDecision]
) -> list[TagSearch]:
    """Resources with the tag in these places; `known` are all recorded decisions."""
    found = list[TagSearch]()
    async with open_tags(installation, {provider_of(place) for place in places}, known) as tags:
        for place in places:
            side = tags.get(provider_of(place))
            if side is None:
                found.append(TagSearch(place=place, found=[], unread=["this is no place of a known provider"]))
            else:
                found.append(await side.find(place, [one for one in known if one.place == place]))
    return found


def untag_command(place: str, kind: str, one: str) -> str:
    """The command by which an operator removes the tag."""
    if provider_of(place) == AZURE:
        tag = RETAINED_TAG.replace("/", "_")
        return f"az tag update --operation Delete --resource-id {one} --tags {tag}"
    region = place.split("/")[2]
    if kind == "aws.classic-balancer":
        return f"aws elb remove-tags --region {region} --load-balancer-names {one} --tags Key={RETAINED_TAG}"
    if one.startswith("arn:"):
        return f"aws elbv2 remove-tags --region {region} --resource-arns {one} --tag-keys {RETAINED_TAG}"
    return f"aws ec2 delete-tags --region {region} --resources {one} --tags Key={RETAINED_TAG}"
