"""Search and removal of the tags of kept resources, for `knell kept`.
It uses the credentials of this process, and draws on the shared budgets as workers do."""

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from service.cli import output
from service.cli.cluster_clients import connect_clusters
from service.contract.kept import RETAINED_TAG, KeepDecision
from service.engine.installation import Installation
from service.sources.declaration import KeptPlaces, Sections
from service.sources.registry import known_sources
from workers.app import open_app
from workers.handlers.kept_resources import OTHERS, RetainedTags, TagRemoval, TagSearch


@asynccontextmanager
async def open_tags(
    installation: Installation,
    providers: Collection[str],
    decisions: Sequence[KeepDecision],
    *,
    used_only: bool = False,
) -> AsyncIterator[dict[str, RetainedTags]]:
    """Tag clients by provider. Clusters are connected only if a decision needs an identity from one of them. With
    `used_only` they know the kinds of resources of the settings' sources alone, if there are any of that provider."""
    settings = installation.settings
    # Also where no source of the settings uses that provider any more: the tags are still there.
    collectors = [one.name for one in known_sources() if one.kept is not None and one.kept.provider in providers]
    if used_only:
        used = {source.collector for source in settings.sources.values()}
        collectors = [name for name in collectors if name in used] or collectors
    wants_identity = any(one.identity for one in decisions)
    async with AsyncExitStack() as stack:
        clusters = await stack.enter_async_context(connect_clusters(settings)) if wants_identity else {}
        app = await stack.enter_async_context(open_app(settings, clusters, installation, collectors=collectors))
        yield {name: tags for name, tags in app.retained_tags.items() if name in providers}


def kept_places() -> list[KeptPlaces]:
    """Those of the known sources. Sources of one provider differ only in the places that are configured."""
    return [source.kept for source in known_sources() if source.kept is not None]


def place_forms() -> str:
    """How a place is written, for texts."""
    return " or ".join(dict.fromkeys(known.form for known in kept_places()))


def configured_places(settings: Sections) -> list[str]:
    """The places that the settings name, of all sources."""
    return [place for one in kept_places() if one.configured is not None for place in one.configured(settings)]


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
    async with open_tags(installation, {provider_of(place) for place in places}, known, used_only=True) as tags:
        for place in places:
            side = tags.get(provider_of(place))
            if side is None:
                found.append(TagSearch(place=place, found=[], unread=["this is no place of a known provider"]))
            else:
                found.append(await side.find(place, [one for one in known if one.place == place]))
    return found


def untag_command(place: str, kind: str, one: str) -> str:
    """The command by which an operator removes the tag; empty for a provider that is not known."""
    return next((known.untag(place, kind, one) for known in kept_places() if known.provider == provider_of(place)), "")
