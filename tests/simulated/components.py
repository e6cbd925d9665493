"""Worker side of the simulated source: its collector, which is also the handler of its kind."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from service.cli.session import CommandError
from tests.simulated.handler import ProviderUnreachable, SimulatedHandler
from tests.simulated.source import provider_address
from workers.handlers.components import Components, Context


@asynccontextmanager
async def components(context: Context) -> AsyncIterator[Components]:
    address = provider_address()
    provider = SimulatedHandler(address, caller=context.settings.worker.name)
    try:
        await provider.__aenter__()
    except ProviderUnreachable as error:
        raise CommandError(f"can't reach the simulated provider at {address} ({error})") from None
    try:
        yield Components(collector=provider, handlers=[provider])
    finally:
        await provider.__aexit__(None, None, None)
