"""Command that serves the simulated provider: `python -m tests.simulated.serve --port 0 --log FILE`.
Its first line of output is a JSON object with its address."""

import asyncio
import signal
from datetime import timedelta
from pathlib import Path

import click
import msgspec

from tests.simulated.behaviour import Behaviour, Quota
from tests.simulated.server import SimulatedProvider


def _latency(_context: click.Context, _option: click.Parameter, text: str) -> tuple[timedelta, timedelta]:
    low, dash, high = text.partition("-")
    try:
        return timedelta(milliseconds=float(low)), timedelta(milliseconds=float(high if dash else low))
    except ValueError:
        raise click.BadParameter(f"milliseconds are written as 20 or 50-500, not {text!r}") from None


def _quota(_context: click.Context, _option: click.Parameter, text: str | None) -> Quota | None:
    try:
        return Quota.parse(text) if text else None
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", default=0, help="0 takes any free port.")
@click.option("--log", type=click.Path(path_type=Path, dir_okay=False), help="Appended to, one JSON object a line.")
@click.option("--latency", default="0", callback=_latency, help="Milliseconds of each call: 20, or 50-500.")
@click.option("--quota", callback=_quota, help="Deletes of an account: bucket:1000/300 or window:1000/300.")
@click.option("--remaining-header/--no-remaining-header", default=True, help="Whether answers tell what is left.")
@click.option("--retry-after/--no-retry-after", default=True, help="Whether a refusal tells when to come again.")
@click.option("--pause", default=0.0, help="Seconds for which an account that was refused stays refused.")
@click.option("--errors", default=0.0, help="The part of deletes that fail with a 500.")
@click.option("--scale", default=1.0, help="How many of the provider's seconds pass in one of ours.")
@click.option("--seed", default=0, help="Of its random numbers.")
@click.option("--seed-file", type=click.Path(path_type=Path, exists=True), help="JSON, as for POST /seed.")
def provider(
    host: str,
    port: int,
    log: Path | None,
    latency: tuple[timedelta, timedelta],
    quota: Quota | None,
    remaining_header: bool,
    retry_after: bool,
    pause: float,
    errors: float,
    scale: float,
    seed: int,
    seed_file: Path | None,
) -> None:
    """Serve a simulated provider until SIGTERM or SIGINT."""
    behaviour = Behaviour(
        latency=latency,
        quota=quota,
        remaining_header=remaining_header,
        retry_after_header=retry_after,
        pause=timedelta(seconds=pause),
        errors=errors,
        scale=scale,
        seed=seed,
    )
    one = SimulatedProvider(behaviour, log=log, host=host, port=port)
    if seed_file is not None:
        one.load(seed_file.read_bytes())
    asyncio.run(_serve(one))


async def _serve(one: SimulatedProvider) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with one:
        click.echo(msgspec.json.encode({"address": one.address}).decode())
        await stop.wait()


if __name__ == "__main__":
    provider()
