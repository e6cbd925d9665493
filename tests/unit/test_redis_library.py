"""Only the public interface of redis-py is used, and no private name of it is hidden."""

import ast
import importlib
import inspect
import re
import sys
import textwrap
from types import ModuleType

import pytest

NAMES = ("clients", "cluster_client", "connection", "sentinel_client", "single_client")
MODULES = [importlib.import_module(f"service.engine.{name}") for name in NAMES]
CLASSES = [
    one
    for module in MODULES
    for _, one in inspect.getmembers(module, inspect.isclass)
    if one.__module__ == module.__name__ and any(base.__module__.startswith("redis.") for base in one.__mro__)
]


def private(tree: ast.AST) -> set[tuple[str, str]]:
    """Of what, and its name: `self._free` and `connection._writer`."""
    return {
        (ast.unparse(node.value), node.attr)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and re.match(r"_[a-z]", node.attr)
    }


@pytest.mark.parametrize("ours", CLASSES, ids=[one.__name__ for one in CLASSES])
def test_no_private_name_of_its_parents_is_used_or_hidden_by_a_class(ours: type) -> None:
    names = {name for _, name in private(ast.parse(textwrap.dedent(inspect.getsource(ours))))}
    parents = {base.__module__ for base in ours.__mro__ if base.__module__.startswith("redis.")}
    text = "\n".join(inspect.getsource(sys.modules[name]) for name in parents)
    assert names & set(re.findall(r"(?:\bself\.|\bdef )(_[a-z]\w*)", text)) == set()


@pytest.mark.parametrize("module", MODULES, ids=[one.__name__ for one in MODULES])
def test_no_private_name_of_another_object_is_used(module: ModuleType) -> None:
    used = private(ast.parse(inspect.getsource(module)))
    assert {f"{of}.{name}" for of, name in used if of not in ("self", "super()")} == set()
