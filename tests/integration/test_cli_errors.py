"""A command that fails says in one sentence what is wrong and what to do, without a traceback."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from service.cli.main import LazyGroup, cli
from standins.redis_servers import LocalRedis
from tests.integration.command_line import ROOT, environment, invoke, operated, start
from tests.redis_servers import TestServer

COMMANDS = [
    ["status"],
    ["jobs", "list"],
    ["jobs", "show", "c/r/u/1#1.0"],
    ["jobs", "retry", "c/r/u/1#1.0"],
    ["jobs", "abandon", "c/r/u/1#1.0", "--yes"],
    ["deletions", "list"],
    ["deletions", "show", "c/r/u/1"],
    ["held", "list"],
    ["held", "replay", "event:1-1"],
    ["held", "drop", "event:1-1", "--yes"],
    ["pause"],
    ["resume"],
]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_server_that_is_not_there_is_named_with_what_to_do(words: list[str]) -> None:
    secret = {"KNELL_REDIS_URL": "redis://someone:s3cret-word@127.0.0.1:1/0"}
    answer = invoke(secret, *words)
    assert answer.code == 1
    assert answer.err.startswith("Error: can't reach redis://127.0.0.1:1/0")
    assert "set redis.url (KNELL_REDIS_URL)" in answer.err
    assert len(answer.err.splitlines()) == 1
    assert "s3cret" not in answer.out + answer.err


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
async def test_a_wrong_shard_count_changes_nothing_and_shows_no_partial_result(
    words: list[str], embedded_server: TestServer
) -> None:
    async with operated(embedded_server, shards=3) as engine:
        wrong = msgspec.structs.replace(engine.settings.redis, shards=2)
        answer = await asyncio.to_thread(invoke, environment(wrong), *words)
        assert (answer.code, answer.out) == (1, "")
        assert "the data is kept in 3 shards, but redis.shards says 2" in answer.err
        assert not any([await engine.hash(shard.stem + "paused") for shard in engine.installation.shards])


def test_a_hung_server_is_reported_after_a_short_timeout() -> None:
    with LocalRedis() as server:
        server.freeze()
        try:
            answer = invoke(environment(server.settings()), "status")
        finally:
            server.thaw()
    assert (answer.code, "did not answer in time" in answer.err) == (1, True)


def test_a_missing_permission_points_to_the_doctor() -> None:
    with LocalRedis() as server:
        with server.admin() as client:
            client.execute_command("ACL", "SETUSER", "weak", "on", ">word", "~*", "+@all", "-zcard")
        url = {"KNELL_REDIS_URL": f"redis://weak:word@{server.host}:{server.port}/0"}
        answer = invoke(url, "status")
    assert (answer.code, "`knell doctor` lists what is missing" in answer.err) == (1, True)
    assert "Traceback" not in answer.err


def test_wrong_settings_name_their_path_and_the_exit_code_is_two(tmp_path: Path) -> None:
    config = tmp_path / "knell.yaml"
    config.write_text("redis:\n  shards: many\n")
    for words in (["--config", str(config), "status"], ["status", "--config", str(config)]):
        answer = invoke({}, *words)
        assert answer.code == 2
        assert "redis.shards" in answer.err
        assert "a whole number" in answer.err
    answer = invoke({}, "status", "--config", str(tmp_path / "absent.yaml"))
    assert (answer.code, "cannot be read" in answer.err) == (2, True)


@pytest.mark.parametrize("words", [["stauts"], ["jobs", "list", "--state", "odd"], ["jobs", "list", "--limit", "0"]])
def test_a_misspelt_command_is_refused(words: list[str]) -> None:
    answer = invoke({}, *words)
    assert answer.code == 2
    assert "Traceback" not in answer.err


def test_help_names_every_command_and_loads_none() -> None:
    probe = (
        "import sys\nfrom service.cli.main import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit as end:\n    assert end.code == 0\n"
        "print('loaded', sorted({'redis', 'rich', 'msgspec', 'aiohttp'} & set(sys.modules)))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", probe],
        cwd=ROOT,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        check=True,
    )
    assert "loaded []" in answer.stdout
    for name in cli.list_commands(None):  # type: ignore[arg-type]
        assert f"  {name} " in answer.stdout


@pytest.mark.parametrize("name", ["status", "jobs", "deletions", "held", "pause", "resume", "doctor"])
def test_every_command_explains_itself(name: str) -> None:
    answer = invoke({}, name, "--help")
    assert (answer.code, "Usage: " in answer.out) == (0, True)
    assert isinstance(cli, LazyGroup)


def test_a_closed_output_pipe_is_not_reported_as_a_redis_error(embedded_server: TestServer) -> None:
    process = start(environment(embedded_server.settings()), "status", "--watch", "--output", "json")
    try:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        code = process.wait(timeout=60)
        assert process.stderr is not None
        err = process.stderr.read()
        process.stderr.close()
    finally:
        process.kill()
    assert code == 1
    assert "Traceback" not in err
    assert "can't reach" not in err
