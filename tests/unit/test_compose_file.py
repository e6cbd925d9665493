"""Shipped compose file: it is valid, and the check of it can fail.

Each failure changes the shipped file in one place, so that nothing else can be the reason."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
SHIPPED = (ROOT / "docker-compose.yml").read_text()
EXACT = re.compile(r"[a-z/]+:\d+\.\d+\.\d+-[a-z-]+")
"""A tag with all three numbers and a variant."""


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
        pytest.param("compose/settings.yaml", "compose/nothing.yaml", "mounts a missing file or folder", id="mount"),
        pytest.param("[valkey-password]", "[another]", "undefined secret 'another'", id="secret"),
        pytest.param("deploy/Dockerfile", "deploy/Dockefile", "missing Dockerfile", id="dockerfile"),
        pytest.param("name: knell\n", "name: knell\nname: twice\n", "duplicate key", id="key-given-twice"),
    ],
)
def test_a_spoilt_compose_file_is_refused(tmp_path: Path, right: str, wrong: str, complaint: str) -> None:
    assert right in SHIPPED
    (tmp_path / "deploy" / "compose" / "credentials").mkdir(parents=True)
    (tmp_path / "deploy" / "Dockerfile").touch()
    (tmp_path / "deploy" / "compose" / "settings.yaml").touch()
    spoilt = tmp_path / "docker-compose.yml"
    spoilt.write_text(SHIPPED.replace(right, wrong, 1))

    answer = check(spoilt)

    assert answer.returncode == 1
    assert complaint in answer.stderr


def test_base_images_have_an_exact_tag_that_a_build_may_replace() -> None:
    dockerfile = (ROOT / "deploy" / "Dockerfile").read_text()
    (image,) = re.findall(r"^ARG PYTHON_IMAGE=(\S+)$", dockerfile, re.MULTILINE)
    assert EXACT.fullmatch(image)
    assert set(re.findall(r"^FROM (\S+)", dockerfile, re.MULTILINE)) == {"${PYTHON_IMAGE}"}
    project = yaml.safe_load(SHIPPED)
    assert project["x-knell"]["build"]["args"]["PYTHON_IMAGE"] == f"${{PYTHON_IMAGE:-{image}}}"
    valkey = re.fullmatch(r"\$\{VALKEY_IMAGE:-(\S+)\}", project["services"]["valkey"]["image"])
    assert valkey is not None
    assert EXACT.fullmatch(valkey[1])


def test_the_command_that_pins_an_image_is_documented_for_each() -> None:
    text = (ROOT / "docs" / "compose.md").read_text()
    images = re.findall(r"_IMAGE:-([^}]+)\}", SHIPPED)
    assert len(images) == 2
    for image in images:
        assert f"docker buildx imagetools inspect {image} --format '{{{{.Manifest.Digest}}}}'" in text
        assert f"_IMAGE={image}@sha256:DIGEST" in text
