"""README followed word by word: its settings, commands and Redis keys, with real deletions.
Only what must differ on a test machine differs: addresses of the cluster, Redis and AWS, and AWS's settle time."""

import asyncio
import re
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import yaml

from service.sources.capa import AWS_FINALIZER
from standins.aws import AwsBehaviour, AwsFault, LocalAws
from standins.aws.builder import REGION, AwsBuilder
from standins.aws.tags import by_cloud_provider
from standins.kubernetes_api import EmbeddedApi
from standins.redis_servers import LocalRedis
from tests.api_servers import TestApi
from tests.capi import AWS_CLUSTERS, CapiObjects
from tests.documents import ROOT, CommandLine, RedisKey, blocks, command_lines, redis_keys
from tests.integration.aws_identities import own_credentials
from tests.integration.command_line import environment, invoke
from tests.integration.knell_process import KnellProcess, until

# Real processes and a server of its own; that the documents parse is seen in the unit tests.
pytestmark = pytest.mark.long

README: Final = (ROOT / "README.md").read_text()
ROWS: Final = redis_keys(README)
TEAM: Final = "team"
# The first two run from the beginning; the others are started and stopped by tests of their own.
ENDLESS: Final = ("watch", "work", "webhook", "status --watch")
# These settings have no source on Azure.
AZURE: Final = ("sweep --dry-run",)
TYPES: Final = {"sorted set": "zset"}
# What a deletion that is done and one that is held leave behind, and what the watcher and the worker write.
WRITTEN: Final = {
    "events", "deletion", "job", "lanes", "lane", "open", "finished", "held", "audit", "stats", "source", "sources",
    "guard", "passed", "clusters", "workers", "watchers", "meta", "budget",
}  # fmt: skip


class ReadmeFixture:
    """A cluster with AWSClusters, an AWS account with what they own, an empty Valkey, and the README's settings."""

    def __init__(self, api: TestApi, server: LocalRedis, aws: LocalAws, account: str, folder: Path) -> None:
        self.api, self.server, self.folder, self._aws, self._account = api, server, folder, aws, account
        (block,) = blocks(README, "yaml")
        document = yaml.safe_load(block.text)
        document["clusters"]["main"] = {"kubeconfig": str(api.kubeconfig(folder / "admin")), "context": "local"}
        document["aws"] = {"endpoint": aws.address, "settle": "300ms", "check_after": "100ms"}
        config = folder / "knell.yaml"
        config.write_bytes(msgspec.yaml.encode(document))
        self.variables = {**environment(server.settings()), "KNELL_CONFIG": str(config)}
        self.processes: list[KnellProcess] = []

    def words(self, command: CommandLine) -> list[str]:
        """As typed; an optional one is left out."""
        return [word for word in command.words[1:] if not word.startswith("[")]

    def launch(self, command: CommandLine) -> None:
        process = KnellProcess(self.folder, self.server.settings(), *self.words(command), **self.variables)
        self.processes.append(process)
        process.until_ready()

    def stop(self) -> None:
        for process in self.processes:
            process.process.send_signal(signal.SIGTERM)
        assert [process.end() for process in self.processes] == [0] * len(self.processes)

    def kill(self) -> None:
        for process in self.processes:
            process.process.kill()
            process.process.wait()

    def create_namespace(self, name: str) -> None:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        self.api.kube.create("/api/v1/namespaces", body)

    def create(self, name: str) -> str:
        """An AWSCluster that owns a security group; returns the group's id when the object has our finalizer."""
        vpc, group = asyncio.run(self._build(name))
        CapiObjects(self.api.kube, TEAM).unmanaged(name, region=REGION, vpc=vpc)
        until(f"{name} is marked", lambda: AWS_FINALIZER in self.get(name)["metadata"].get("finalizers", []))
        return group

    async def _build(self, name: str) -> tuple[str, str]:
        async with AwsBuilder(self._aws.address, account=self._account, region=REGION) as builder:
            vpc = await builder.vpc()
            return vpc.id, await builder.group(vpc, by_cloud_provider(name))

    def groups(self) -> set[str]:
        """The ids of what is in the account."""

        async def read() -> set[str]:
            async with AwsBuilder(self._aws.address, account=self._account, region=REGION) as builder:
                return set(await builder.standing())

        return asyncio.run(read())

    def deny(self, action: str) -> None:
        """From now on this account may not do that."""
        asyncio.run(self._aws.set_faults(AwsFault(what="deny", action=action, account=self._account)))

    def get(self, name: str) -> Any:
        return self.api.kube.get(AWS_CLUSTERS.path(TEAM, name))

    def delete(self, name: str) -> None:
        self.api.kube.delete(AWS_CLUSTERS.path(TEAM, name))

    def redis_keys(self) -> dict[str, str]:
        """With their types, as Redis names them."""
        with self.server.admin() as client:
            found = {str(key): str(client.type(key)) for key in client.scan_iter()}
        # One that expired meanwhile has no type.
        return {key: kind for key, kind in found.items() if kind != "none"}


@pytest.fixture
def followed(local_aws: LocalAws, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ReadmeFixture]:
    account = str(uuid.uuid4().int)[-12:]
    own_credentials(monkeypatch, tmp_path, account)
    asyncio.run(local_aws.behave(**msgspec.to_builtins(AwsBehaviour())))
    with EmbeddedApi() as api, LocalRedis() as server:
        made = ReadmeFixture(TestApi("embedded", api), server, local_aws, account, tmp_path)
        made.create_namespace(TEAM)
        CapiObjects(made.api.kube, TEAM)
        try:
            yield made
        finally:
            made.kill()


def test_who_follows_the_readme_sees_what_it_says(followed: ReadmeFixture) -> None:
    commands = {" ".join(one.words[1:]): one for one in command_lines(README, "knell") if one.whole}
    (role,) = (one for one in command_lines(README, "knell") if one.words[1] == "role")
    for document in yaml.safe_load_all(invoke(followed.variables, *role.words[1:2]).out):
        if document["kind"] == "Namespace":
            followed.create_namespace(document["metadata"]["name"])
    followed.launch(commands["watch"])
    followed.launch(commands["work"])
    groups = {name: followed.create(name) for name in ("green", "red", "blue")}
    followed.delete("green")
    until("the one whose group may be deleted is gone", lambda: followed.get("green") is None)
    followed.deny("ec2.DeleteSecurityGroup")
    followed.delete("red")
    until("the other one is held and all is written", lambda: described(followed.redis_keys()).keys() >= WRITTEN)
    assert followed.groups() & {*groups.values()} == {groups["red"], groups["blue"]}

    keys = followed.redis_keys()
    compare_with_the_table(keys)
    followed.stop()

    run_redis_cli(followed)
    for words, command in commands.items():
        if words not in (*ENDLESS, *AZURE):
            # One object is still being deleted: uninstalling it, too, takes the option that stands beside the command.
            more = ("--also-deleting",) if words == "uninstall" else ()
            answer = invoke(followed.variables, *followed.words(command), *more, answer="y\n")
            assert (words, answer.code, bool(answer.out)) == (words, 0, True), answer.err


def row_of(key: str) -> RedisKey | None:
    # The longest first, for `lane:NAME` also matches what `lane:NAME:urgent` means.
    rows = sorted(ROWS, key=lambda row: len(row.pattern), reverse=True)
    return next((row for row in rows if row.matches(key)), None)


def described(keys: dict[str, str]) -> dict[str, RedisKey]:
    """The rows of the table that stand for these keys, by name."""
    return {row.name: row for row in map(row_of, keys) if row is not None}


def compare_with_the_table(keys: dict[str, str]) -> None:
    rows = {key: row_of(key) for key in keys}
    assert [key for key, row in rows.items() if row is None] == []
    assert {key: TYPES.get(row.type, row.type) for key, row in rows.items() if row} == keys
    # What no ordinary deletion leaves behind is at least named in the code.
    code = "".join(path.read_text() for path in (ROOT / "service").rglob("*") if path.suffix in (".py", ".lua"))
    others = {row.name for row in ROWS} - described(keys).keys()
    assert [name for name in others if not re.search(rf"['\"]{name}[:'\"]", code)] == []


def run_redis_cli(followed: ReadmeFixture) -> None:
    with followed.server.admin() as client:
        answers = {one.words[2]: client.execute_command(*one.words[1:]) for one in command_lines(README, "redis-cli")}
    assert {key for key, answer in answers.items() if answer} >= {"knell:{0}:stats", "knell:{0}:audit"}
    assert [key for key in answers if row_of(key) is None] == []
