"""YAML texts into plain values, by a reader that knows no tags and takes a repeated key for a mistake.
Its errors say where a text is broken and quote nothing of it, because it may hold a password."""

from typing import Any

import yaml


class DocumentError(ValueError):
    """The text is not YAML, or says something twice."""


class _Reader(yaml.SafeLoader):
    """The safe reader, except that the second of two equal keys does not silently win."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            name = str(key.value)
            if name in seen:
                raise DocumentError(f"key {name} stands there twice, line {key.start_mark.line + 1}")
            seen.add(name)
        return super().construct_mapping(node, deep)


def parse(text: str) -> Any:
    """Raises DocumentError."""
    try:
        return yaml.load(text, Loader=_Reader)  # noqa: S506 - the reader is a safe one
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}" if mark else "place unknown"
        raise DocumentError(f"{error.problem or 'malformed'}, {where}") from None
    except yaml.YAMLError:
        raise DocumentError("malformed") from None
