"""The list of invariants in docs/invariants.md: each of them has a test in `make test`, and no marker names another."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
MARKER = "pytest.mark.invariant"
LONG = "pytest.mark.long"


class MarkedTest(NamedTuple):
    """A test function and the numbers in its markers."""

    name: str
    numbers: list[int]
    long: bool


def documented() -> list[int]:
    """The numbers of the rows of the table."""
    page = (ROOT / "docs/invariants.md").read_text()
    return [int(number) for number in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)]


def marked_in(source: str, path: str = "") -> Iterator[MarkedTest]:
    module = ast.parse(source)
    whole = [node.value for node in module.body if isinstance(node, ast.Assign) and _names(node) == ["pytestmark"]]
    long = any(LONG in ast.unparse(value) for value in whole)
    for node in ast.walk(module):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or not node.name.startswith("test_"):
            continue
        calls = [one for one in node.decorator_list if isinstance(one, ast.Call) and ast.unparse(one.func) == MARKER]
        numbers = [number for call in calls for number in ast.literal_eval(ast.Tuple(elts=call.args, ctx=ast.Load()))]
        is_long = long or any(ast.unparse(one).startswith(LONG) for one in node.decorator_list)
        if numbers:
            yield MarkedTest(f"{path}::{node.name}", numbers, is_long)


def _names(node: ast.Assign) -> list[str]:
    return [target.id for target in node.targets if isinstance(target, ast.Name)]


def faults(known: list[int], marked: list[MarkedTest]) -> list[str]:
    """What is missing, and what is too much."""
    tested = {number for one in marked if not one.long for number in one.numbers}
    missing = [f"invariant {number} has no test in `make test`" for number in known if number not in tested]
    strange = [f"{one.name}: there is no invariant {n}" for one in marked for n in one.numbers if n not in known]
    return missing + strange


def test_each_invariant_has_a_test_that_tries_to_break_it() -> None:
    known = documented()
    assert known == list(range(1, len(known) + 1))
    files = sorted(ROOT.glob("tests/**/test_*.py"))
    found = [one for file in files for one in marked_in(file.read_text(), str(file.relative_to(ROOT)))]
    assert faults(known, found) == []


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("@pytest.mark.invariant(1)\ndef test_one(): ...", []),
        ("@pytest.mark.invariant(1, 3)\nasync def test_one(): ...", ["t::test_one: there is no invariant 3"]),
        ("def test_one(): ...", ["invariant 1 has no test in `make test`"]),
        (
            "@pytest.mark.long\n@pytest.mark.invariant(1)\ndef test_one(): ...",
            ["invariant 1 has no test in `make test`"],
        ),
        (
            "pytestmark = [pytest.mark.long]\n@pytest.mark.invariant(1)\ndef test_one(): ...",
            ["invariant 1 has no test in `make test`"],
        ),
    ],
)
def test_a_missing_test_and_a_strange_number_are_found(source: str, said: list[str]) -> None:
    assert faults([1], list(marked_in(source, "t"))) == said
