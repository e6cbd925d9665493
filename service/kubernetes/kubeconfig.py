"""Kubeconfig parser: typed records, merged as kubectl merges them, with absolute file names. Messages name files,
contexts and users, and never a value, because many values are secrets."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from service.kubernetes.errors import Unavailable


class KubeconfigCluster(msgspec.Struct, rename="kebab"):
    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""


class KubeconfigUser(msgspec.Struct, rename="kebab"):
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    username: str = ""
    password: str = ""
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    exec: dict[str, Any] | None = None
    auth_provider: dict[str, Any] | None = None

    def __repr__(self) -> str:
        return "KubeconfigUser(***)"

    def uses_local_machine(self) -> bool:
        """Whether it names commands or files of this machine."""
        files = (self.token_file, self.client_certificate, self.client_key)
        return self.exec is not None or self.auth_provider is not None or any(files)


class _Context(msgspec.Struct):
    cluster: str = ""
    user: str = ""


class _NamedCluster(msgspec.Struct):
    name: str
    cluster: KubeconfigCluster


class _NamedUser(msgspec.Struct):
    name: str
    user: KubeconfigUser | None = None


class _NamedContext(msgspec.Struct):
    name: str
    context: _Context


class _KubeconfigFile(msgspec.Struct):
    current_context: str | None = msgspec.field(default=None, name="current-context")
    clusters: list[_NamedCluster] | None = None
    users: list[_NamedUser] | None = None
    contexts: list[_NamedContext] | None = None


class KubeconfigContext(msgspec.Struct, frozen=True):
    """One context with its cluster and user."""

    context: str
    server: KubeconfigCluster
    user: KubeconfigUser


def default_paths() -> list[Path]:
    """Where kubectl looks by default."""
    listed = [Path(part).expanduser() for part in os.environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    return listed or [Path.home() / ".kube" / "config"]


def load(paths: Sequence[Path], context: str | None) -> KubeconfigContext:
    files = [_parse(path.read_bytes(), str(path), path.parent.absolute()) for path in paths if path.is_file()]
    if not files:
        raise Unavailable(f"there is no kubeconfig at {', '.join(map(str, paths))}")
    return _resolve(files, ", ".join(map(str, paths)), context)


def parse(text: bytes, where: str, context: str | None) -> KubeconfigContext:
    """A kubeconfig that is no file of this machine: it may not name commands or files here."""
    entry = _resolve([_parse(text, where, None)], where, context)
    if entry.user.uses_local_machine() or entry.server.certificate_authority:
        raise Unavailable(
            f"{where}: names a command or a file of this machine, which a kubeconfig from outside may not; "
            "put certificates, keys and tokens into it as data"
        )
    return entry


def _parse(text: bytes, where: str, folder: Path | None) -> _KubeconfigFile:
    try:
        file = msgspec.yaml.decode(text, type=_KubeconfigFile, strict=False)
    except msgspec.ValidationError as error:
        raise Unavailable(f"{where}: not a kubeconfig: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError):
        # The message of the parser quotes the line, which may contain a token.
        raise Unavailable(f"{where}: can't be read as YAML") from None
    if folder is not None:
        for cluster in file.clusters or []:
            cluster.cluster.certificate_authority = _absolute(cluster.cluster.certificate_authority, folder)
        for user in file.users or []:
            if user.user is not None:
                _absolute_user(user.user, folder)
    return file


def _absolute_user(user: KubeconfigUser, folder: Path) -> None:
    user.token_file = _absolute(user.token_file, folder)
    user.client_certificate = _absolute(user.client_certificate, folder)
    user.client_key = _absolute(user.client_key, folder)
    command = (user.exec or {}).get("command")
    # As kubectl does it: a name is looked up on PATH, a relative path belongs to the file.
    if user.exec is not None and isinstance(command, str) and os.sep in command:
        user.exec["command"] = _absolute(command, folder)


def _absolute(name: str, folder: Path) -> str:
    return str(folder / name) if name else ""


def _resolve(files: Sequence[_KubeconfigFile], where: str, wanted: str | None) -> KubeconfigContext:
    # The first file that names something wins, as with kubectl.
    current = next((file.current_context for file in files if file.current_context), None)
    name = wanted or current
    if not name:
        raise Unavailable(f"{where}: has no current context; name one in the settings of the cluster")
    contexts = [known for file in files for known in file.contexts or []]
    context = next((known.context for known in contexts if known.name == name), None)
    if context is None:
        listed = ", ".join(sorted(known.name for known in contexts)) or "none"
        raise Unavailable(f"{where}: there is no context {name!r} (there are: {listed})")
    clusters = (known for file in files for known in file.clusters or [])
    server = next((known.cluster for known in clusters if known.name == context.cluster), None)
    if server is None or not server.server:
        raise Unavailable(f"{where}: context {name!r} names the cluster {context.cluster!r}, which has no server there")
    users = (known for file in files for known in file.users or [])
    user = next((known.user for known in users if known.name == context.user), None)
    if user is None and context.user:
        raise Unavailable(f"{where}: context {name!r} names the user {context.user!r}, which is not there")
    return KubeconfigContext(name, server, user or KubeconfigUser())
