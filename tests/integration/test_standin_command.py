"""`python -m standins` runs one stand-in: it prints how to connect, the printed address works, and it leaves nothing
behind."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import aiohttp
import msgspec
import pytest
import redis
from redis.asyncio import Redis

from service.kubernetes import connect
from service.settings.sources import ClusterSettings
from standins.aws import LocalAws
from standins.aws.builder import session
from standins.azure import LocalAzure
from standins.controlplane import available
from standins.ports import free_ports
from tests.api_servers import need_real

pytestmark = pytest.mark.long

COMMAND = [sys.executable, "-m", "standins"]
LAST_LINE = {
    "azure": "Journal of all requests",
    "aws": "Journal of all requests",
    "kubernetes": "  clusters:",
    "redis": "  export KNELL_REDIS_URL",
}


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    # A place where leftovers would be seen.
    (tmp_path / "temporary").mkdir()
    return {**os.environ, "TMPDIR": str(tmp_path / "temporary")}


@contextmanager
def running(environment: dict[str, str], *words: str) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """A command, and what it said until it had said everything."""
    process = subprocess.Popen(
        [*COMMAND, *words], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    try:
        with process.stdout:
            said = ""
            for line in process.stdout:
                said += line
                if line.startswith(LAST_LINE[words[0]]):
                    break
            else:
                raise AssertionError(f"it ended: {said}")
            yield process, said
    finally:
        process.kill()
        process.wait()


def ends(process: "subprocess.Popen[str]", number: int, temporary: str) -> None:
    process.send_signal(number)
    assert process.wait(20) == 0
    assert list(Path(temporary).glob("knell-*")) == []


def variables(said: str) -> dict[str, str]:
    """What the lines to export set."""
    lines = re.findall(r"^  export (.+)$", said, re.MULTILINE)
    return dict(word.split("=", 1) for line in lines for word in line.split())


def server_in(kubeconfig: Path) -> str:
    (cluster,) = msgspec.yaml.decode(kubeconfig.read_bytes())["clusters"]
    return str(cluster["cluster"]["server"])


async def fetched(address: str, **headers: str) -> int:
    async with aiohttp.ClientSession(headers=headers) as client, client.get(address) as response:
        return response.status


async def test_azure_alone_is_where_it_says_and_ends_with_an_interrupt(environment: dict[str, str]) -> None:
    with running(environment, "azure", "--rate", "3") as (process, said):
        told = variables(said)
        address = told["KNELL_AZURE_ENDPOINT"]
        assert re.search(r"is at (\S+)\. ", said)[1] == address  # type: ignore[index]
        async with aiohttp.ClientSession() as client:
            asked = client.get(told["IDENTITY_ENDPOINT"], headers={"X-IDENTITY-HEADER": told["IDENTITY_HEADER"]})
            async with asked as response:
                token = (await response.json(content_type=None))["access_token"]
            # The two lines that are shown as examples.
            document = re.search(r"curl (\S+) -d '(.+)'", said)
            assert document is not None
            async with client.post(document[1], data=document[2]) as response:
                assert response.status == 200
            async with client.get(f"{address}/_knell/clock") as response:
                assert (await response.json())["rate"] == 3
        shown = re.search(r"Bearer me' '(\S+)'", said)
        assert shown is not None
        assert await fetched(shown[1], Authorization=f"Bearer {token}") == 200
        ends(process, signal.SIGINT, environment["TMPDIR"])
        with pytest.raises(aiohttp.ClientConnectionError):
            await fetched(shown[1])


async def test_redis_alone_is_where_it_says_and_ends_with_an_interrupt(environment: dict[str, str]) -> None:
    with running(environment, "redis") as (process, said):
        url = variables(said)["KNELL_REDIS_URL"]
        assert f"is at {url}. " in said
        async with Redis.from_url(url) as client:
            assert await client.info("keyspace") == {}
            assert await client.set("a", "b")
        ends(process, signal.SIGINT, environment["TMPDIR"])
        with pytest.raises(redis.ConnectionError):
            async with Redis.from_url(url, retry=None) as client:
                await client.ping()


def test_redis_alone_is_on_the_port_that_was_asked_for(environment: dict[str, str]) -> None:
    (port,) = free_ports(1)
    with running(environment, "redis", "--port", str(port)) as (process, said):
        assert variables(said) == {"KNELL_REDIS_URL": f"redis://127.0.0.1:{port}/0"}
        ends(process, signal.SIGTERM, environment["TMPDIR"])


def test_a_valkey_that_ends_by_itself_ends_the_command(environment: dict[str, str]) -> None:
    with running(environment, "redis") as (process, said):
        with redis.Redis.from_url(variables(said)["KNELL_REDIS_URL"]) as client:
            client.shutdown(nosave=True)
        assert process.stdout is not None
        assert "the embedded Valkey has ended by itself" in process.stdout.read()
        assert process.wait(20) == 1


async def test_aws_alone_is_where_it_says_and_ends_when_terminated(environment: dict[str, str]) -> None:
    with running(environment, "aws") as (process, said):
        told = variables(said)
        assert told["KNELL_AWS_ENDPOINT"] == told["AWS_ENDPOINT_URL"]
        client = session().create_client(
            "sts",
            region_name=told["AWS_REGION"],
            endpoint_url=told["AWS_ENDPOINT_URL"],
            aws_access_key_id=told["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=told["AWS_SECRET_ACCESS_KEY"],
        )
        async with client as sts:
            assert (await sts.get_caller_identity())["Account"] == "111122223333"
        ends(process, signal.SIGTERM, environment["TMPDIR"])


@pytest.mark.parametrize("real", [False, True])
async def test_kubernetes_alone_listens_on_the_given_port_and_writes_a_kubeconfig_for_it(
    environment: dict[str, str], tmp_path: Path, real: bool
) -> None:
    if real:
        need_real()
    path, (port,) = tmp_path / "kubeconfig", free_ports(1)
    words = ["--kubeconfig", str(path), "--port", str(port), *(["--real"] if real else [])]
    with running(environment, "kubernetes", *words) as (process, said):
        assert variables(said) == {"KUBECONFIG": str(path)}
        assert ("a real control plane" if real else "an embedded API server") in said
        assert server_in(path).endswith(f"://127.0.0.1:{port}")
        async with await connect("local", ClusterSettings(kubeconfig=path)) as cluster:
            assert await cluster.identity()
        ends(process, signal.SIGTERM, environment["TMPDIR"])
    assert not path.exists()


def test_without_a_name_the_kubeconfig_is_a_temporary_file_that_goes(environment: dict[str, str]) -> None:
    with running(environment, "kubernetes") as (process, said):
        path = Path(variables(said)["KUBECONFIG"])
        assert path.stat().st_mode & 0o077 == 0
        assert path.is_relative_to(environment["TMPDIR"])
        ends(process, signal.SIGINT, environment["TMPDIR"])
        assert not path.exists()


def run(environment: dict[str, str], *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([*COMMAND, *words], env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_a_kubeconfig_that_is_there_is_not_overwritten(environment: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text("somebody's")
    done = run(environment, "kubernetes", "--kubeconfig", str(path))
    assert (done.returncode, path.read_text()) == (2, "somebody's")
    assert "is there already and is not overwritten" in done.stderr


@pytest.mark.parametrize("words", [("azure",), ("aws",), ("redis",), ("kubernetes",), ("kubernetes", "--real")])
def test_a_port_that_is_taken_is_said_in_one_line(environment: dict[str, str], words: tuple[str, ...]) -> None:
    if "--real" in words:
        need_real()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = run(environment, *words, "--port", str(taken.getsockname()[1]))
    assert done.returncode == 1
    assert "address already in use" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.skipif(available(), reason="the real control plane has been built here")
def test_a_control_plane_that_was_not_built_is_said_to_be_so(environment: dict[str, str]) -> None:
    done = run(environment, "kubernetes", "--real")
    assert done.returncode == 1
    assert "make controlplane" in done.stderr


@pytest.mark.parametrize("cloud", [LocalAws, LocalAzure])
async def test_a_stand_in_is_started_from_any_working_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cloud: type[LocalAws | LocalAzure]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    async with cloud() as stand_in:
        assert await stand_in.now() >= 0
