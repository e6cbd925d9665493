"""The compose file that we ship is sound, and the check that says so can say no.

Each refusal spoils the shipped file in one place, so that nothing else can be the reason.
"""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHIPPED = (ROOT / "docker-compose.yml").read_text()


def check(path: Path) -> subprocess.CompletedProcess[str]:
    checker = ROOT / "deploy" / "check_compose.py"
    return subprocess.run([sys.executable, checker, path], capture_output=True, text=True, check=False)


def test_the_shipped_compose_file_is_sound() -> None:
    answer = check(ROOT / "docker-compose.yml")
    assert (answer.returncode, answer.stderr) == (0, "")


@pytest.mark.parametrize(
    ("right", "wrong", "complaint"),
    [
        pytest.param("read_only: true", "readonly: true", "'readonly' was unexpected", id="misspelt-key"),
        pytest.param("\nvolumes:\n", "\nvolume:\n", "top level: 'volume' does not match", id="misspelt-section"),
        pytest.param("replicas: 2", "replicas: [2]", "services.worker.deploy.replicas", id="wrong-type"),
        pytest.param("    valkey:\n      cond", "    redis:\n      cond", "undefined service 'redis'", id="dependency"),
        pytest.param('"valkey:/data"', '"store:/data"', "undefined volume 'store'", id="volume"),
        pytest.param("deploy/Dockerfile", "deploy/Dockefile", "missing Dockerfile", id="dockerfile"),
        pytest.param("name: knell\n", "name: knell\nname: twice\n", "duplicate key", id="key-given-twice"),
    ],
)
def test_a_spoilt_compose_file_is_refused(tmp_path: Path, right: str, wrong: str, complaint: str) -> None:
    assert right in SHIPPED
    (tmp_path / "deploy").mkdir()
    (tmp_path / "deploy" / "Dockerfile").touch()
    spoilt = tmp_path / "docker-compose.yml"
    spoilt.write_text(SHIPPED.replace(right, wrong, 1))

    answer = check(spoilt)

    assert answer.returncode == 1
    assert complaint in answer.stderr
