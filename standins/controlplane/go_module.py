"""The Go module from which the control plane is built, and the path of its binary in the user's cache.
The path contains a digest of the module, so a changed module never uses the binary of another."""

import hashlib
import os
import platform
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

_ROOT: Final = Path(__file__).resolve().parents[2]
_FILES: Final = ("go.mod", "go.sum", "main.go")
_KUBERNETES: Final = re.compile(r"^\s*(?:require\s+)?k8s\.io/kubernetes\s+(v\d+\.\d+\.\d+)\s*$", re.MULTILINE)
_ETCD: Final = re.compile(r"^\s*(?:require\s+)?go\.etcd\.io/etcd/server/v3\s+v(\d+\.\d+\.\d+)\s*$", re.MULTILINE)
_GO: Final = re.compile(r"^go (\d+)\.(\d+)", re.MULTILINE)


class NoGoModule(Exception):
    """The Go module is missing or cannot be read; the message says why."""


@dataclass(frozen=True, slots=True)
class GoModule:
    """One version of the Go module."""

    folder: Path
    kubernetes: str
    etcd: str
    go: tuple[int, int]
    digest: str

    @classmethod
    def read(cls, folder: Path = _ROOT / "tests" / "controlplane") -> Self:
        # The platform is part of the digest: a home folder may be shared by different machines.
        digest = hashlib.sha256(f"{platform.system()} {platform.machine()}".encode())
        try:
            for name in _FILES:
                content = (folder / name).read_bytes()
                digest.update(f"\n{name} {len(content)}\n".encode() + content)
            text = (folder / "go.mod").read_text()
        except OSError as error:
            raise NoGoModule(
                f"the control plane is built from knell's repository, but {error.filename} cannot be read "
                f"({error.strerror}); run `make controlplane` in a full clone"
            ) from None
        kubernetes, etcd, go = _KUBERNETES.search(text), _ETCD.search(text), _GO.search(text)
        if kubernetes is None or etcd is None or go is None:
            raise NoGoModule(
                f"{folder / 'go.mod'} names no release of k8s.io/kubernetes or of etcd, or no version of Go"
            )
        return cls(folder, kubernetes[1], etcd[1], (int(go[1]), int(go[2])), digest.hexdigest()[:12])

    @property
    def binary(self) -> Path:
        """Path of the built binary, whether it exists or not."""
        return _cache() / "knell" / "controlplane" / f"{self.kubernetes}-{self.digest}" / "kube"


def _cache() -> Path:
    # The XDG specification says to ignore a relative path.
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return given if given.is_absolute() else Path.home() / ".cache"
