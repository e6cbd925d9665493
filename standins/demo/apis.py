"""Which API server the demo runs on: the real control plane where it has been built, else the embedded one.
Both are used in the same way; a sentence says which it is, and how to get the real one."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from standins.api import EmbeddedApi
from standins.controlplane import ControlPlane, NoControlPlane, Programs, find_programs
from standins.controlplane.programs import ASSETS

Choice = Literal["auto", "real", "embedded"]


class LocalApi(Protocol):
    """What both have in common."""

    def start(self) -> object: ...
    def stop(self) -> None: ...
    def kubeconfig(self, path: Path) -> Path: ...


@dataclass(frozen=True, slots=True)
class Chosen:
    """`kind` is `real` or `embedded`; nothing is started yet."""

    kind: Literal["real", "embedded"]
    server: LocalApi
    words: str


def choose(which: Choice, port: int = 0) -> Chosen:
    """On that port, 0: on any free one. Raises NoControlPlane where the real one is demanded and is not there."""
    if which == "embedded":
        return Chosen("embedded", EmbeddedApi(port=port), "an embedded API server")
    if which == "real":
        programs = find_programs()
        if not _whole(programs):
            raise NoControlPlane(
                f"there is no kube-controller-manager ({programs.origin}), without which no Namespace ever goes"
            )
        return _real(programs, port)
    try:
        programs = find_programs()
    except NoControlPlane as error:
        why = str(error) if os.environ.get(ASSETS) else "`make controlplane` builds the real one, once"
    else:
        if _whole(programs):
            return _real(programs, port)
        why = f"the real one lacks kube-controller-manager, {programs.origin}"
    return Chosen("embedded", EmbeddedApi(port=port), f"an embedded API server ({why})")


def _real(programs: Programs, port: int) -> Chosen:
    return Chosen("real", ControlPlane(programs=programs, port=port), f"a real control plane ({programs.origin})")


def _whole(programs: Programs) -> bool:
    return programs.controllers is not None
