"""Lookup of the control plane's programs: in the folder KUBEBUILDER_ASSETS, otherwise the binary in the cache.
That folder is as envtest makes it: kube-apiserver, etcd and kubectl; the other programs are optional."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from standins.controlplane.go_module import GoModule, NoGoModule

ASSETS: Final = "KUBEBUILDER_ASSETS"


class NoControlPlane(Exception):
    """A program is missing or did not start; the message says which one and what to do."""


@dataclass(frozen=True, slots=True)
class Programs:
    """Command of each program. Without a controller manager deleted Namespaces never go; without etcdctl and etcdutl
    snapshots cannot be saved and restored."""

    etcd: tuple[str, ...]
    apiserver: tuple[str, ...]
    kubectl: tuple[str, ...]
    controllers: tuple[str, ...] | None
    etcdctl: tuple[str, ...] | None
    etcdutl: tuple[str, ...] | None
    origin: str
    """Where they come from, for messages."""


def find_programs() -> Programs:
    assets = os.environ.get(ASSETS, "")
    return _given(Path(assets)) if assets else _built()


def available() -> bool:
    """Whether the programs are there. Nothing is started."""
    try:
        find_programs()
    except NoControlPlane:
        return False
    return True


def _given(folder: Path) -> Programs:
    missing = [name for name in ("kube-apiserver", "etcd", "kubectl") if not _runs(folder / name)]
    if missing:
        raise NoControlPlane(
            f"{ASSETS} is {folder}, where there is no {' and no '.join(missing)}; "
            f"correct it, or unset it and run `make controlplane`"
        )
    return Programs(
        etcd=(str(folder / "etcd"),),
        apiserver=(str(folder / "kube-apiserver"),),
        kubectl=(str(folder / "kubectl"),),
        controllers=_optional(folder / "kube-controller-manager"),
        etcdctl=_optional(folder / "etcdctl"),
        etcdutl=_optional(folder / "etcdutl"),
        origin=f"from {folder}",
    )


def _built() -> Programs:
    try:
        recipe = GoModule.read()
    except NoGoModule as error:
        raise NoControlPlane(str(error)) from None
    kube = recipe.binary
    if not _runs(kube):
        raise NoControlPlane(
            f"there is no control plane in the cache ({kube}): name a folder that has kube-apiserver, etcd and kubectl "
            f"in {ASSETS}, or build one in some minutes with `make controlplane`"
        )
    return Programs(
        etcd=(str(kube), "etcd"),
        apiserver=(str(kube), "kube-apiserver"),
        kubectl=(str(kube), "kubectl"),
        controllers=(str(kube), "kube-controller-manager"),
        etcdctl=(str(kube), "etcdctl"),
        etcdutl=(str(kube), "etcdutl"),
        origin=f"{recipe.kubernetes} from the cache",
    )


def _optional(program: Path) -> tuple[str, ...] | None:
    return (str(program),) if _runs(program) else None


def _runs(program: Path) -> bool:
    return program.is_file() and os.access(program, os.X_OK)
