"""`knell gc`: whether what one object owns is collected, and by which tasks, said on the object itself.
The annotation is what counts; the finalizer is put on or taken off at once, so that nobody waits for the watch."""

import re
from pathlib import Path
from typing import Any, Final

import click

from service.cli import objects, output, session
from service.cli.object_marks import Decide, Marks, put
from service.cli.objects import Chosen
from service.contract.aws import AWS_ACCOUNT, EXTERNAL_RESOURCE_TASKS, TASKS
from service.contract.names import GC
from service.contract.traits import traits_of
from service.kubernetes import Live
from service.policy import capi
from service.policy.annotations import Said
from service.policy.scope import dry_run, still, stopped, switched
from service.settings import Settings
from service.watching.owning import Owning

_ACCOUNT: Final = re.compile(r"\d{12}")


@click.group()
def gc() -> None:
    """Collect what one object owns, whatever its age, or leave it alone."""


@gc.command("enable")
@objects.object_argument
@click.option("--account", metavar="ID", help="The AWS account that its resources are in; in any other one it holds.")
@session.output_option
@session.config_option
def enable(what: str, namespace: str, cluster: str | None, account: str | None, form: str, config: Path | None) -> None:
    """Collect what KIND/NAME owns when it is deleted, also if it was there before its source was enabled.

    Sets the annotation knell.dev/gc to `enabled`, which outweighs opt_in and opt_out, and adds the finalizer where the
    source works with one. With a dry run in force the finalizer is left out. An object that is already going can't
    get a finalizer any more, so it is refused.

    For clusters on AWS (awscluster/NAME, awsmanagedcontrolplane/NAME, or cluster/NAME, which is followed to one of
    these) the annotation is aws.cluster.x-k8s.io/external-resource-gc, and `true`.
    """
    settings = session.prepared(config)
    if account is not None and not _ACCOUNT.fullmatch(account):
        raise session.Misuse(f"--account: {output.clean(account)!r} is no AWS account; write its 12 digits")
    _say(objects.run(_enable(settings, what, namespace, cluster, account)), form)


@gc.command("disable")
@objects.object_argument
@session.output_option
@session.config_option
def disable(what: str, namespace: str, cluster: str | None, form: str, config: Path | None) -> None:
    """Leave what KIND/NAME owns alone when it is deleted.

    Sets the annotation knell.dev/gc to `disabled`, or that of clusters on AWS to `false`, and takes our finalizer off.
    If the object is already going, only the annotation is set: the workers read it before their next destructive call,
    stop, and release the object themselves, so that what was done is recorded. What is already gone does not come back.
    """
    settings = session.prepared(config)
    _say(objects.run(_disable(settings, what, namespace, cluster)), form)


@gc.command("configure")
@objects.object_argument
@click.option(
    "--task", "tasks", multiple=True, metavar="TASK", help=f"Repeatable, or a comma list. One of {', '.join(TASKS)}."
)
@session.output_option
@session.config_option
def configure(
    what: str, namespace: str, cluster: str | None, tasks: tuple[str, ...], form: str, config: Path | None
) -> None:
    """Choose what goes with a cluster on AWS among aws.allowed_tasks, instead of what the settings choose for all.

    Sets the annotation aws.cluster.x-k8s.io/external-resource-tasks-gc; without any task it is taken away, and
    aws.tasks of the settings applies again. KIND/NAME is awscluster/NAME, awsmanagedcontrolplane/NAME or cluster/NAME.
    It counts also for one that is already going: what is not gone yet of a task that is taken away stays, and what one
    that is added stands for is removed by the last look.
    """
    settings = session.prepared(config)
    chosen = list(dict.fromkeys(word.strip() for one in tasks for word in one.split(",") if word.strip()))
    allowed = ", ".join(settings.aws.allowed)
    if unknown := [word for word in chosen if word not in TASKS]:
        raise session.Misuse(f"--task: unknown {output.clean(', '.join(unknown))}; allowed: {allowed}")
    if beyond := [word for word in chosen if word not in settings.aws.allowed]:
        # The workers would hold the object.
        raise session.Misuse(f"--task: aws.allowed_tasks does not allow {', '.join(beyond)}; allowed: {allowed}")
    _say(objects.run(_configure(settings, what, namespace, cluster, chosen)), form)


def _say(told: dict[str, Any], form: str) -> None:
    if form == "json":
        output.show_json(told)
    else:
        click.echo(output.clean(told["said"]))


async def _enable(
    settings: Settings, what: str, namespace: str, cluster: str | None, account: str | None
) -> dict[str, Any]:
    async with objects.chosen(settings, what, namespace, cluster) as one:
        if one.live.going:
            raise session.Trouble(
                f"{one} is already going, and an object that is going can't get a finalizer; what it owns must be "
                f"removed by hand"
            )
        if unwatched := objects.why_unwatched(one.source, one.settings, one.live):
            # A finalizer that nobody watches would hold it for ever.
            raise session.Trouble(f"{one} is not watched, so nothing was changed: {unwatched}")
        if account is not None and not traits_of(one.settings.collector).capi:
            raise session.Misuse(f"--account is for clusters on AWS; source {one.source} has no use for it")
        annotations = _switch(one, on=True) | ({AWS_ACCOUNT: account} if account is not None else {})
        why_not = ""

        async def decide(live: Live) -> Marks:
            nonlocal why_not
            why_not = await _why_no_finalizer(settings, one, live)
            return Marks(annotations, finalizer=None if why_not else True)

        live = await put(one, decide)
        tail = "and has the finalizer" if _marked(one, live) else f"without a finalizer: {why_not or 'it is going'}"
        return _told(one, live, f"{one} is collected when it is deleted, {tail} (source {one.source}).")


async def _disable(settings: Settings, what: str, namespace: str, cluster: str | None) -> dict[str, Any]:
    async with objects.chosen(settings, what, namespace, cluster) as one:
        live = await put(one, _always(Marks(_switch(one, on=False), finalizer=False)))
        if live.going and _marked(one, live):
            said = f"{one} is already going: the workers stop before their next destructive call and release it."
        else:
            said = f"{one} is left alone when it is deleted; it has no finalizer of ours."
        return _told(one, live, said)


async def _configure(
    settings: Settings, what: str, namespace: str, cluster: str | None, tasks: list[str]
) -> dict[str, Any]:
    async with objects.chosen(settings, what, namespace, cluster) as one:
        if not traits_of(one.settings.collector).capi:
            raise session.Misuse(f"only clusters on AWS have tasks; source {one.source} has none")
        live = await put(one, _always(Marks({EXTERNAL_RESOURCE_TASKS: ",".join(tasks) or None})))
        said = f"With {one} goes what {', '.join(tasks)} stand for."
        if not tasks:
            said = f"With {one} goes what the settings say: {', '.join(settings.aws.tasks)}."
        if live.going:
            said += (
                " It is already going: what is left of other tasks stays where it is, and what was not planned with it "
                "is removed by the last look, before it is released."
            )
        return _told(one, live, said) | {"tasks": tasks or list(settings.aws.tasks)}


def _always(marks: Marks) -> Decide:
    async def decide(_live: Live) -> Marks:
        return marks

    return decide


async def _why_no_finalizer(settings: Settings, one: Chosen, live: Live) -> str:
    if one.settings.mode != "finalizer":
        return f"source {one.source} only observes"
    traits = traits_of(one.settings.collector)
    stop = still(live.annotations, one.settings)
    if traits.feature:
        stop = stopped(settings.policy, one.settings, settings.features) or stop
    if stop is None:
        marks = await one.cluster.namespace_marks(live.namespace)
        stop = dry_run(live.annotations, marks, settings.policy, one.settings)
    if stop is not None:
        return stop.reason
    if not traits.capi:
        return ""
    return await Owning(one.cluster).objection(live.namespace, capi.owner_in(live.raw))


def _switch(one: Chosen, *, on: bool) -> dict[str, str | None]:
    """The annotations that say so. Ours beside another's of the same meaning would have to agree, so it goes."""
    switch = traits_of(one.settings.collector).switch
    if switch is None:
        return {GC: "enabled" if on else "disabled"}
    return {switch.name: switch.enabled if on else switch.disabled, GC: None}


def _marked(one: Chosen, live: Live) -> bool:
    return traits_of(one.settings.collector).finalizer in live.finalizers


def _told(one: Chosen, live: Live, said: str) -> dict[str, Any]:
    found = switched(live.annotations, one.settings)
    return {
        "cluster": one.cluster.name,
        "source": one.source,
        "resource": one.served.resource,
        "namespace": live.namespace,
        "name": live.name,
        "uid": live.uid,
        "gc": found.word if isinstance(found, Said) else "",
        "finalizer": _marked(one, live),
        "going": live.going,
        "said": said,
    }
