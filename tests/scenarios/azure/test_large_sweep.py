"""Sweep of tens of thousands of interfaces, page by page: the memory of a pass above an idle process is bounded."""

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from service.sources.karpenter_azure import resource_name
from standins.azure import Nic, Vm
from tests.scenarios.azure.azure_scenario import TAGS, AzureScenario
from tests.scenarios.azure.sweeping_process import PassResult

pytestmark = pytest.mark.long

ROOT: Final = Path(__file__).parents[3]
MB: Final = 1024 * 1024
SIZES: Final = [
    pytest.param(8_000, 15 * MB, id="8000"),
    pytest.param(80_000, 150 * MB, id="80000", marks=pytest.mark.timeout(600)),
]
FREE: Final = {"capacity": 1_000_000, "rate": 1_000_000}


class SweepingProcess:
    """The process that sweeps."""

    def __init__(self, config: Path, folder: Path) -> None:
        with (folder / "sweeping.log").open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.scenarios.azure.sweeping_process", str(config)],
                cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
            )  # fmt: skip

    async def one_pass(self) -> PassResult:
        return await asyncio.to_thread(self._pass)

    def _pass(self) -> PassResult:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith(b'{"listed"'):
                return msgspec.json.decode(line, type=PassResult)
        raise AssertionError(f"it ended with status {self._process.wait()}")

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def start(large_scenario: AzureScenario, tmp_path: Path) -> Iterator[Callable[[str], SweepingProcess]]:
    made: list[SweepingProcess] = []

    def started(listing: str) -> SweepingProcess:
        large_scenario.sweeping(age="0s", listing=listing)
        large_scenario.document["limits"] = {"*": FREE}
        made.append(SweepingProcess(large_scenario.config(), tmp_path))
        return made[-1]

    yield started
    for one in made:
        one.end()


@pytest.mark.parametrize("listing", ["graph", "provider"])
@pytest.mark.parametrize(("number", "most"), SIZES)
async def test_orphaned_interfaces_are_found_and_published_in_bounded_memory(
    large_scenario: AzureScenario, start: Callable[[str], SweepingProcess], number: int, most: int, listing: str
) -> None:
    await large_scenario.azure.behave(read_quotas=False)
    await large_scenario.nic(large_scenario.name("first"))
    swept = start(listing)
    await swept.one_pass()
    idle = await swept.one_pass()
    assert (idle.found, idle.told, idle.way) == (1, 1, listing)
    await _interfaces(large_scenario, number)
    seen = await swept.one_pass()
    async with _planned(large_scenario):
        told = await swept.one_pass()
    assert (seen.found, seen.told) == (number + 1, 0)
    assert (told.found, told.told) == (number + 1, number)
    above = [one.peak - idle.after for one in (seen, told)]
    assert max(above) < most, [round(one / MB, 1) for one in above]


@pytest.mark.parametrize(("number", "most"), SIZES)
async def test_interfaces_of_machines_are_listed_in_bounded_memory(
    large_scenario: AzureScenario, start: Callable[[str], SweepingProcess], number: int, most: int
) -> None:
    """As many machines as interfaces, none of them with a claim."""
    await large_scenario.azure.behave(read_quotas=False)
    await large_scenario.vm(large_scenario.name("first"))
    swept = start("graph")
    await swept.one_pass()
    idle = await swept.one_pass()
    await _interfaces(large_scenario, number, attached=True)
    seen = await swept.one_pass()
    assert (seen.listed, seen.found) == (2 * (number + 1), number + 1)
    above = seen.peak - idle.after
    assert above < most, round(above / MB, 1)


@contextlib.asynccontextmanager
async def _planned(scenario: AzureScenario) -> AsyncIterator[None]:
    """As if everything published were planned at once: a sweep publishes no more than planners keep up with."""
    (shard,) = scenario.installation.shards

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


async def _interfaces(scenario: AzureScenario, number: int, *, attached: bool = False) -> None:
    names = [resource_name(scenario.name(f"{one:05}")) for one in range(number)]
    mine: dict[str, Any] = {"tags": TAGS, "subscription": scenario.subscription}
    await scenario.make(Nic(name=name, vm=name if attached else "", **mine) for name in names)
    if attached:
        await scenario.make(Vm(name=name, nics=(name,), **mine) for name in names)
