"""Command `python -m standins.controlplane build`, which `make controlplane` runs.
It builds the control plane's binary once; after that it only prints where it is."""

import os
import time

import click
from rich.console import Console

from standins.controlplane.build import BuildFailed, build
from standins.controlplane.build_progress import BuildProgress
from standins.controlplane.go_module import GoModule, NoGoModule
from standins.controlplane.go_toolchain import NoGo, find_go
from standins.controlplane.programs import ASSETS, NoControlPlane, find_programs


@click.group()
def main() -> None:
    """The real control plane that integration tests run on."""


@main.command("build")
@click.option("--again", is_flag=True, help="Build even if it is there.")
def build_command(again: bool) -> None:
    """Build it into the user's cache folder, unless it is there."""
    console = Console(soft_wrap=True, highlight=False)
    try:
        if os.environ.get(ASSETS):
            programs = find_programs()
            console.print(f"Nothing to build: {ASSETS} is set, and the control plane is there ({programs.origin}).")
            return
        recipe = GoModule.read()
        if recipe.binary.exists() and not again:
            console.print(f"The control plane {recipe.kubernetes} is there: {recipe.binary}")
            return
        console.print(
            f"Building kube-apiserver, kube-controller-manager and kubectl {recipe.kubernetes}, "
            f"etcd, etcdctl and etcdutl {recipe.etcd}, once: 6 to 10 minutes on two cores, "
            f"3 GB of disk meanwhile, about 130 MB to stay."
        )
        go = find_go(recipe.go, console.print)
        began = time.monotonic()
        with BuildProgress(console) as steps:
            build(recipe, go, steps)
    except (NoControlPlane, NoGoModule, NoGo, BuildFailed) as error:
        raise click.ClickException(str(error)) from None
    except KeyboardInterrupt:
        raise click.ClickException("interrupted; nothing was left behind") from None
    size = recipe.binary.stat().st_size / 1e6
    console.print(f"Built in {time.monotonic() - began:.0f} s: {recipe.binary} ({size:.0f} MB)")


if __name__ == "__main__":
    main(prog_name="python -m standins.controlplane")
