"""`knell protect` and `knell unprotect`: set or remove the annotation that protects an object, or all objects of a
Namespace, from deletion. They use the caller's own credentials; the service itself never writes this annotation.
Afterwards they say whether the object is protected, because another annotation may count first."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from service.admission.judgement import protection_of
from service.admission.protected_objects import level_of, services_marked
from service.cli import cluster_clients, object_patch, output, session
from service.cli.protected_lookup import ProtectedTarget, protected_argument, resolve_protected
from service.contract.names import PREVENT_DELETE
from service.kubernetes import ClusterError, KubeObject
from service.policy.annotations import NAMESPACE, annotation_names, annotation_word
from service.policy.decisions import PolicyDecision
from service.policy.protection import decide_protection
from service.policy.services import normalized, service_fault
from service.settings import Settings

_GOING: Final = {
    False: " It is already being deleted: workers of Knell stop before their next destructive call, other controllers "
    "do not.",
    True: " It is already being deleted; objects that are still in it count.",
}

DecideAnnotations = Callable[[KubeObject], dict[str, str | None]]


class _State(NamedTuple):
    """`holds` is whether deletion is denied; None where that is not known."""

    holds: bool | None
    said: str


@click.command()
@protected_argument
@click.option("--service", default="", metavar="SERVICE", help="Only for this service, such as s3.  [default: all]")
@session.output_option
@session.config_option
def protect(what: str, namespace: str, cluster: str | None, service: str, form: str, config: Path | None) -> None:
    """Protect KIND/NAME from deletion, or with namespace/NAME all objects in that Namespace.

    Sets the annotation knell.dev/prevent-delete to `true`, with --service the one for that service, which counts before
    it. An annotation services.k8s.aws/prevent-delete of the same rank that contradicts is removed. KIND is any
    protected resource: those of sources, of protection.groups and of ACK.

    It says whether the object is protected now. The exit code is 1 if it is not, because another annotation counts
    first.
    """
    settings = session.interactive_settings(config)
    service = _checked(service)
    document = cluster_clients.run_with_clusters(_protect(settings, what, namespace, cluster, service))
    _show(document, form, wanted=True)


@click.command()
@protected_argument
@click.option("--service", default="", metavar="SERVICE", help="The annotation for this service, such as s3.")
@session.output_option
@session.config_option
def unprotect(what: str, namespace: str, cluster: str | None, service: str, form: str, config: Path | None) -> None:
    """Lift the protection of KIND/NAME from deletion, or that by namespace/NAME.

    Removes the annotations knell.dev/prevent-delete and services.k8s.aws/prevent-delete, with --service those for that
    service. Nothing else is changed: an object may still be protected by its Namespace.

    It says whether the object is still protected, and by what. The exit code is 1 if it is.
    """
    settings = session.interactive_settings(config)
    service = _checked(service)
    document = cluster_clients.run_with_clusters(_unprotect(settings, what, namespace, cluster, service))
    _show(document, form, wanted=False)


def _show(document: dict[str, Any], form: str, *, wanted: bool) -> None:
    if form == "json":
        output.show_json(document)
    else:
        click.echo(output.clean(document["said"]))
    if document["protected"] is (not wanted):
        click.get_current_context().exit(1)


def _checked(service: str) -> str:
    if fault := service_fault(normalized(service)):
        raise session.InvalidUsage(f"--service: {output.clean(fault)}")
    return normalized(service)


async def _protect(settings: Settings, what: str, namespace: str, cluster: str | None, service: str) -> dict[str, Any]:
    async with resolve_protected(settings, what, namespace, cluster) as one:
        if service and not one.is_namespace and service not in one.services:
            known = ", ".join(filter(None, one.services))
            raise session.InvalidUsage(
                f"--service: annotations for {service} do not count for {one.served.resource}; "
                + (f"its service is {known}" if known else "no service is known for them, so leave it out")
            )
        *others, ours = annotation_names(PREVENT_DELETE, service)[0]

        def decide(live: KubeObject) -> dict[str, str | None]:
            contradicting = [name for name in others if annotation_word(live.annotations.get(name, "true")) != "true"]
            return {ours: "true", **dict.fromkeys(contradicting)}

        return await _change(one, decide, service, wanted=True)


async def _unprotect(
    settings: Settings, what: str, namespace: str, cluster: str | None, service: str
) -> dict[str, Any]:
    async with resolve_protected(settings, what, namespace, cluster) as one:
        names = annotation_names(PREVENT_DELETE, service)[0]

        def decide(live: KubeObject) -> dict[str, str | None]:
            return dict.fromkeys(name for name in names if name in live.annotations)

        return await _change(one, decide, service, wanted=False)


async def _change(one: ProtectedTarget, decide: DecideAnnotations, service: str, *, wanted: bool) -> dict[str, Any]:
    changed: dict[str, str | None] = {}

    async def metadata(live: KubeObject) -> dict[str, Any]:
        nonlocal changed
        changed = decide(live)
        return {"annotations": changed}

    live = one.live
    if decide(live):
        live = await object_patch.patch_metadata(one.cluster, one.served, live, metadata, str(one))
    state = (
        _namespace_state(one, live, service, wanted=wanted)
        if one.is_namespace
        else await _object_state(one, live, service, wanted=wanted)
    )
    return {
        "cluster": one.cluster.name,
        "resource": one.served.resource,
        "namespace": live.namespace,
        "name": live.name,
        "uid": live.uid,
        "set": sorted(name for name, value in changed.items() if value is not None),
        "removed": sorted(name for name, value in changed.items() if value is None),
        "protected": state.holds,
        "going": live.going,
        "said": state.said + (_GOING[one.is_namespace] if live.going else ""),
    }


# ---- the state afterwards


async def _object_state(one: ProtectedTarget, live: KubeObject, service: str, *, wanted: bool) -> _State:
    around: dict[str, str] = {}
    problem = ""
    try:
        around = await one.cluster.namespace_annotations(live.namespace)
    except ClusterError as error:
        problem = str(error)
    found = protection_of(live.annotations, around, one.services)
    decisions = [decide_protection(live.annotations, around, each) for each in one.services]
    if found is not None:
        if wanted:
            return _State(True, f"{one} is protected: {found.reason}.")
        return _State(True, f"{one} is still protected: {found.reason}; to lift that: {_lifting(one, live, found)}")
    if problem and not all(decision.mark for decision in decisions):
        return _State(None, f"Whether {one} is protected by its Namespace is not known: {problem}")
    decision = next((decision for decision in decisions if decision.mark), decisions[0])
    first = _first_instead(decision, service) if wanted else "."
    return _State(False, f"{one} is not protected: {decision.reason}{first}")


def _first_instead(decision: PolicyDecision, service: str) -> str:
    """Of a rank before the one that was set, because there the annotation is `true` now."""
    named = _service_of(decision.mark)
    return f" and counts first; use --service {named}" if named != service else "."


def _lifting(one: ProtectedTarget, live: KubeObject, decision: PolicyDecision) -> str:
    words = one.words
    if level_of(decision, live.annotations) == "Namespace":
        words = f"namespace/{one.live.namespace}"
    named = _service_of(decision.mark)
    return f"knell unprotect {words}" + (f" --service {named}" if named else "")


def _service_of(mark: str) -> str:
    return next((one for one in services_marked({mark: ""}) if one), "")


def _namespace_state(one: ProtectedTarget, live: KubeObject, service: str, *, wanted: bool) -> _State:
    """Of objects in it that have no annotation of their own."""
    decisions = {each: decide_protection({}, live.annotations, each) for each in services_marked(live.annotations)}
    decisions.setdefault(service, decide_protection({}, live.annotations, service))
    chosen = decisions[service]
    holds = chosen.kind != "free"
    which = f"objects of service {service}" if service else "objects"
    sentence = f"{which} in Namespace {live.name} are {_state_word(chosen, wanted=wanted)}: {_reason(chosen)}"
    others = [
        f"those of service {each} are {'not ' if decision.kind == 'free' else ''}protected: {_reason(decision)}"
        for each, decision in decisions.items()
        if each and each != service and decision.mark != decisions[""].mark
    ]
    said = "; ".join([sentence, *others])
    return _State(holds, f"{said[0].upper()}{said[1:]}. Annotations of their own count first.")


def _state_word(decision: PolicyDecision, *, wanted: bool) -> str:
    if decision.kind == "free":
        return "not protected"
    return "protected" if wanted else "still protected"


def _reason(decision: PolicyDecision) -> str:
    return decision.reason.replace(NAMESPACE, "the Namespace") if decision.mark else "it has no annotation for that"
