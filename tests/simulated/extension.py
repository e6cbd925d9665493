"""Extension of the `knell` command line by the simulated collector and its handler, with one provider's address."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, NamedTuple

from service.cli.session import CommandError
from service.settings import Settings
from service.watching.recognition import Recognise
from tests.simulated.collector import NAME, recognise
from tests.simulated.handler import ProviderUnreachable, SimulatedHandler

ADDRESS: Final = "SIMULATED_PROVIDER"
"""The environment variable that gives `python -m tests.simulated` the provider's address."""


class _Connected(NamedTuple):
    collector: SimulatedHandler
    handlers: tuple[SimulatedHandler, ...]


@dataclass(frozen=True, slots=True)
class SimulatedExtension:
    address: str

    @property
    def collectors(self) -> Mapping[str, Recognise]:
        return {NAME: recognise}

    @asynccontextmanager
    async def connect(self, settings: Settings) -> AsyncIterator[_Connected]:
        provider = SimulatedHandler(self.address, caller=settings.worker.name)
        try:
            await provider.__aenter__()
        except ProviderUnreachable as error:
            raise CommandError(f"can't reach the simulated provider at {self.address} ({error})") from None
        try:
            yield _Connected(provider, (provider,))
        finally:
            await provider.__aexit__(None, None, None)
