"""Environment variables of settings: KNELL_<SECTION>_<KEY> for every key.
A KNELL_ variable that names no key is a problem."""

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any, Final, get_origin

import msgspec

from service.settings.decoding import RawValue
from service.settings.document import document_type
from service.settings.problems import Problem
from service.settings.values import unwrap_type
from service.settings.yaml_documents import YamlError, parse_yaml

PREFIX: Final = "KNELL_"
CONFIG_VARIABLE: Final = "KNELL_CONFIG"
# Variables of the test suite, which the processes that it starts inherit.
_TEST_PREFIX: Final = "KNELL_TEST_"

# Kubernetes sets variables for the Services of a pod's namespace. For a Service `knell` or `knell-redis` they begin
# like ours, and for `knell-surface` there is even KNELL_SURFACE_PORT=tcp://...
_SERVICE_LINK: Final = re.compile(
    r"\w+_SERVICE_HOST|\w+_SERVICE_PORT(_\w+)?|\w+_PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?"
)
_SERVICE_ADDRESS: Final = re.compile(r"(tcp|udp|sctp)://\S+", re.IGNORECASE)


def variables() -> dict[str, tuple[str, ...]]:
    """All variables, with the paths of their settings."""
    return {PREFIX + "_".join(path).upper(): path for path, _ in _leaves(document_type(), ())}


def environment_tree(environ: Mapping[str, str]) -> tuple[dict[str, Any], list[Problem]]:
    """The values of the variables as a tree, which overrides that of the file."""
    kinds = dict(_leaves(document_type(), ()))
    known = variables()
    tree: dict[str, Any] = {}
    problems = []
    for name, text in sorted(environ.items()):
        # Compose files and charts pass variables without a value: empty means not set.
        if not name.startswith(PREFIX) or name.startswith(_TEST_PREFIX) or name == CONFIG_VARIABLE or not text:
            continue
        if _is_service_link(name, text):
            continue
        path = known.get(name)
        if path is None:
            problems.append(Problem(name, f"unknown variable; {_nearest_variable(name, known)}"))
            continue
        try:
            _set_path(tree, path, _raw(kinds[path], text, name))
        except YamlError as error:
            problems.append(Problem(".".join(path), f"cannot be read as YAML, {error}", name))
    return tree, problems


def merge_trees(below: Mapping[Any, Any], above: Mapping[Any, Any]) -> dict[Any, Any]:
    """Merges two trees; `above` has precedence."""
    merged = dict(below)
    for key, value in above.items():
        under = merged.get(key)
        if not isinstance(value, Mapping) or under is None:
            merged[key] = value
        elif isinstance(under, Mapping):
            merged[key] = merge_trees(under, value)
        # Else the file has a plain value in place of a section, which is reported later.
    return merged


def _leaves(kind: type[msgspec.Struct], path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for info in msgspec.structs.fields(kind):
        bare, _, _ = unwrap_type(info.type)
        if isinstance(bare, type) and issubclass(bare, msgspec.Struct):
            yield from _leaves(bare, (*path, info.encode_name))
        else:
            yield (*path, info.encode_name), info.type


def _raw(kind: Any, text: str, variable: str) -> object:
    bare, _, _ = unwrap_type(kind)
    if get_origin(bare) is dict:
        return _with_origin(parse_yaml(text), variable)
    return RawValue(text, variable, text=True)


def _with_origin(raw: object, variable: str) -> object:
    if isinstance(raw, Mapping):
        return {key: _with_origin(value, variable) for key, value in raw.items()}
    return RawValue(raw, variable)


def _set_path(tree: dict[str, Any], path: tuple[str, ...], value: object) -> None:
    for key in path[:-1]:
        tree = tree.setdefault(key, {})
    tree[path[-1]] = value


def _is_service_link(name: str, text: str) -> bool:
    return bool(_SERVICE_LINK.fullmatch(name) or (name.endswith("_PORT") and _SERVICE_ADDRESS.fullmatch(text)))


def _nearest_variable(name: str, known: Mapping[str, object]) -> str:
    # Without the prefix, which would make all variables similar.
    close = get_close_matches(name.removeprefix(PREFIX), [other.removeprefix(PREFIX) for other in known], cutoff=0.65)
    if close:
        return f"did you mean {' or '.join(PREFIX + other for other in close)}?"
    sections = ", ".join(f"{PREFIX}{section.upper()}" for section in document_type().__struct_fields__)
    return f"allowed are those that begin with {sections}"
