"""Runner for `knell` commands against an engine that a test has set up.
Commands run in this process; those that must be interrupted or timed run as real processes."""

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
from tests.engine.engine_under_test import EngineUnderTest
from tests.redis_servers import TestServer

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class CommandResult:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.out, f"no output, exit code {self.code}: {self.err}"
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


def invoke(variables: Mapping[str, str], *words: str, answer: str | None = None) -> CommandResult:
    """Run a command in this thread. `answer` is what is typed when it asks."""
    # A tty is what CliRunner is not: nothing is folded, and colours are left out.
    result = CliRunner().invoke(cli, list(words), input=answer, env=dict(variables))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return CommandResult(result.exit_code, result.stdout, result.stderr)


async def knell(engine: EngineUnderTest, *words: str, answer: str | None = None) -> CommandResult:
    """The same from an async test: a command brings a loop of its own."""
    variables = environment(engine.settings.redis)
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
async def operated(server: TestServer, *, shards: int | None = None) -> AsyncIterator[EngineUnderTest]:
    engine = EngineUnderTest(server.server, server.settings(shards=shards))
    await engine.arrive()
    try:
        yield engine
    finally:
        await engine.close()


@pytest.fixture
async def engine(server: TestServer) -> AsyncIterator[EngineUnderTest]:
    async with operated(server) as made:
        yield made


@pytest.fixture
async def embedded_engine(embedded_server: TestServer) -> AsyncIterator[EngineUnderTest]:
    """For what does not depend on the kind of server."""
    async with operated(embedded_server) as made:
        yield made
