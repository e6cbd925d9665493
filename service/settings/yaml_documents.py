"""YAML parser without tags, which rejects repeated keys.
Its errors name the position but never quote the text, because it may contain a password."""

from typing import Any

import yaml


class YamlError(ValueError):
    """The text is not valid YAML, or has a repeated key."""


class _StrictLoader(yaml.SafeLoader):
    """Safe loader that raises an error for repeated keys."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            name = str(key.value)
            if name in seen:
                raise YamlError(f"key {name} stands there twice, line {key.start_mark.line + 1}")
            seen.add(name)
        return super().construct_mapping(node, deep)


def parse_yaml(text: str) -> Any:
    """Raises YamlError."""
    try:
        return yaml.load(text, Loader=_StrictLoader)  # noqa: S506 - the loader is a safe one
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}" if mark else "place unknown"
        raise YamlError(f"{error.problem or 'malformed'}, {where}") from None
    except yaml.YAMLError:
        raise YamlError("malformed") from None
