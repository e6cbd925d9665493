"""Validator of Compose files that does not need Docker.

The published schema rejects unknown keys and wrong types. In addition, every name that is used must be defined, and
every mounted file must exist.
"""

import json
import re
import sys
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from jsonschema.validators import validator_for
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

# The wheel of check-jsonschema contains the schema of the Compose specification, so no network is needed.
SCHEMA = files("check_jsonschema").joinpath("builtin_schemas", "vendor", "compose-spec.json")


def faults(path: Path) -> Iterator[str]:
    """All problems of the file, one line each."""
    try:
        # This parser also rejects duplicate keys.
        project = YAML(typ="safe", pure=True).load(path.read_text())
    except YAMLError as unreadable:
        yield " ".join(str(unreadable).split())
        return
    schema = json.loads(SCHEMA.read_text())
    broken = list(validator_for(schema)(schema).iter_errors(project))
    for error in broken:
        yield f"{'.'.join(map(str, error.absolute_path)) or 'top level'}: {error.message}"
    if not broken:
        for name, service in project.get("services", {}).items():
            for fault in undefined(service, project, path.parent):
                yield f"services.{name}: {fault}"


def undefined(service: Mapping[str, Any], project: Mapping[str, Any], folder: Path) -> Iterator[str]:
    """Names that the service uses and the project does not define."""
    for other in service.get("depends_on", ()):
        if other not in project["services"]:
            yield f"depends_on names an undefined service {other!r}"
    for volume in service.get("volumes", ()):
        source = volume_source(volume)
        if source and source not in project.get("volumes", {}):
            yield f"volumes names an undefined volume {source!r}"
        mounted = folder / host_path(volume) if host_path(volume) else None
        if mounted is not None and not mounted.exists():
            yield f"volumes mounts a missing file or folder {mounted}"
    for kind in ("networks", "secrets", "configs"):
        for used in service.get(kind, ()):
            name = used["source"] if isinstance(used, Mapping) else used
            if name not in project.get(kind, {}) and (kind, name) != ("networks", "default"):
                yield f"{kind} names an undefined {kind[:-1]} {name!r}"
    build = service.get("build")
    if isinstance(build, Mapping):
        dockerfile = folder / build.get("context", ".") / build.get("dockerfile", "Dockerfile")
        if not dockerfile.is_file():
            yield f"build names a missing Dockerfile {dockerfile}"


def volume_source(volume: str | Mapping[str, Any]) -> str | None:
    """The named volume of a mount, or None for a folder of the host or an anonymous volume."""
    if isinstance(volume, Mapping):
        return volume.get("source") if volume["type"] == "volume" else None
    source, separator, _ = volume.partition(":")
    return source if separator and not source.startswith((".", "/", "~", "$")) else None


def host_path(volume: str | Mapping[str, Any]) -> str:
    """The mounted file or folder of the host, with the defaults of its variables; empty for a volume."""
    if isinstance(volume, Mapping):
        return with_defaults(str(volume["source"])) if volume["type"] == "bind" else ""
    source, separator, _ = with_defaults(volume).partition(":")
    return source if separator and source.startswith((".", "/")) else ""


def with_defaults(text: str) -> str:
    """Replaces `${NAME:-default}` by its default, as Compose does if NAME is not set."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)


def main() -> int:
    """Checks the files named on the command line; the exit status is 1 if any has a problem."""
    found = [f"{name}: {fault}" for name in sys.argv[1:] for fault in faults(Path(name))]
    sys.stderr.writelines(f"{line}\n" for line in found)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
