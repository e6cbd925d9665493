"""Which environment variable stands for which setting, and what the variables of a process say.
Every key has one variable, KNELL_<SECTION>_<KEY>, and a KNELL_ variable that names no key is a problem."""

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any, Final, get_origin

import msgspec

from service.settings.decoding import Given
from service.settings.documents import DocumentError, parse
from service.settings.problems import Problem
from service.settings.sections import Settings
from service.settings.values import unwrap

PREFIX: Final = "KNELL_"
CONFIG_VARIABLE: Final = "KNELL_CONFIG"
# Switches of the test suite; they reach the processes that it starts.
_TEST_PREFIX: Final = "KNELL_TEST_"

# Kubernetes gives every pod variables for the Services of its namespace. A Service called `knell` or
# `knell-redis` makes some that begin like ours, and `knell-surface` even makes KNELL_SURFACE_PORT=tcp://...
_SERVICE_LINK: Final = re.compile(
    r"\w+_SERVICE_HOST|\w+_SERVICE_PORT(_\w+)?|\w+_PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?"
)
_SERVICE_ADDRESS: Final = re.compile(r"(tcp|udp|sctp)://\S+", re.IGNORECASE)


def variables() -> dict[str, tuple[str, ...]]:
    """Every variable that is understood, with the path of its setting."""
    return {PREFIX + "_".join(path).upper(): path for path, _ in _leaves(Settings, ())}


def overlay(environ: Mapping[str, str]) -> tuple[dict[str, Any], list[Problem]]:
    """The tree that the variables describe, to be laid over that of the file."""
    kinds = dict(_leaves(Settings, ()))
    known = variables()
    tree: dict[str, Any] = {}
    problems = []
    for name, text in sorted(environ.items()):
        # Compose files and charts hand on variables that nobody filled: empty is not set.
        if not name.startswith(PREFIX) or name.startswith(_TEST_PREFIX) or name == CONFIG_VARIABLE or not text:
            continue
        if _is_service_link(name, text):
            continue
        path = known.get(name)
        if path is None:
            problems.append(Problem(name, f"unknown variable; {_nearest_variable(name, known)}"))
            continue
        try:
            _put(tree, path, _raw(kinds[path], text, name))
        except DocumentError as error:
            problems.append(Problem(".".join(path), f"cannot be read as YAML, {error}", name))
    return tree, problems


def lay_over(below: Mapping[Any, Any], above: Mapping[Any, Any]) -> dict[Any, Any]:
    """A tree in which the upper one wins wherever both say something."""
    merged = dict(below)
    for key, value in above.items():
        under = merged.get(key)
        if not isinstance(value, Mapping) or under is None:
            merged[key] = value
        elif isinstance(under, Mapping):
            merged[key] = lay_over(under, value)
        # Else the file has a bare value where a section belongs: it stays, to be reported.
    return merged


def _leaves(kind: type[msgspec.Struct], path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for info in msgspec.structs.fields(kind):
        bare, _, _ = unwrap(info.type)
        if isinstance(bare, type) and issubclass(bare, msgspec.Struct):
            yield from _leaves(bare, (*path, info.encode_name))
        else:
            yield (*path, info.encode_name), info.type


def _raw(kind: Any, text: str, variable: str) -> object:
    bare, _, _ = unwrap(kind)
    if get_origin(bare) is dict:
        return _marked(parse(text), variable)
    return Given(text, variable, text=True)


def _marked(raw: object, variable: str) -> object:
    if isinstance(raw, Mapping):
        return {key: _marked(value, variable) for key, value in raw.items()}
    return Given(raw, variable)


def _put(tree: dict[str, Any], path: tuple[str, ...], value: object) -> None:
    for key in path[:-1]:
        tree = tree.setdefault(key, {})
    tree[path[-1]] = value


def _is_service_link(name: str, text: str) -> bool:
    return bool(_SERVICE_LINK.fullmatch(name) or (name.endswith("_PORT") and _SERVICE_ADDRESS.fullmatch(text)))


def _nearest_variable(name: str, known: Mapping[str, object]) -> str:
    # Without the prefix, which would make every variable look alike.
    close = get_close_matches(name.removeprefix(PREFIX), [other.removeprefix(PREFIX) for other in known], cutoff=0.65)
    if close:
        return f"did you mean {' or '.join(PREFIX + other for other in close)}?"
    sections = ", ".join(f"{PREFIX}{section.upper()}" for section in Settings.__struct_fields__)
    return f"allowed are those that begin with {sections}"
