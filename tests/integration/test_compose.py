"""The compose file's own command and variables, on this machine's Valkey: a password is wanted, and Knell has it.
What Compose mounts into a container is in the test's folder here."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import redis
import yaml

from standins.redis_servers import LocalRedis
from tests.integration.command_line import ROOT, invoke

PASSWORD = "correct-horse-battery-staple"
SECRET = "/run/secrets/valkey-password"


@pytest.fixture
def project() -> dict[str, Any]:
    """As Compose reads it where no variable is set."""
    text = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", (ROOT / "docker-compose.yml").read_text())
    found: dict[str, Any] = yaml.safe_load(text)
    return found


@pytest.fixture
def password_file(tmp_path: Path) -> Path:
    path = tmp_path / "valkey-password"
    path.write_text(f"{PASSWORD}\n")
    return path


class ComposedValkey(LocalRedis):
    """Started by the command of the compose file."""

    def __init__(self, folder: Path, service: dict[str, Any], password_file: Path) -> None:
        super().__init__(directory=folder / "data")
        self._service, self._password_file, self._folder = service, password_file, folder

    def admin(self) -> redis.Redis:
        return redis.Redis(host=self.host, port=self.port, password=PASSWORD, decode_responses=True, protocol=2)

    def _command(self) -> list[str]:
        shell, flags, script = self._service["command"]
        (memory,) = self._service["tmpfs"]
        script = script.rstrip().replace(f"{memory}/", f"{self._folder}/").replace(SECRET, str(self._password_file))
        # Two dollars are how a compose file writes one.
        script = script.replace("$$", "$").replace("exec valkey-server", f"exec {self.binary}")
        return [
            shutil.which(shell) or shell,
            flags,
            f"{script} --bind 127.0.0.1 --port {self.port} --dir {self.directory}",
        ]


def test_valkey_wants_the_password_and_knell_has_it(
    project: dict[str, Any], password_file: Path, tmp_path: Path
) -> None:
    valkey, watcher = project["services"]["valkey"], project["services"]["watcher"]
    with ComposedValkey(tmp_path, valkey, password_file) as server:
        with redis.Redis(host=server.host, port=server.port) as stranger, pytest.raises(redis.AuthenticationError):
            stranger.get("anything")
        assert PASSWORD not in Path(f"/proc/{server.pid}/cmdline").read_text()
        variables = dict(watcher["environment"])
        assert variables["KNELL_REDIS_PASSWORD_FILE"] == SECRET
        variables["KNELL_REDIS_PASSWORD_FILE"] = str(password_file)
        variables["KNELL_REDIS_URL"] = variables["KNELL_REDIS_URL"].replace("valkey:6379", f"127.0.0.1:{server.port}")
        mounted = dict(one.split(":")[1::-1] for one in watcher["volumes"])
        variables["KNELL_CONFIG"] = str(ROOT / mounted[variables["KNELL_CONFIG"]])
        answer = invoke(variables, "doctor", "--output", "json")
    assert (answer.code, answer.json["sound"]) == (0, True)
    assert PASSWORD not in answer.out + answer.err


def test_the_secret_reaches_every_service_and_only_as_a_file(project: dict[str, Any]) -> None:
    assert list(project["secrets"]) == ["valkey-password"]
    assert set(project["secrets"]["valkey-password"]) == {"file"}
    for name, service in project["services"].items():
        assert service["secrets"] == ["valkey-password"], name
        assert not [key for key in service.get("environment", {}) if key.endswith("PASSWORD")]


def test_credentials_of_clusters_and_clouds_are_mounted_where_the_processes_look(project: dict[str, Any]) -> None:
    for name in ("watcher", "worker"):
        service = project["services"][name]
        mounted = {one.split(":")[1]: one.split(":")[0] for one in service["volumes"]}
        assert all(one.endswith(":ro") for one in service["volumes"])
        assert (ROOT / mounted["/etc/knell/credentials"]).is_dir()
        assert service["environment"]["AWS_SHARED_CREDENTIALS_FILE"].startswith("/etc/knell/credentials/")
        assert service["env_file"] == [{"path": f"{mounted['/etc/knell/credentials']}/cloud.env", "required": False}]
        settings = (ROOT / mounted["/etc/knell/settings.yaml"]).read_text()
        assert "kubeconfig: /etc/knell/credentials/kubeconfig" in settings
