"""Real control plane on local ports: the behaviour that other tests rely on.
Left out where it is not built; KNELL_TEST_API=real makes that a failure."""

import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from standins.controlplane import ControlPlane, KubectlFailed, NoControlPlane, find_programs
from standins.controlplane.go_module import GoModule
from tests.api_servers import need_real
from tests.kube import Kube, wait_until

need_real()
pytestmark = pytest.mark.long


@pytest.fixture
def own_plane() -> Iterator[ControlPlane]:
    """One that may be restarted, without the controllers that no test here needs."""
    with ControlPlane(controllers=False) as started:
        yield started


@pytest.fixture
def kube(plane: ControlPlane) -> Kube:
    return Kube(plane.url, plane.token, plane.ca)


@pytest.fixture
def namespace(plane: ControlPlane) -> str:
    name = f"t{uuid.uuid4().hex[:10]}"
    plane.kubectl("create", "namespace", name)
    return name


def need_controllers(plane: ControlPlane) -> None:
    if not plane.has_controllers:
        pytest.skip("KUBEBUILDER_ASSETS has no kube-controller-manager; unset it and run `make controlplane`")


def need_snapshots(plane: ControlPlane) -> None:
    if plane.programs.etcdctl is None or plane.programs.etcdutl is None:
        pytest.skip("KUBEBUILDER_ASSETS has no etcdctl and etcdutl; unset it and run `make controlplane`")


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_a_control_plane_serves_as_soon_as_it_has_started(plane: ControlPlane) -> None:
    said = msgspec.json.decode(plane.kubectl("version", "--output", "json"))
    assert said["serverVersion"]["gitVersion"].startswith("v1.")
    assert plane.kubectl("get", "namespace", "kube-system", "--output", "jsonpath={.metadata.uid}")


def test_a_kubeconfig_leads_to_it_from_anywhere(plane: ControlPlane, tmp_path: Path) -> None:
    written = plane.kubeconfig(tmp_path / "deep" / "config")
    config = msgspec.json.decode(written.read_bytes())
    assert config["current-context"] == "local"
    assert config["clusters"][0]["cluster"]["server"] == plane.url
    assert written.stat().st_mode & 0o077 == 0


def test_a_deleted_namespace_goes_with_what_is_in_it(plane: ControlPlane, namespace: str, kube: Kube) -> None:
    need_controllers(plane)
    plane.kubectl("create", "configmap", "inside", "--namespace", namespace)
    # It returns when the Namespace is gone, which no API server does by itself.
    plane.kubectl("delete", "namespace", namespace)
    assert kube.get(f"/api/v1/namespaces/{namespace}") is None
    assert kube.get(f"/api/v1/namespaces/{namespace}/configmaps/inside") is None


def test_a_deleted_owner_takes_along_what_it_owns(plane: ControlPlane, namespace: str, kube: Kube) -> None:
    need_controllers(plane)
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    owner = kube.create(path, {"metadata": {"name": "owner"}})
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    kube.create(path, {"metadata": {"name": "owned", "ownerReferences": [reference]}})
    kube.create(path, {"metadata": {"name": "free"}})
    plane.kubectl("delete", "configmap", "owner", "--namespace", namespace)
    wait_until("what is owned is gone", lambda: kube.get(f"{path}/owned") is None)
    assert kube.get(f"{path}/free") is not None


def test_a_service_account_may_do_what_its_role_says_and_nothing_else(plane: ControlPlane, namespace: str) -> None:
    here = ("--namespace", namespace)
    plane.kubectl("create", "serviceaccount", "reader", *here)
    plane.kubectl("create", "role", "reading", "--verb=get,list", "--resource=configmaps", *here)
    plane.kubectl("create", "rolebinding", "reading", "--role=reading", f"--serviceaccount={namespace}:reader", *here)
    plane.kubectl("create", "configmap", "read", *here)
    token = plane.token_of(namespace, "reader")
    # RBAC looks at a cache that learns of a new binding a moment later.
    reader = Kube(plane.url, token, plane.ca)
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    wait_until("the role is known", lambda: reader.request("GET", path).status == 200)
    assert "read" in plane.kubectl("get", "configmaps", *here, token=token)
    with pytest.raises(KubectlFailed, match=rf"Forbidden.*system:serviceaccount:{namespace}:reader"):
        plane.kubectl("get", "secrets", *here, token=token)
    with pytest.raises(KubectlFailed, match="Forbidden"):
        plane.kubectl("delete", "configmap", "read", *here, token=token)
    with pytest.raises(KubectlFailed, match="Forbidden"):
        plane.kubectl("get", "configmaps", "--namespace", "kube-system", token=token)


def test_requests_without_a_token_are_refused(plane: ControlPlane) -> None:
    for token in ("", "invented"):
        assert Kube(plane.url, token, plane.ca).request("GET", "/api/v1/namespaces").status == 401


def test_an_api_server_comes_back_as_itself(own_plane: ControlPlane) -> None:
    kube = Kube(own_plane.url, own_plane.token, own_plane.ca)
    before, pid = kube.get("/api/v1/namespaces/kube-system"), own_plane.apiserver.pid
    own_plane.stop_apiserver()
    with pytest.raises(ConnectionRefusedError):
        kube.get("/version")
    own_plane.start_apiserver()
    assert own_plane.apiserver.pid != pid
    assert kube.get("/api/v1/namespaces/kube-system") == before


def test_a_restored_snapshot_brings_back_what_was_there_when_it_was_saved(
    own_plane: ControlPlane, tmp_path: Path
) -> None:
    need_snapshots(own_plane)
    kube = Kube(own_plane.url, own_plane.token, own_plane.ca)
    path = "/api/v1/namespaces/default/configmaps"
    cluster = kube.get("/api/v1/namespaces/kube-system")
    deleted = kube.create(path, {"metadata": {"name": "deleted-since"}})
    changed = kube.create(path, {"metadata": {"name": "changed-since"}, "data": {"is": "old"}})

    own_plane.save_snapshot(tmp_path / "snapshot.db")
    own_plane.kubectl("delete", "configmap", "deleted-since")
    own_plane.kubectl("patch", "configmap", "changed-since", "--patch", '{"data": {"is": "new"}}')
    own_plane.kubectl("create", "configmap", "created-since")
    own_plane.restore_snapshot(tmp_path / "snapshot.db")

    assert kube.get(f"{path}/deleted-since") == deleted
    assert kube.get(f"{path}/changed-since") == changed
    assert kube.get(f"{path}/created-since") is None
    assert kube.get("/api/v1/namespaces/kube-system") == cluster, "it is taken for the same cluster"


def test_a_file_that_is_no_snapshot_is_refused_and_the_servers_go_on(plane: ControlPlane, tmp_path: Path) -> None:
    need_snapshots(plane)
    pids = (plane.etcd.pid, plane.apiserver.pid)
    (tmp_path / "snapshot.db").write_bytes(b"no snapshot")
    with pytest.raises(NoControlPlane, match=r"snapshot restore .*snapshot\.db(.|\n)*Error: "):
        plane.restore_snapshot(tmp_path / "snapshot.db")
    assert all(alive(pid) for pid in pids)
    assert plane.kubectl("get", "namespace", "kube-system", "--output", "name").strip() == "namespace/kube-system"


def test_the_built_etcd_and_its_tools_are_of_the_release_that_the_go_module_names(plane: ControlPlane) -> None:
    need_snapshots(plane)
    etcdctl, etcdutl = plane.programs.etcdctl or (), plane.programs.etcdutl or ()
    said = [
        subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[0]
        for command in ([*plane.programs.etcd, "--version"], [*etcdctl, "version"], [*etcdutl, "version"])
    ]
    etcd = GoModule.read().etcd
    assert said == [f"etcd Version: {etcd}", f"etcdctl version: {etcd}", f"etcdutl version: {etcd}"]


def test_kubectl_takes_no_shortened_commands_as_etcdctl_does(plane: ControlPlane) -> None:
    with pytest.raises(KubectlFailed, match='unknown command "versio"'):
        plane.kubectl("versio")


async def test_a_forced_410_is_seen_by_watches_and_by_lists_that_go_on(own_plane: ControlPlane) -> None:
    kube = Kube(own_plane.url, own_plane.token, own_plane.ca)
    path = "/api/v1/namespaces/default/configmaps"
    for number in range(3):
        kube.create(path, {"metadata": {"name": f"c{number}"}})
    page = kube.request("GET", f"{path}?limit=1").body["metadata"]
    assert kube.watch(path, page["resourceVersion"]) == [], "nothing has been forgotten yet"

    own_plane.compact()
    await own_plane.revive_apiserver()

    (event,) = kube.watch(path, page["resourceVersion"])
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")
    listed = kube.request("GET", f"{path}?limit=1&continue={page['continue']}")
    assert (listed.status, listed.reason) == (410, "Expired")
    fresh = kube.request("GET", path).body
    assert {item["metadata"]["name"] for item in fresh["items"]} >= {"c0", "c1", "c2"}
    assert kube.watch(path, fresh["metadata"]["resourceVersion"]) == []


def test_nothing_is_left_after_a_stop() -> None:
    with ControlPlane() as plane:
        pids = [plane.etcd.pid, plane.apiserver.pid]
        if plane.has_controllers:
            pids.append(plane.controllers.pid)
        assert all(alive(pid) for pid in pids)
        folder = plane.folder
        assert {log.name for log in folder.glob("*.log")} >= {"etcd.log", "apiserver.log"}
    assert not any(alive(pid) for pid in pids)
    assert not folder.exists()


def test_nothing_is_left_after_a_start_that_fails_half_way() -> None:
    broken = replace(find_programs(), apiserver=("/bin/sh", "-c", "echo out of order >&2; exit 1"))
    plane = ControlPlane(programs=broken)
    with pytest.raises(NoControlPlane, match=r"apiserver ended at once(.|\n)*out of order"):
        plane.start()
    assert not alive(plane.etcd.pid)
    assert not plane.folder.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child with its parent")
def test_a_killed_parent_takes_its_processes_along_and_a_given_folder_keeps_the_cluster(tmp_path: Path) -> None:
    script = (
        "import pathlib, sys\n"
        "from standins.controlplane import ControlPlane\n"
        f"plane = ControlPlane(pathlib.Path({str(tmp_path)!r}), controllers=False).start()\n"
        "plane.kubectl('create', 'configmap', 'kept')\n"
        "print(plane.etcd.pid, plane.apiserver.pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pids = [int(word) for word in parent.stdout.readline().split()]
        assert len(pids) == 2
        assert all(alive(pid) for pid in pids)
        parent.kill()
    wait_until("both have ended", lambda: not any(alive(pid) for pid in pids))

    with ControlPlane(tmp_path, controllers=False) as plane:
        assert plane.kubectl("get", "configmap", "kept", "--output", "name").strip() == "configmap/kept"
    assert {log.name for log in tmp_path.glob("*.log")} == {"etcd.log", "apiserver.log"}
