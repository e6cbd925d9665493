"""`knell gc`: switches collection for one object on or off, and selects its tasks, by annotations on that object.
The annotation decides; the finalizer is added or removed in the same patch instead of waiting for the watcher. A patch
is bound to the resourceVersion that was decided on: after a conflict the object is read and decided on again, because
a finalizer that was removed in between must not be added back."""

import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from service.cli import cluster_clients, object_lookup, object_patch, output, session
from service.cli.object_lookup import ResolvedObject
from service.contract.names import GC
from service.kubernetes import KubeObject
from service.policy.annotations import AnnotationValue
from service.policy.scope import dry_run_decision, gc_switch, object_pause_decision, pause_decision
from service.settings import Settings
from service.sources.declaration import AccountAnnotation, TaskChoice
from service.sources.registry import known_sources, source_named
from service.watching.marking import MarkingCheck


class MetadataChange(NamedTuple):
    """Annotations to set, or with None to remove. `finalizer` is True to add ours, False to remove it unless the object
    is being deleted, None to leave it unchanged."""

    annotations: dict[str, str | None]
    finalizer: bool | None = None


_TASKS: Final = ", ".join(task for source in known_sources() if source.tasks is not None for task in source.tasks.tasks)

DecideChange = Callable[[KubeObject], Awaitable[MetadataChange]]


@click.group()
def gc() -> None:
    """Collect what one object owns, whatever its age, or leave it alone."""


@gc.command("enable")
@object_lookup.object_argument
@click.option("--account", metavar="ID", help="The account that its resources are in; in any other one it holds.")
@session.output_option
@session.config_option
def enable(what: str, namespace: str, cluster: str | None, account: str | None, form: str, config: Path | None) -> None:
    """Collect what KIND/NAME owns when it is deleted, also if it was there before its source was enabled.

    Sets the annotation knell.dev/gc to `enabled`, which outweighs opt_in and opt_out, and adds the finalizer where the
    source works with one. With a dry run in force the finalizer is left out. An object that is already going can't
    get a finalizer any more, so it is refused.

    Where objects have an annotation of their own for this, that one is set instead. Of clusters on AWS
    (awscluster/NAME, awsmanagedcontrolplane/NAME, or cluster/NAME, which is followed to one of these) it is
    aws.cluster.x-k8s.io/external-resource-gc, and `true`.
    """
    settings = session.interactive_settings(config)
    _show(cluster_clients.run_with_clusters(enable_object(settings, what, namespace, cluster, account)), form)


@gc.command("disable")
@object_lookup.object_argument
@session.output_option
@session.config_option
def disable(what: str, namespace: str, cluster: str | None, form: str, config: Path | None) -> None:
    """Leave what KIND/NAME owns alone when it is deleted.

    Sets the annotation knell.dev/gc to `disabled`, or that of clusters on AWS to `false`, and takes our finalizer off.
    If the object is already going, only the annotation is set: the workers read it before their next destructive call,
    stop, and release the object themselves, so that what was done is recorded. What is already gone does not come back.
    """
    settings = session.interactive_settings(config)
    _show(cluster_clients.run_with_clusters(_disable(settings, what, namespace, cluster)), form)


@gc.command("configure")
@object_lookup.object_argument
@click.option("--task", "tasks", multiple=True, metavar="TASK", help=f"Repeatable, or a comma list. One of {_TASKS}.")
@session.output_option
@session.config_option
def configure(
    what: str, namespace: str, cluster: str | None, tasks: tuple[str, ...], form: str, config: Path | None
) -> None:
    """Choose what goes with KIND/NAME among the tasks that the settings allow, instead of what they choose for all.

    Sets the annotation for it; without any task that is taken away, and the settings apply again. For clusters on AWS
    (awscluster/NAME, awsmanagedcontrolplane/NAME or cluster/NAME) it is
    aws.cluster.x-k8s.io/external-resource-tasks-gc, and the settings are aws.tasks and aws.allowed_tasks.

    It counts also for one that is already going: what is not gone yet of a task that is taken away stays, and what one
    that is added stands for is removed by the last look.
    """
    settings = session.interactive_settings(config)
    chosen = list(dict.fromkeys(word.strip() for one in tasks for word in one.split(",") if word.strip()))
    _show(cluster_clients.run_with_clusters(configure_tasks(settings, what, namespace, cluster, chosen)), form)


def _show(told: dict[str, Any], form: str) -> None:
    if form == "json":
        output.show_json(told)
    else:
        click.echo(output.clean(told["said"]))


async def enable_object(
    settings: Settings, what: str, namespace: str, cluster: str | None, account: str | None
) -> dict[str, Any]:
    async with object_lookup.resolve_object(settings, what, namespace, cluster) as one:
        if one.live.going:
            raise session.CommandError(
                f"{one} is already going, and an object that is going can't get a finalizer; what it owns must be "
                f"removed by hand"
            )
        if unwatched := object_lookup.why_unwatched(one.source, one.settings, one.live):
            # Without a watcher its finalizer would never be removed.
            raise session.CommandError(f"{one} is not watched, so nothing was changed: {unwatched}")
        annotations = _switch(one, on=True)
        if account is not None:
            annotations[_account_annotation(one, account).name] = account
        why_not = ""

        async def decide(live: KubeObject) -> MetadataChange:
            nonlocal why_not
            why_not = await _why_no_finalizer(settings, one, live)
            return MetadataChange(annotations, finalizer=None if why_not else True)

        live = await patch_metadata(one, decide)
        tail = "and has the finalizer" if _marked(one, live) else f"without a finalizer: {why_not or 'it is going'}"
        return _document(one, live, f"{one} is collected when it is deleted, {tail} (source {one.source}).")


async def _disable(settings: Settings, what: str, namespace: str, cluster: str | None) -> dict[str, Any]:
    async with object_lookup.resolve_object(settings, what, namespace, cluster) as one:
        live = await patch_metadata(one, _always(MetadataChange(_switch(one, on=False), finalizer=False)))
        if live.going and _marked(one, live):
            said = f"{one} is already going: the workers stop before their next destructive call and release it."
        else:
            said = f"{one} is left alone when it is deleted; it has no finalizer of ours."
        return _document(one, live, said)


async def configure_tasks(
    settings: Settings, what: str, namespace: str, cluster: str | None, tasks: list[str]
) -> dict[str, Any]:
    async with object_lookup.resolve_object(settings, what, namespace, cluster) as one:
        choice = _task_choice(settings, one, tasks)
        live = await patch_metadata(one, _always(MetadataChange({choice.annotation: ",".join(tasks) or None})))
        said = f"With {one} goes what {', '.join(tasks)} stand for."
        if not tasks:
            said = f"With {one} goes what the settings say: {', '.join(choice.chosen(settings))}."
        if live.going:
            said += (
                " It is already going: what is left of other tasks stays where it is, and what was not planned with it "
                "is removed by the last look, before it is released."
            )
        return _document(one, live, said) | {"tasks": tasks or list(choice.chosen(settings))}


def _account_annotation(one: ResolvedObject, account: str) -> AccountAnnotation:
    """Raises InvalidUsage if its source has none, or the value does not fit."""
    annotation = source_named(one.settings.collector).account
    if annotation is None:
        raise session.InvalidUsage(f"--account: no annotation names the account of an object of source {one.source}")
    if not re.fullmatch(annotation.pattern, account):
        raise session.InvalidUsage(f"--account: {output.clean(account)!r} is no account; write its {annotation.form}")
    return annotation


def _task_choice(settings: Settings, one: ResolvedObject, tasks: list[str]) -> TaskChoice:
    """Raises InvalidUsage if its source has no tasks, not these, or the settings do not allow them."""
    choice = source_named(one.settings.collector).tasks
    if choice is None:
        raise session.InvalidUsage(f"objects of source {one.source} have no tasks")
    allowed = choice.allowed(settings)
    if unknown := [word for word in tasks if word not in choice.tasks]:
        raise session.InvalidUsage(f"--task: unknown {output.clean(', '.join(unknown))}; allowed: {', '.join(allowed)}")
    if beyond := [word for word in tasks if word not in allowed]:
        # Workers hold an object with such an annotation.
        raise session.InvalidUsage(
            f"--task: {choice.allowed_by} does not allow {', '.join(beyond)}; allowed: {', '.join(allowed)}"
        )
    return choice


def _always(marks: MetadataChange) -> DecideChange:
    async def decide(_live: KubeObject) -> MetadataChange:
        return marks

    return decide


async def _why_no_finalizer(settings: Settings, one: ResolvedObject, live: KubeObject) -> str:
    if one.settings.mode != "finalizer":
        return f"source {one.source} only observes"
    declared = source_named(one.settings.collector)
    stop = object_pause_decision(live.annotations, one.settings)
    if declared.feature:
        stop = pause_decision(settings.policy, one.settings, settings.features) or stop
    if stop is None:
        marks = await one.cluster.namespace_annotations(live.namespace)
        stop = dry_run_decision(live.annotations, marks, settings.policy, one.settings)
    if stop is not None:
        return stop.reason
    marking = MarkingCheck(one.cluster, declared)
    return await marking.objection(live.namespace, marking.owner(live))


def _switch(one: ResolvedObject, *, on: bool) -> dict[str, str | None]:
    """If the collector has an annotation of its own, ours is removed, so that they can't disagree."""
    switch = source_named(one.settings.collector).switch
    if switch is None:
        return {GC: "enabled" if on else "disabled"}
    return {switch.name: switch.enabled if on else switch.disabled, GC: None}


def _marked(one: ResolvedObject, live: KubeObject) -> bool:
    return source_named(one.settings.collector).finalizer in live.finalizers


def _document(one: ResolvedObject, live: KubeObject, said: str) -> dict[str, Any]:
    found = gc_switch(live.annotations, one.settings)
    return {
        "cluster": one.cluster.name,
        "source": one.source,
        "resource": one.served.resource,
        "namespace": live.namespace,
        "name": live.name,
        "uid": live.uid,
        "gc": found.word if isinstance(found, AnnotationValue) else "",
        "finalizer": _marked(one, live),
        "going": live.going,
        "said": said,
    }


async def patch_metadata(one: ResolvedObject, decide: DecideChange) -> KubeObject:
    """Returns the patched object. Raises CommandError if it is gone or replaced."""

    async def decided(live: KubeObject) -> dict[str, Any]:
        return _patched_metadata(one, live, await decide(live))

    return await object_patch.patch_metadata(one.cluster, one.served, one.live, decided, str(one))


def _patched_metadata(one: ResolvedObject, live: KubeObject, marks: MetadataChange) -> dict[str, Any]:
    ours = source_named(one.settings.collector).finalizer
    finalizers = list(live.finalizers)
    if marks.finalizer and ours not in finalizers and not live.going:
        finalizers.append(ours)
    if marks.finalizer is False and not live.going:
        finalizers = [name for name in finalizers if name != ours]
    meta: dict[str, Any] = {"annotations": marks.annotations}
    if finalizers != list(live.finalizers):
        meta["finalizers"] = finalizers
    return meta
