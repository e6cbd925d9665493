"""The stand-in for Azure as a process of its own: `python -m service.local.azure --port 0`.
Its first line of output is a JSON object with its address."""

import asyncio
import signal

import click
import msgspec

from service.local.azure.behaviour import Behaviour
from service.local.azure.server import Server


@click.command()
@click.option("--port", default=0, help="0 takes any free port.")
@click.option("--rate", default=1.0, help="How many of its seconds pass in one of ours.")
@click.option("--behaviour", "text", default="{}", help="JSON, as for POST /_knell/behaviour.")
def azure(port: int, rate: float, text: str) -> None:
    """Run a stand-in for Azure until it is told to stop."""
    asyncio.run(_serve(Server(msgspec.json.decode(text, type=Behaviour), rate=rate, port=port)))


async def _serve(server: Server) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await server.start()
    try:
        click.echo(msgspec.json.encode({"address": server.address}).decode())
        await stop.wait()
    finally:
        await server.stop()


if __name__ == "__main__":
    azure()
