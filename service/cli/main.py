"""The `knell` command: list of its subcommands, and the options that all of them share.
A subcommand's module is imported only when it is called, so that `knell --help` is fast."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import click

FORMS: Final = ("table", "wide", "json", "name")
FORM: Final = f"{__name__}.form"
"""Key of the chosen form in `click.Context.meta`."""


@dataclass(frozen=True, slots=True)
class RootOptions:
    """Options before the subcommand; the same options after it win."""

    config: Path | None = None
    output: str = "table"


# Name, module of service.cli, attribute there, one line for `knell --help`.
_COMMANDS: Final[tuple[tuple[str, str, str, str], ...]] = (
    ("work", "work", "work", "Run workers: plan events and carry out their jobs."),
    ("watch", "watch", "watch", "Watch the sources: add finalizers, publish deletions."),
    ("webhook", "webhook", "webhook", "Run only the webhook that denies deletions."),
    ("run", "run", "run", "Run everything in one process."),
    ("plan", "plan", "plan", "What would be deleted with an object, in which stages, and why."),
    ("sweep", "sweep", "sweep", "Find resources that no event announced: one pass of a sweep now, or only a dry run."),
    ("gc", "gc", "gc", "Collect what one object owns, whatever its age, or leave it alone."),
    ("protect", "protect", "protect", "Protect an object, or all objects of a Namespace, from deletion."),
    ("unprotect", "protect", "unprotect", "Lift the protection of an object, or of a Namespace, from deletion."),
    (
        "protection",
        "protection",
        "protection",
        "What is protected, and whether the API server denies its deletion: list, manifests, test.",
    ),
    ("sources", "sources", "sources", "Sources and their state: list, relist, release, drop."),
    ("clusters", "clusters", "clusters", "Clusters by name and identity: list, forget, accept-restore."),
    ("role", "role", "role", "Print the roles that the service needs in a cluster."),
    ("uninstall", "uninstall", "uninstall", "Remove our finalizers from all objects."),
    ("status", "status", "status", "Current state: lanes, totals, budgets."),
    ("jobs", "jobs", "jobs", "List, show, retry or abandon jobs."),
    ("deletions", "deletions", "deletions", "List deletions, or show the whole history of one."),
    ("held", "held", "held", "What needs an operator: list, replay, drop."),
    ("kept", "kept", "kept", "What was kept on purpose, and holds a later object of that name: list, forget."),
    ("pause", "pause", "pause", "Stop all lanes, or one, before the next destructive call."),
    ("resume", "pause", "resume", "Resume all lanes, or one."),
    ("guard", "guard", "guard", "Guard against too many deletions of a source at once: status, release."),
    ("reshard", "reshard", "reshard", "Move the data to another number of shards, with workers stopped."),
    (
        "doctor",
        "doctor.command",
        "doctor",
        "Check Redis, the clusters and the clouds, and show what is missing and how to mend it.",
    ),
)


class LazyGroup(click.Group):
    """Imports a subcommand only when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name, *_ in _COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        for name, module, attribute, _ in _COMMANDS:
            if name == cmd_name:
                # Must be imported first: it decides how structlog is imported, which every command's module imports.
                import_module("service.logs")
                command = getattr(import_module(f"service.cli.{module}"), attribute)
                if not isinstance(command, click.Command):
                    raise TypeError(f"service.cli.{module}.{attribute} is no command")
                return command
        return None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, about) for name, _, _, about in _COMMANDS])


def _version(ctx: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from importlib.metadata import version

        click.echo(f"knell {version('knell')}")
        ctx.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    help="YAML file with settings; otherwise the one that KNELL_CONFIG names.",
)
@click.option(
    "--output",
    "-o",
    type=click.Choice(FORMS),
    default="table",
    help="Output format: 80 columns wide, whole, JSON, or only names.  [default: table]",
)
@click.option("--version", is_flag=True, expose_value=False, is_eager=True, callback=_version, help="Show the version.")
@click.pass_context
def cli(ctx: click.Context, config: Path | None, output: str) -> None:
    """Removes what a Kubernetes object owned outside its cluster: completely, once, in order, within quotas.

    Every setting can be given in a YAML file or as a variable KNELL_<SECTION>_<KEY>, such as KNELL_REDIS_URL.
    """
    ctx.obj = RootOptions(config, output)


def main(arguments: Sequence[str] | None = None) -> Any:
    """Entry point of the package."""
    return cli.main(args=arguments, prog_name="knell")
