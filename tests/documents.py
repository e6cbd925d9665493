"""Parser for the repository's Markdown documents: YAML blocks, command lines, settings, files and Redis keys.
Each `problems_of_...` function returns what in a text contradicts the program, with its line."""

import contextlib
import re
import shlex
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
import msgspec
import yaml

from service.cli.main import cli
from service.settings import SettingsError, load
from service.settings.decoding import Decoding
from service.settings.document import document_type

ROOT: Final = Path(__file__).resolve().parents[1]
_FENCE: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SPAN: Final = re.compile(r"`([^`]+)`")
_LINK: Final = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
_SIBLINGS: Final = re.compile(r"\.\.\. ([a-z]+(?:, [a-z]+)*)")
_SETTING: Final = re.compile(r"([a-z_]+(?:\.\w+)*)(?:: (.+))?", re.DOTALL)
_REMOVED: Final = re.compile(r"^- Removed: .*?(?=^- |^#|\Z)", re.MULTILINE | re.DOTALL)
_TARGETS: Final = re.compile(r"^([a-z][a-z-]*):", re.MULTILINE)
# Programs of others that may stand in a block of shell commands, behind a pipe or alone.
_OTHERS: Final = ("docker", "kubectl", "openssl")


@dataclass(frozen=True, slots=True)
class Block:
    language: str
    text: str
    line: int


@dataclass(frozen=True, slots=True)
class CommandLine:
    """`whole`: it can be typed as it stands. Else it is only mentioned, and values may be left out."""

    words: tuple[str, ...]
    line: int
    whole: bool

    def __str__(self) -> str:
        return shlex.join(self.words)


@dataclass(frozen=True, slots=True)
class RedisKey:
    """A row of the table of keys: the key with placeholders, such as `knell:{0}:lane:NAME`, and its type."""

    pattern: str
    type: str

    def matches(self, key: str) -> bool:
        """Words in capitals stand for anything."""
        anything = re.sub(r"[A-Z]+", ".+", re.escape(self.pattern))
        return re.fullmatch(anything, key) is not None

    @property
    def name(self) -> str:
        """Without what stands before and after it: `lane` of `knell:{0}:lane:NAME`."""
        return self.pattern.replace("{0}:", "").split(":")[1]


def documents() -> list[Path]:
    """All of them: at the top, below `docs`, and beside the tests."""
    top = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
    return [*top, *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "tests").glob("*.md"))]


def blocks(text: str, language: str) -> list[Block]:
    found = [Block(one[1], one[2], _line(text, one.start()) + 1) for one in _FENCE.finditer(text)]
    return [block for block in found if block.language == language]


def spans(text: str) -> Iterator[tuple[str, int]]:
    """Inline code outside of blocks, with its line; one that is broken over two lines is one."""
    prose = _FENCE.sub(lambda block: "\n" * block[0].count("\n"), text)
    for one in _SPAN.finditer(prose):
        yield " ".join(one[1].split()), _line(prose, one.start())


def command_lines(text: str, program: str) -> list[CommandLine]:
    """All uses of a program: lines of shell blocks, what their comments mention, and inline code."""
    found: list[CommandLine] = []
    for block in blocks(text, "sh"):
        for number, line in enumerate(block.text.splitlines(), block.line):
            typed, comment = _split(line)
            found += [CommandLine(words, number, whole=True) for words in typed]
            found += [CommandLine(tuple(one[1].split()), number, whole=False) for one in _SPAN.finditer(comment)]
            for one in _SIBLINGS.finditer(comment):
                # `knell jobs list  # ... show, retry`: further subcommands of the same group.
                found += [CommandLine((*typed[0][:2], name), number, whole=False) for name in one[1].split(", ")]
    for span, line_number in spans(text):
        if span.startswith(f"{program} "):
            for words in _split(span.replace("|", " | ") if " | " in span else span)[0]:
                found += [CommandLine(one, line_number, whole=False) for one in _alternatives(words)]
    return [command for command in found if command.words[0] == program]


def problems_of_yaml(text: str) -> list[str]:
    """Every YAML block is loaded as a settings file."""
    problems = []
    for block in blocks(text, "yaml"):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "settings.yaml"
            path.write_text(block.text)
            try:
                load(path, {})
            except SettingsError as error:
                problems.append(f"line {block.line}: {error}".replace(str(path), "the block"))
    return problems


def problems_of_settings(text: str) -> list[str]:
    """Inline code such as `redis.shards`, `redis.shards: 4` and `features: {Name: true}` is decoded as settings."""
    sections = {field.encode_name for field in msgspec.structs.fields(document_type())}
    problems = []
    for span, line in spans(text):
        said = _SETTING.fullmatch(span)
        if said is None or said[1].split(".")[0] not in sections or (said[2] is None and "." not in said[1]):
            continue
        document: Any = yaml.safe_load(said[2]) if said[2] else None
        for name in reversed(said[1].split(".")):
            document = {name: document}
        decoding = Decoding(source="the document")
        decoding.struct(document_type(), document)
        for problem in decoding.problems:
            # A setting that is only named has no value that could be right, and a single one leaves out the others.
            unnamed = said[2] is None and problem.path == said[1] and not problem.what.startswith("unknown key")
            if not unnamed and problem.what != "must be given":
                problems.append(f"line {line}: {problem}")
    return problems


def problems_of_commands(text: str) -> list[str]:
    """Every `knell ...` is parsed by the real command tree, with nothing carried out.

    An entry `- Removed: ...` of a changelog names commands that must not exist; older entries may mention them."""
    removed = {one.words[1] for entry in _REMOVED.findall(text) for one in command_lines(entry, "knell")}
    existing = removed.intersection(cli.list_commands(click.Context(cli)))
    problems = [f"knell {name} is listed as removed, and exists" for name in sorted(existing)]
    with _nothing_carried_out(cli):
        for command in command_lines(text, "knell"):
            if command.words[1] in removed:
                continue
            words = [word.strip("[]") for word in command.words[1:]]
            try:
                cli.main(words, prog_name="knell", standalone_mode=False)
            except click.UsageError as error:
                if command.whole or not _only_incomplete(error):
                    problems.append(f"line {command.line}: {command}: {error.format_message()}")
    return problems


def problems_of_make(text: str) -> list[str]:
    """Every `make ...` names targets and variables that the Makefile has."""
    makefile = (ROOT / "Makefile").read_text()
    targets = set(_TARGETS.findall(makefile))
    problems = []
    for command in command_lines(text, "make"):
        for word in command.words[1:]:
            name, variable, _ = word.partition("=")
            if variable and f"$({name})" not in makefile:
                problems.append(f"line {command.line}: the Makefile has no variable {name}")
            elif not variable and name != "..." and name not in targets:
                problems.append(f"line {command.line}: there is no `make {name}`")
    return problems


def problems_of_programs(text: str) -> list[str]:
    """A block of shell commands has only programs that are checked, here or by what runs them."""
    checked = {"knell", "make", "redis-cli", *_OTHERS}
    return [
        f"line {number}: {words[0]} is checked by no test"
        for block in blocks(text, "sh")
        for number, line in enumerate(block.text.splitlines(), block.line)
        for words in _split(line)[0]
        if words[0] not in checked
    ]


def problems_of_files(text: str, folder: Path = ROOT) -> list[str]:
    """Files and folders that are linked, or named in full in inline code, are there."""
    roots = {path.name for path in ROOT.iterdir() if path.is_dir()}
    named = [(ROOT / span, span, line) for span, line in spans(text) if "/" in span and span.split("/")[0] in roots]
    named += [(folder / one[1], one[1], _line(text, one.start())) for one in _LINK.finditer(text)]
    return [f"line {line}: there is no {name}" for path, name, line in named if not path.exists()]


def redis_keys(text: str) -> list[RedisKey]:
    """From the table whose head is `| key | type |`; a cell may name several keys, the later ones shortened."""
    found: list[RedisKey] = []
    rows = iter(text.splitlines())
    for line in rows:
        if line.startswith("| key | type |"):
            next(rows)
            break
    for line in rows:
        if not line.startswith("|"):
            break
        cell, types = [part.strip() for part in line.split(" | ")[:2]]
        names, kinds = _SPAN.findall(cell), [kind.removesuffix("s") for kind in types.split(", ")]
        before = ""
        for name, kind in zip(names, kinds * len(names) if len(kinds) == 1 else kinds, strict=True):
            pattern = name.replace("...", before) if "..." in name else name if ":{" in name else f"knell:{{0}}:{name}"
            found.append(RedisKey(pattern, kind))
            before = pattern
    return found


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def _split(line: str) -> tuple[list[tuple[str, ...]], str]:
    """The commands of a line, which pipes and `&&` part, and its comment."""
    code, _, comment = line.partition("#") if line.startswith("#") else line.partition(" #")
    commands: list[tuple[str, ...]] = []
    words: list[str] = []
    for word in [*shlex.split(code), "|"]:
        if word not in ("|", "&&", ";"):
            words.append(word)
        elif words:
            commands.append(tuple(words))
            words = []
    return commands, comment


def _alternatives(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """`gc enable|disable` is two commands."""
    place = next((number for number, word in enumerate(words) if "|" in word), None)
    if place is None:
        yield tuple(words)
        return
    for one in words[place].split("|"):
        yield from _alternatives([*words[:place], one, *words[place + 1 :]])


def _only_incomplete(error: click.UsageError) -> bool:
    missing = isinstance(error, click.MissingParameter | click.exceptions.NoArgsIsHelpError)
    return missing or (isinstance(error, click.BadOptionUsage) and "requires an argument" in error.message)


@contextlib.contextmanager
def _nothing_carried_out(root: click.Group) -> Iterator[None]:
    """Takes away what the commands do; the parser, its types and its checks stay."""
    commands = [command for command in _all(root) if not isinstance(command, click.Group)]
    callbacks = [command.callback for command in commands]
    for command in commands:
        command.callback = None
    try:
        yield
    finally:
        for command, callback in zip(commands, callbacks, strict=True):
            command.callback = callback


def _all(group: click.Group) -> Iterator[click.Command]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is not None:
            yield command
        if isinstance(command, click.Group):
            yield from _all(command)
