"""Search for the programs of a control plane, and the error if they are missing."""

from pathlib import Path

import pytest

from standins.controlplane import NoControlPlane, available, find_programs
from standins.controlplane.credentials import write_signing_key
from standins.controlplane.go_module import GoModule, NoGoModule
from tests import api_servers

pytestmark = pytest.mark.long


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_without_a_build_it_says_how_to_get_one() -> None:
    assert not available()
    with pytest.raises(NoControlPlane, match=r"in KUBEBUILDER_ASSETS, or build one .* `make controlplane`"):
        find_programs()


def test_what_was_built_is_found_in_the_cache(empty_cache: Path) -> None:
    kube = program(GoModule.read().binary)
    assert kube.is_relative_to(empty_cache / "knell" / "controlplane")
    found = find_programs()
    assert available()
    assert found.apiserver == (str(kube), "kube-apiserver")
    assert found.controllers == (str(kube), "kube-controller-manager")
    assert found.kubectl == (str(kube), "kubectl")
    assert found.etcd == (str(kube), "etcd")
    assert found.etcdctl == (str(kube), "etcdctl")
    assert found.etcdutl == (str(kube), "etcdutl")


def test_a_half_written_binary_is_not_taken_for_one() -> None:
    kube = program(GoModule.read().binary)
    kube.chmod(0o644)
    assert not available()


def test_given_programs_go_before_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program(GoModule.read().binary)
    given = tmp_path / "assets"
    for name in ("kube-apiserver", "kubectl", "etcd"):
        program(given / name)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(given))
    found = find_programs()
    assert (found.apiserver, found.etcd) == ((str(given / "kube-apiserver"),), (str(given / "etcd"),))
    built = "a program of the cache may be of another version"
    assert (found.controllers, found.etcdctl, found.etcdutl) == (None, None, None), built
    for name in ("kube-controller-manager", "etcdctl", "etcdutl"):
        program(given / name)
    found = find_programs()
    assert found.controllers == (str(given / "kube-controller-manager"),)
    assert (found.etcdctl, found.etcdutl) == ((str(given / "etcdctl"),), (str(given / "etcdutl"),))


def test_given_programs_that_are_not_there_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program(GoModule.read().binary)
    program(tmp_path / "kubectl")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    with pytest.raises(NoControlPlane, match=r"KUBEBUILDER_ASSETS is .* there is no kube-apiserver and no etcd;"):
        find_programs()
    assert not available()


def test_a_changed_go_module_has_another_place_in_the_cache(tmp_path: Path) -> None:
    first = GoModule.read()
    assert first.binary.parent.name.startswith(f"{first.kubernetes}-")
    for name in ("go.mod", "go.sum", "main.go"):
        (tmp_path / name).write_bytes((first.folder / name).read_bytes())
    assert GoModule.read(tmp_path).binary == first.binary
    (tmp_path / "main.go").write_text("package main\n")
    assert GoModule.read(tmp_path).binary != first.binary


def test_etcd_is_of_the_release_whose_client_the_api_server_uses() -> None:
    recipe = GoModule.read()
    assert recipe.etcd.startswith("3.6.")
    required = (recipe.folder / "go.mod").read_text()
    assert f"go.etcd.io/etcd/client/v3 v{recipe.etcd} " in required


def test_a_relative_cache_folder_is_ignored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "somewhere")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert GoModule.read().binary.is_relative_to(tmp_path / ".cache")


def test_outside_of_a_clone_the_missing_module_is_named(tmp_path: Path) -> None:
    with pytest.raises(NoGoModule, match=r"go\.mod cannot be read .*full clone"):
        GoModule.read(tmp_path)


def test_every_signing_key_is_another_and_only_for_its_owner(tmp_path: Path) -> None:
    first, second = tmp_path / "a.key", tmp_path / "b.key"
    write_signing_key(first)
    write_signing_key(second)
    assert first.read_text() != second.read_text()
    assert first.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("built", "demanded", "left_out"),
    [
        (False, "", "make controlplane"),
        (True, "", None),
        (True, "embedded", "KNELL_TEST_API=embedded excludes it"),
        (False, "embedded", "KNELL_TEST_API=embedded excludes it"),
        (False, "real", None),
        (True, "embedded,real", None),
    ],
)
def test_tests_that_need_the_real_one_are_skipped_unless_it_is_demanded_or_built_and_not_excluded(
    monkeypatch: pytest.MonkeyPatch, built: bool, demanded: str, left_out: str | None
) -> None:
    monkeypatch.setenv(api_servers.VARIABLE, demanded)
    if built:
        program(GoModule.read().binary)
    assert available() is built
    if left_out is None:
        api_servers.need_real()
    else:
        with pytest.raises(pytest.skip.Exception, match=left_out):
            api_servers.need_real()
