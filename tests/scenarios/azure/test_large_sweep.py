"""Tens of thousands of interfaces are swept page by page: what a pass needs above an idle process is bounded."""

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from service.contract.azure import resource_name
from standins.azure import Nic, Vm
from tests.scenarios.azure.stage import TAGS, Stage
from tests.scenarios.azure.sweeping_process import Made

pytestmark = pytest.mark.long

ROOT: Final = Path(__file__).parents[3]
MB: Final = 1024 * 1024
SIZES: Final = [
    pytest.param(8_000, 15 * MB, id="8000"),
    pytest.param(80_000, 150 * MB, id="80000", marks=pytest.mark.timeout(600)),
]
FREE: Final = {"capacity": 1_000_000, "rate": 1_000_000}


class Sweeping:
    """The process that sweeps."""

    def __init__(self, config: Path, folder: Path) -> None:
        with (folder / "sweeping.log").open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.scenarios.azure.sweeping_process", str(config)],
                cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
            )  # fmt: skip

    async def one_pass(self) -> Made:
        return await asyncio.to_thread(self._pass)

    def _pass(self) -> Made:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith(b'{"listed"'):
                return msgspec.json.decode(line, type=Made)
        raise AssertionError(f"it ended with status {self._process.wait()}")

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def start(vast: Stage, tmp_path: Path) -> Iterator[Callable[[str], Sweeping]]:
    made: list[Sweeping] = []

    def started(listing: str) -> Sweeping:
        vast.sweeping(age="0s", listing=listing)
        vast.document["limits"] = {"*": FREE}
        made.append(Sweeping(vast.config(), tmp_path))
        return made[-1]

    yield started
    for one in made:
        one.end()


@pytest.mark.parametrize("listing", ["graph", "provider"])
@pytest.mark.parametrize(("number", "most"), SIZES)
async def test_orphaned_interfaces_are_seen_and_told_in_bounded_memory(
    vast: Stage, start: Callable[[str], Sweeping], number: int, most: int, listing: str
) -> None:
    await vast.azure.behave(read_quotas=False)
    await vast.nic(vast.name("first"))
    swept = start(listing)
    await swept.one_pass()
    idle = await swept.one_pass()
    assert (idle.found, idle.told, idle.way) == (1, 1, listing)
    await _interfaces(vast, number)
    seen = await swept.one_pass()
    async with _planned(vast):
        told = await swept.one_pass()
    assert (seen.found, seen.told) == (number + 1, 0)
    assert (told.found, told.told) == (number + 1, number)
    above = [one.peak - idle.after for one in (seen, told)]
    assert max(above) < most, [round(one / MB, 1) for one in above]


@pytest.mark.parametrize(("number", "most"), SIZES)
async def test_interfaces_of_machines_are_listed_in_bounded_memory(
    vast: Stage, start: Callable[[str], Sweeping], number: int, most: int
) -> None:
    """As many machines as interfaces, none of them with a claim."""
    await vast.azure.behave(read_quotas=False)
    await vast.vm(vast.name("first"))
    swept = start("graph")
    await swept.one_pass()
    idle = await swept.one_pass()
    await _interfaces(vast, number, attached=True)
    seen = await swept.one_pass()
    assert (seen.listed, seen.found) == (2 * (number + 1), number + 1)
    above = seen.peak - idle.after
    assert above < most, round(above / MB, 1)


@contextlib.asynccontextmanager
async def _planned(stage: Stage) -> AsyncIterator[None]:
    """As if everything that is told were planned at once: a sweep tells no more than planners keep up with."""
    (shard,) = stage.installation.shards

    async def plan() -> None:
        while True:
            await shard.caller.command("XTRIM", f"{shard.stem}events", "MAXLEN", 0)
            await asyncio.sleep(0.02)

    planning = asyncio.ensure_future(plan())
    try:
        yield
    finally:
        planning.cancel()
        await asyncio.wait([planning])


async def _interfaces(stage: Stage, number: int, *, attached: bool = False) -> None:
    names = [resource_name(stage.name(f"{one:05}")) for one in range(number)]
    mine: dict[str, Any] = {"tags": TAGS, "subscription": stage.subscription}
    await stage.make(Nic(name=name, vm=name if attached else "", **mine) for name in names)
    if attached:
        await stage.make(Vm(name=name, nics=(name,), **mine) for name in names)
