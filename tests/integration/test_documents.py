"""The README followed word by word: its settings, commands and Redis keys, in a world where objects are deleted.
Only what must differ on a test machine differs: where the cluster and Redis are, and a simulated provider."""

import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import yaml

from service.contract.names import FINALIZER
from standins.api import EmbeddedApi
from standins.provider import Behaviour, ProviderProcess, Resource, Seed
from standins.servers import Server
from tests.clusters import TestApi
from tests.documents import ROOT, CommandLine, RedisKey, blocks, command_lines, redis_keys
from tests.integration.operating import environment, invoke
from tests.integration.test_work_command import Process, until
from tests.kube import Crd

# Real processes and a server of its own; that the documents parse is seen in the unit tests.
pytestmark = pytest.mark.long

README: Final = (ROOT / "README.md").read_text()
ROWS: Final = redis_keys(README)
WIDGETS: Final = Crd("example.org", "widgets")
TEAM: Final = "team"
# The first two run from the beginning; the others are started and stopped by tests of their own.
ENDLESS: Final = ("watch", "work", "status --watch", "local azure")
# These settings have no source on Azure.
AZURE: Final = ("sweep --dry-run",)
TYPES: Final = {"sorted set": "zset"}
# What a deletion that is done and one that is held leave behind, and what the watcher and the worker write.
WRITTEN: Final = {
    "events", "deletion", "job", "lanes", "lane", "open", "finished", "held", "audit", "stats", "source", "sources",
    "guard", "passed", "clusters", "workers", "watchers", "meta", "budget",
}  # fmt: skip


class Followed:
    """A cluster with widgets, a provider with what they own, an empty Valkey, and settings as the README has them."""

    def __init__(self, api: TestApi, server: Server, provider: ProviderProcess, folder: Path) -> None:
        self.api, self.server, self.folder = api, server, folder
        self._simulate = ("--simulate", provider.address)
        (block,) = blocks(README, "yaml")
        document = yaml.safe_load(block.text)
        document["clusters"]["main"] = {"kubeconfig": str(api.kubeconfig(folder / "admin")), "context": "local"}
        config = folder / "knell.yaml"
        config.write_bytes(msgspec.yaml.encode(document))
        self.variables = {**environment(server.settings()), "KNELL_CONFIG": str(config)}
        self.processes: list[Process] = []

    def words(self, command: CommandLine) -> list[str]:
        """As typed; an optional one is left out."""
        words = [word for word in command.words[1:] if not word.startswith("[")]
        return [*words, *(self._simulate if words[0] in ("work", "plan") else ())]

    def launch(self, command: CommandLine) -> None:
        process = Process(self.folder, self.server.settings(), *self.words(command), **self.variables)
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

    def create(self, name: str, namespace: str = TEAM) -> None:
        """Returns when it has our finalizer."""
        body = {**WIDGETS.body(name), "spec": {"owner": "us", "targets": [{"account": "acct", "id": name}]}}
        self.api.kube.create(WIDGETS.path(namespace), body)
        until(f"{name} is marked", lambda: FINALIZER in self.get(name, namespace)["metadata"].get("finalizers", []))

    def get(self, name: str, namespace: str = TEAM) -> Any:
        return self.api.kube.get(WIDGETS.path(namespace, name))

    def delete(self, name: str) -> None:
        self.api.kube.delete(WIDGETS.path(TEAM, name))

    def redis_keys(self) -> dict[str, str]:
        """With their types, as Redis names them."""
        with self.server.admin() as client:
            found = {str(key): str(client.type(key)) for key in client.scan_iter()}
        # One that expired meanwhile has no type.
        return {key: kind for key, kind in found.items() if kind != "none"}


@pytest.fixture
def followed(tmp_path: Path) -> Iterator[Followed]:
    owners = {"green": "us", "red": "somebody else", "blue": "us"}
    seed = Seed(resources=tuple(Resource(account="acct", id=name, owner=owner) for name, owner in owners.items()))
    with EmbeddedApi() as api, Server() as server, ProviderProcess(Behaviour(), seed) as provider:
        made = Followed(TestApi("embedded", api), server, provider, tmp_path)
        made.api.kube.install(WIDGETS)
        made.create_namespace(TEAM)
        try:
            yield made
        finally:
            made.kill()


def test_who_follows_the_readme_sees_what_it_says(followed: Followed) -> None:
    commands = {" ".join(one.words[1:]): one for one in command_lines(README, "knell") if one.whole}
    (role,) = (one for one in command_lines(README, "knell") if one.words[1] == "role")
    for document in yaml.safe_load_all(invoke(followed.variables, *role.words[1:2]).out):
        if document["kind"] == "Namespace":
            followed.create_namespace(document["metadata"]["name"])
    followed.launch(commands["watch"])
    followed.launch(commands["work"])
    for name, namespace in (("green", TEAM), ("red", TEAM), ("blue", TEAM), ("blue", "default")):
        followed.create(name, namespace)
    followed.delete("green")
    followed.delete("red")
    until("the one whose resource is ours is gone", lambda: followed.get("green") is None)
    until("the other one is held and all is written", lambda: described(followed.redis_keys()).keys() >= WRITTEN)

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


def run_redis_cli(followed: Followed) -> None:
    with followed.server.admin() as client:
        answers = {one.words[2]: client.execute_command(*one.words[1:]) for one in command_lines(README, "redis-cli")}
    assert {key for key, answer in answers.items() if answer} >= {"knell:{0}:stats", "knell:{0}:audit"}
    assert [key for key in answers if row_of(key) is None] == []
