"""The command line as an operator uses it, against a world that a test has made through the engine.
Commands run in this process; those that must be interrupted or timed run as real ones."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from service.cli.main import cli
from service.settings import RedisSettings
from tests.engine.world import World
from tests.servers import TestServer

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Answer:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def environment(redis: RedisSettings) -> dict[str, str]:
    """The variables that lead a command to this server."""
    variables = {
        "KNELL_REDIS_URL": str(redis.url),
        "KNELL_REDIS_MODE": redis.mode,
        "KNELL_REDIS_PREFIX": redis.prefix,
        "KNELL_REDIS_SHARDS": str(redis.shards),
        "KNELL_REDIS_SENTINELS": ",".join(map(str, redis.sentinels)),
        "KNELL_REDIS_SENTINEL_MASTER": redis.sentinel_master,
        "KNELL_REDIS_NODES": ",".join(map(str, redis.nodes)),
    }
    return {name: value for name, value in variables.items() if value}


def invoke(variables: Mapping[str, str], *words: str, answer: str | None = None) -> Answer:
    """Run a command in this thread. `answer` is what is typed when it asks."""
    # A tty is what CliRunner is not: nothing is folded, and colours are left out.
    result = CliRunner().invoke(cli, list(words), input=answer, env=dict(variables))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Answer(result.exit_code, result.stdout, result.stderr)


async def knell(world: World, *words: str, answer: str | None = None) -> Answer:
    """The same from an async test: a command brings a loop of its own."""
    variables = environment(world.settings.redis)
    return await asyncio.to_thread(invoke, variables, *words, answer=answer)


def start(variables: Mapping[str, str], *words: str, output: int = subprocess.PIPE) -> "subprocess.Popen[str]":
    """A real process, as the installed command starts it."""
    return subprocess.Popen(
        [sys.executable, "-c", "from service.cli.main import main; main()", *words],
        cwd=ROOT,
        env={**os.environ, **variables, "PYTHONUNBUFFERED": "1"},
        stdout=output,
        stderr=subprocess.PIPE,
        text=True,
    )


@asynccontextmanager
async def operated(server: TestServer, *, shards: int | None = None) -> AsyncIterator[World]:
    world = World(server.server, server.settings(shards=shards))
    await world.arrive()
    try:
        yield world
    finally:
        await world.close()


@pytest.fixture
async def world(server: TestServer) -> AsyncIterator[World]:
    async with operated(server) as made:
        yield made


@pytest.fixture
async def small(embedded_server: TestServer) -> AsyncIterator[World]:
    """For what does not depend on the kind of server."""
    async with operated(embedded_server) as made:
        yield made
