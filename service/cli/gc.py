"""`knell gc enable` and `knell gc disable`: whether what one object owns is collected, said on the object itself.
The annotation is what counts; the finalizer is put on or taken off at once, so that nobody waits for the watch."""

from pathlib import Path
from typing import Any, Final

import click

from service.cli import objects, output, session
from service.cli.objects import Chosen
from service.cluster import Cluster, Conflict, Live, NotFound, Served
from service.contract.names import FINALIZER, GC
from service.policy.scope import dry_run
from service.settings import Settings

_TRIES: Final = 10


@click.group()
def gc() -> None:
    """Collect what one object owns, whatever its age, or leave it alone."""


@gc.command("enable")
@objects.object_argument
@session.output_option
@session.config_option
def enable(what: str, namespace: str, cluster: str | None, form: str, config: Path | None) -> None:
    """Collect what KIND/NAME owns when it is deleted, also if it was there before its source was enabled.

    Sets the annotation knell.dev/gc to `enabled`, which outweighs opt_in and opt_out, and adds the finalizer where the
    source works with one. With a dry run in force the finalizer is left out. An object that is already going can't
    get a finalizer any more, so it is refused.
    """
    settings = session.prepared(config)
    _say(objects.run(_enable(settings, what, namespace, cluster)), form)


@gc.command("disable")
@objects.object_argument
@session.output_option
@session.config_option
def disable(what: str, namespace: str, cluster: str | None, form: str, config: Path | None) -> None:
    """Leave what KIND/NAME owns alone when it is deleted.

    Sets the annotation knell.dev/gc to `disabled` and takes our finalizer off. If the object is already going, only
    the annotation is set: the workers read it before their next destructive call, stop, and release the object
    themselves, so that what was done is recorded. What is already gone does not come back.
    """
    settings = session.prepared(config)
    _say(objects.run(_disable(settings, what, namespace, cluster)), form)


def _say(told: dict[str, Any], form: str) -> None:
    if form == "json":
        output.show_json(told)
    else:
        click.echo(output.clean(told["said"]))


async def _enable(settings: Settings, what: str, namespace: str, cluster: str | None) -> dict[str, Any]:
    async with objects.chosen(settings, what, namespace, cluster) as one:
        if one.live.going:
            raise session.Trouble(
                f"{one} is already going, and an object that is going can't get a finalizer; what it owns must be "
                f"removed by hand"
            )
        if unwatched := objects.why_unwatched(one.source, one.settings, one.live):
            # A finalizer that nobody watches would hold it for ever.
            raise session.Trouble(f"{one} is not watched, so nothing was changed: {unwatched}")
        why_not = await _why_no_finalizer(settings, one)
        live = await _mark(one, "enabled", finalizer=None if why_not else True)
        tail = "and has the finalizer" if FINALIZER in live.finalizers else f"without a finalizer: {why_not}"
        return _told(one, live, f"{one} is collected when it is deleted, {tail} (source {one.source}).")


async def _disable(settings: Settings, what: str, namespace: str, cluster: str | None) -> dict[str, Any]:
    async with objects.chosen(settings, what, namespace, cluster) as one:
        live = await _mark(one, "disabled", finalizer=False)
        if live.going and FINALIZER in live.finalizers:
            said = f"{one} is already going: the workers stop before their next destructive call and release it."
        else:
            said = f"{one} is left alone when it is deleted; it has no finalizer of ours."
        return _told(one, live, said)


async def _why_no_finalizer(settings: Settings, one: Chosen) -> str:
    if one.settings.mode != "finalizer":
        return f"source {one.source} only observes"
    marks = await one.cluster.namespace_marks(one.live.namespace)
    dry = dry_run(one.live.annotations, marks, settings.policy, one.settings)
    return "" if dry is None else dry.reason


async def _mark(one: Chosen, word: str, *, finalizer: bool | None) -> Live:
    """Annotation and finalizer in one patch that holds only for the version it was decided on. `finalizer` is True to
    put ours on, False to take it off unless the object is going, None to leave it as it is."""
    live: Live | None = one.live
    for _ in range(_TRIES):
        if live is None or live.uid != one.live.uid:
            raise session.Trouble(f"{one} has gone meanwhile; nothing was changed")
        try:
            return await _patch(one.cluster, one.served, live, word, finalizer)
        except (Conflict, NotFound):
            live = await one.cluster.get(one.served, live.namespace, live.name)
    raise session.Trouble(f"{one} changes so fast that no patch gets through; try again")


async def _patch(cluster: Cluster, served: Served, live: Live, word: str, finalizer: bool | None) -> Live:
    finalizers = list(live.finalizers)
    if finalizer and FINALIZER not in finalizers and not live.going:
        finalizers.append(FINALIZER)
    if finalizer is False and not live.going:
        finalizers = [name for name in finalizers if name != FINALIZER]
    meta: dict[str, Any] = {"resourceVersion": live.resource_version, "annotations": {GC: word}}
    if finalizers != list(live.finalizers):
        meta["finalizers"] = finalizers
    return await cluster.patch(served, live.namespace, live.name, {"metadata": meta})


def _told(one: Chosen, live: Live, said: str) -> dict[str, Any]:
    return {
        "cluster": one.cluster.name,
        "source": one.source,
        "resource": one.served.resource,
        "namespace": live.namespace,
        "name": live.name,
        "uid": live.uid,
        "gc": live.annotations.get(GC, ""),
        "finalizer": FINALIZER in live.finalizers,
        "going": live.going,
        "said": said,
    }
