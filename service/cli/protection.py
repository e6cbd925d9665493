"""`knell protection`: lists what is protected from deletion and whether the API server denies it, prints the manifests
for that, and tries the deletion of one object by a server dry run."""

from pathlib import Path
from typing import Any, Final

import click
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.text import Text

from service.admission.dry_run import DryRunAnswer, dry_run_delete
from service.admission.manifests import protection_manifests
from service.admission.protected_objects import ProtectedListing, ProtectedObject, list_protected
from service.admission.protected_resources import ProtectedResources
from service.admission.protection_status import Door, ProtectionStatus, protection_status
from service.cli import cluster_clients, output, session
from service.cli.addresses import kind_and_name
from service.cli.protected_lookup import (
    ProtectedTarget,
    protected_argument,
    protection_cluster,
    resolve_protected,
)
from service.cli.role import as_yaml
from service.contract.resource_names import short_kind
from service.settings import Settings

_DOORS: Final[dict[Door, str]] = {
    "closed": "The API server denies the deletion of these objects.",
    "not as the settings say": "The API server denies deletions, but not as the settings say; see below.",
    "open": "The API server denies none of these deletions: only workers of Knell heed the annotation.",
    "not known": "Whether the API server denies these deletions is not known; see below.",
}
_STYLES: Final = {"fine": "green", "warning": "yellow", "wrong": "bold red", "unknown": "cyan"}
_WIDE: Final = ("uid", "reason")


@click.group()
def protection() -> None:
    """Protection from deletion by the API server: what is protected, manifests, and a test of one object."""


@protection.command("list")
@click.option("--namespace", "-n", help="Only objects in this Namespace.  [default: all]")
@click.option("--cluster", metavar="NAME", help="Which cluster.  [default: protection.cluster, or the only one]")
@click.option("--limit", default=500, show_default=True, type=click.IntRange(min=1), help="Objects shown at most.")
@session.listing_option
@session.config_option
def listing(namespace: str | None, cluster: str | None, limit: int, form: str, config: Path | None) -> None:
    """Every protected object, by which annotation, and whether the API server denies its deletion.

    What can't be read is named, for there may be protected objects in it. The state of the admission policy and of the
    webhook, its certificate included, is below the list; for that it tries the deletion of a Namespace by a server dry
    run.
    """
    settings = session.interactive_settings(config)
    chosen = protection_cluster(settings, cluster)
    found, state = cluster_clients.run_with_clusters(_list(settings, chosen, namespace))
    if form == "json":
        output.show_json(_listing_document(chosen, found, state, limit))
    elif form == "name":
        output.show_names(kind_and_name(one.resource, one.name) for one in found.objects[:limit])
        for words in [*_unread(found), *_more(found, limit)]:
            click.echo(output.clean(words), err=True)
    else:
        _show_listing(found, state, limit, namespace)


async def _list(settings: Settings, name: str, namespace: str | None) -> tuple[ProtectedListing, ProtectionStatus]:
    columns = (TextColumn("listing protected resources"), BarColumn(), MofNCompleteColumn())
    async with cluster_clients.open_cluster(settings, name) as (cluster, _):
        with Progress(*columns, console=output.status_line(), transient=True) as progress:
            task = progress.add_task("", total=None)

            def show(done: int, total: int) -> None:
                progress.update(task, completed=done, total=total)

            found = await list_protected(cluster, ProtectedResources(settings, name), namespace, show)
        inside = {one.namespace for one in found.objects if one.namespace}
        return found, await protection_status(cluster, settings, protected_namespaces=inside)


def _show_listing(found: ProtectedListing, state: ProtectionStatus, limit: int, namespace: str | None) -> None:
    if found.objects:
        rows = [_row(one) for one in found.objects[:limit]]
        columns = ("namespace", "object", "annotation", "of", "note", *_WIDE)
        output.show([output.table("Protected from deletion", columns, rows, wide=_WIDE)])
    else:
        where = f" in Namespace {namespace}" if namespace else ""
        output.show([output.note(f"No object{where} is protected.")])
    empty = {one.name for one in found.namespaces} - {one.namespace for one in found.objects}
    if empty:
        names = ", ".join(sorted(empty))
        output.show([output.note(f"Also protected is what will be made in these Namespaces: {names}")])
    output.show(output.note(words) for words in [*_more(found, limit), *_unread(found)])
    output.show([output.note(_DOORS[state.door], "bold")])
    for result in state.results:
        word = Text("can't tell" if result.state == "unknown" else result.state, style=_STYLES[result.state])
        output.show([Text.assemble(word, output.note(f": {result.check}: {result.what}"))])
        if result.mend:
            output.show([Padding(output.note(f"to mend it: {result.mend}"), (0, 0, 0, 4), expand=False)])


def _row(one: ProtectedObject) -> tuple[object, ...]:
    notes = [] if one.valid else [Text("invalid value", style="yellow").plain]
    if one.going:
        notes.append("being deleted")
    named = f"{short_kind(one.resource)}/{one.name}"
    return (one.namespace, named, one.annotation, one.level, ", ".join(notes), one.uid, one.reason)


def _more(found: ProtectedListing, limit: int) -> list[str]:
    rest = len(found.objects) - limit
    return [f"and {rest} more (--limit, now {limit})"] if rest > 0 else []


def _unread(found: ProtectedListing) -> list[str]:
    return [f"Not read, so there may be more: {one.what}: {one.why}" for one in found.unread]


def _listing_document(cluster: str, found: ProtectedListing, state: ProtectionStatus, limit: int) -> dict[str, Any]:
    return {
        "cluster": cluster,
        "protected": found.objects[:limit],
        "more": max(0, len(found.objects) - limit),
        "namespaces": found.namespaces,
        "unread": found.unread,
        "door": state.door,
        "checks": state.results,
    }


@protection.command("manifests")
@click.option("--cluster", metavar="NAME", help="For which cluster.  [default: protection.cluster, or the only one]")
@session.output_option
@session.config_option
def manifests(cluster: str | None, form: str, config: Path | None) -> None:
    """Print the admission policies and their bindings, for kubectl apply -f -, and what the webhook needs if enabled.

    They are made from the settings; apply them again when sources or protection.groups change.
    """
    settings = session.load_settings(config)
    made = protection_manifests(settings, protection_cluster(settings, cluster))
    webhook = settings.protection.webhook
    if webhook.enabled and webhook.failure_policy == "Fail":
        click.echo(
            "The webhook is enabled with failure policy Fail: start Knell first. From when this is applied, Namespaces "
            "and CRDs that it covers can be deleted only while it answers; `knell protection list` says whether it "
            "does.",
            err=True,
        )
    if form == "json":
        output.show_json({"apiVersion": "v1", "kind": "List", "items": made})
    else:
        click.echo(as_yaml(made), nl=False)


@protection.command("test")
@protected_argument
@session.output_option
@session.config_option
def try_deletion(what: str, namespace: str, cluster: str | None, form: str, config: Path | None) -> None:
    """Try the deletion of KIND/NAME, or of namespace/NAME, by a server dry run, and show the answer.

    The API server asks admission as for a real deletion, with your own credentials; nothing is deleted. The exit code
    is 0 whether the deletion is denied or would succeed, and 1 if the server answers neither, such as where you may
    not delete it.
    """
    settings = session.interactive_settings(config)
    document = cluster_clients.run_with_clusters(_try_deletion(settings, what, namespace, cluster))
    if form == "json":
        output.show_json(document)
    else:
        click.echo(output.clean(document["said"]))


async def _try_deletion(settings: Settings, what: str, namespace: str, cluster: str | None) -> dict[str, Any]:
    async with resolve_protected(settings, what, namespace, cluster) as one:
        answer = await dry_run_delete(one.cluster, one.served, one.live)
        if answer.outcome == "forbidden":
            raise session.CommandError(
                f"these credentials may not delete {one}, so admission was not asked: {output.clean(answer.message)}"
            )
        return {
            "cluster": one.cluster.name,
            "resource": one.served.resource,
            "namespace": one.live.namespace,
            "name": one.live.name,
            "uid": one.live.uid,
            "going": one.live.going,
            "denied": answer.outcome != "allowed",
            "by": answer.by,
            "answer": answer.message,
            "said": _said(one, answer),
        }


def _said(one: ProtectedTarget, answer: DryRunAnswer) -> str:
    if answer.outcome == "allowed":
        if one.live.going:
            return f"{one} is already being deleted, and another deletion would not be denied."
        return f"{one} would be deleted: the server denies nothing."
    if answer.outcome == "unreachable":
        return f"denied, because the API server can't reach the webhook {answer.by}: {answer.message}"
    return f"denied: {answer.message}"
