"""Worker of a scenario: `python -m tests.scenarios.worker_process ADDRESS SPARE`, settings from the environment.
It removes resources of the simulated provider at that address, and calls it under the worker's name."""

import os
import sys

from service import logs
from service.cli.long_running import run_loop
from service.engine.installation import Installation
from service.settings import load
from tests.recorded_release import RecordedRelease
from tests.simulated.handler import SOURCE, SimulatedHandler
from workers.handlers.registry import HandlerRegistry
from workers.runtime.worker import Worker


async def work(address: str, spare: float) -> None:
    settings = load(None, os.environ)
    logs.configure(settings.log)
    installation = Installation(settings, name=settings.worker.name)
    try:
        async with SimulatedHandler(address, caller=settings.worker.name, spare=spare) as provider:
            worker = Worker(installation, HandlerRegistry([RecordedRelease(), provider], {SOURCE: provider}))
            worker.handle_signals()
            await worker.run()
    finally:
        await installation.aclose()


if __name__ == "__main__":
    run_loop(work(sys.argv[1], float(sys.argv[2])))
