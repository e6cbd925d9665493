"""Choice of the API server: the real control plane where it has been built, otherwise the embedded one.
Both have the same interface; `words` says which it is, and how to get the real one."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from standins.controlplane import ControlPlane, NoControlPlane, Programs, find_programs
from standins.controlplane.programs import ASSETS
from standins.kubernetes_api import EmbeddedApi

ApiServerChoice = Literal["auto", "real", "embedded"]


class LocalApi(Protocol):
    """Interface of both API servers."""

    def start(self) -> object: ...
    def stop(self) -> None: ...
    def kubeconfig(self, path: Path) -> Path: ...


@dataclass(frozen=True, slots=True)
class Chosen:
    """An API server that is not started yet."""

    kind: Literal["real", "embedded"]
    server: LocalApi
    words: str


def choose(which: ApiServerChoice, port: int = 0) -> Chosen:
    """Port 0 is any free one. Raises NoControlPlane if `real` is demanded and not available."""
    if which == "embedded":
        return Chosen("embedded", EmbeddedApi(port=port), "an embedded API server")
    if which == "real":
        programs = find_programs()
        if not _is_complete(programs):
            raise NoControlPlane(
                f"there is no kube-controller-manager ({programs.origin}), without which no Namespace ever goes"
            )
        return _real(programs, port)
    try:
        programs = find_programs()
    except NoControlPlane as error:
        why = str(error) if os.environ.get(ASSETS) else "`make controlplane` builds the real one, once"
    else:
        if _is_complete(programs):
            return _real(programs, port)
        why = f"the real one lacks kube-controller-manager, {programs.origin}"
    return Chosen("embedded", EmbeddedApi(port=port), f"an embedded API server ({why})")


def _real(programs: Programs, port: int) -> Chosen:
    return Chosen("real", ControlPlane(programs=programs, port=port), f"a real control plane ({programs.origin})")


def _is_complete(programs: Programs) -> bool:
    return programs.controllers is not None
