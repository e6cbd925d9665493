"""Rules for names and prose: one name for one thing, modules that say what they are, and no riddles."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PRODUCT = ("service", "workers", "standins")

# Names that say nothing of a module's duty.
VAGUE = {"base", "common", "helpers", "manager", "misc", "util", "utils", "wiring"}

# Words that hide which component is meant: the planner, the caller, the operator, a finalizer that is removed.
RIDDLES = re.compile(r"\b(nobody|somebody|who asks|is told|are told|let go|lets go|goes round)\b", re.IGNORECASE)


def modules(*packages: str) -> Iterator[tuple[str, str]]:
    for package in packages:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield str(path.relative_to(ROOT)), path.read_text()


@pytest.mark.parametrize("packages", [PRODUCT, ("tests", "bench")], ids=["product", "tests"])
def test_no_two_classes_share_a_name(packages: tuple[str, ...]) -> None:
    places = defaultdict(list)
    for path, text in modules(*packages):
        for node in ast.parse(text).body:
            if isinstance(node, ast.ClassDef):
                places[node.name].append(path)
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_no_module_has_a_name_that_would_fit_any_other() -> None:
    assert [path for path, _ in modules(*PRODUCT, "bench") if Path(path).stem in VAGUE] == []


def test_every_folder_says_what_belongs_there() -> None:
    def sentences(text: str) -> int:
        return len(re.findall(r"\.(?=\s|$)", ast.get_docstring(ast.parse(text)) or ""))

    folders = [(path, text) for path, text in modules(*PRODUCT) if Path(path).name == "__init__.py"]
    assert folders
    assert [path for path, text in folders if sentences(text) < 2 or "egin with" not in text] == []


def test_prose_names_the_component_that_acts() -> None:
    found = [
        f"{path}:{number}: {line.strip()}"
        for path, text in modules(*PRODUCT)
        for number, line in enumerate(text.splitlines(), start=1)
        if RIDDLES.search(line)
    ]
    assert found == []
