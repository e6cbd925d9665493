"""Process that runs passes of a sweep, to measure their memory: `python -m ... CONFIG`.
For each line of input it runs a pass and writes what was found, and its peak memory during the pass."""

import asyncio
import sys
from pathlib import Path
from typing import Final

import msgspec

from service import logs
from service.cli.cluster_clients import connect_clusters
from service.engine.installation import Installation
from service.settings import load
from tests.scenarios.azure.azure_scenario import SOURCE
from workers.app import open_app
from workers.sweeps.sweep_pass import SweepPass

_STATUS: Final = Path("/proc/self/status")


class PassResult(msgspec.Struct, frozen=True):
    """`peak` are the bytes that it had at most, `after` those that it had when it was over."""

    listed: int
    found: int
    told: int
    way: str
    peak: int
    after: int


async def sweep(config: Path) -> None:
    settings = load(config, {})
    logs.configure(settings.log)
    installation = Installation(settings)
    try:
        async with connect_clusters(settings) as clusters, open_app(settings, clusters, installation) as app:
            places, finder = app.source_clusters, app.orphan_finder(SOURCE)
            while places.of(SOURCE) is None:  # noqa: ASYNC110 - clusters come in without a bell
                await asyncio.sleep(0.05)
            while await asyncio.to_thread(sys.stdin.readline):
                _forget_peak()
                one = await SweepPass(settings, installation, places, finder, SOURCE).run()
                made = PassResult(one.listed, one.found, one.published, one.method, _bytes("VmHWM"), _bytes("VmRSS"))
                sys.stdout.write(msgspec.json.encode(made).decode() + "\n")
                sys.stdout.flush()
    finally:
        await installation.aclose()


def _forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def _bytes(name: str) -> int:
    lines = _STATUS.read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


if __name__ == "__main__":
    asyncio.run(sweep(Path(sys.argv[1])))
