"""`knell role`: prints manifests of Namespace, ServiceAccount and roles for the settings, or the IAM policy.
They are to be generated again when sources change, so that the service has no permission it does not need."""

from pathlib import Path
from typing import Any

import click
import msgspec

from service.cli import session
from service.cli.output import show_json
from service.cli.rbac import ServiceAccount, namespace_manifests, role_manifests
from service.settings import Settings


@click.command()
@click.option("--cluster", metavar="NAME", help="For which cluster; may be left out where there is only one.")
@click.option("--account", default="knell", show_default=True, help="Name of the ServiceAccount and its roles.")
@click.option("--namespace", help="Namespace of the ServiceAccount.  [default: watch.namespace]")
@click.option("--aws-policy", is_flag=True, help="The IAM policy for AWS instead, for what the settings allow.")
@session.output_option
@session.config_option
def role(
    cluster: str | None, account: str, namespace: str | None, form: str, config: Path | None, *, aws_policy: bool
) -> None:
    """Print the roles that the service needs, for kubectl apply -f -.

    They are made from the configured sources: minimal verbs, named objects where they are known. There is no wildcard,
    but one for the webhook if it is enabled: it lists the metadata of all resources of the protected groups. The
    Namespaces of the service account and of the Leases are created, too; those of others, such as CAPA's, must exist.
    To take everything away use `knell uninstall`: kubectl delete -f - would delete the Namespace and all that is in it.
    """
    settings = session.load_settings(config)
    if aws_policy:
        click.echo(_aws_policy(settings), nl=False)
        return
    holder = ServiceAccount(namespace or settings.watch.namespace, account)
    own = namespace_manifests(settings, holder)
    made = [*own, *role_manifests(settings, chosen_cluster(settings, cluster), holder)]
    if others := sorted(_namespaces(made) - {one["metadata"]["name"] for one in own}):
        click.echo(
            f"Roles in {', '.join(others)} are among these: where such a Namespace does not exist yet, apply them "
            f"again when it does.",
            err=True,
        )
    if form == "json":
        show_json({"apiVersion": "v1", "kind": "List", "items": made})
    else:
        click.echo(as_yaml(made), nl=False)


def _namespaces(made: list[dict[str, Any]]) -> set[str]:
    return {one["metadata"]["namespace"] for one in made if "namespace" in one["metadata"]}


def _aws_policy(settings: Settings) -> str:
    # Imported only here: other commands need not load the kinds of AWS resources.
    from workers.permissions import as_text, aws_policy

    return as_text(aws_policy(settings))


def as_yaml(made: list[dict[str, object]]) -> str:
    return "".join(f"---\n{msgspec.yaml.encode(one).decode()}" for one in made)


def chosen_cluster(settings: Settings, name: str | None) -> str:
    """The named cluster, or the only one of the settings."""
    known = ", ".join(settings.clusters) or "none"
    if name is None and len(settings.clusters) != 1:
        raise session.InvalidUsage(
            f"say which cluster by --cluster, for there is not exactly one in the settings ({known})"
        )
    if name is not None and name not in settings.clusters:
        raise session.InvalidUsage(f"{name!r} is no cluster of the settings ({known})")
    return name or next(iter(settings.clusters))
