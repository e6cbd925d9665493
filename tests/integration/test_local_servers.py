"""The local servers: they come back with their data, fail over, and do not outlive their parent."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from service.local.ports import free_ports
from service.local.servers import Cluster, NoServerError, Sentinels, Server, embedded_binary
from service.local.servers.waiting import wait_until
from tests.servers import TestServer


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_a_server_keeps_what_was_written_to_disk_when_it_is_killed() -> None:
    with Server(appendfsync="always") as server:
        port = server.port
        with server.admin() as client:
            client.set("kept", "1")
        server.kill()
        assert not server.running
        server.restart()
        assert server.port == port
        with server.admin() as client:
            assert client.get("kept") == "1"


def test_a_server_evicts_nothing_and_persists() -> None:
    with Server() as server, server.admin() as client:
        assert client.config_get("maxmemory-policy")["maxmemory-policy"] == "noeviction"
        assert client.config_get("appendonly")["appendonly"] == "yes"


async def test_a_server_is_revived_from_an_event_loop() -> None:
    with Server() as server:
        first = server.pid
        await server.revive()
        assert server.pid != first
        assert server.running


def test_a_stopped_server_leaves_neither_process_nor_directory() -> None:
    with Server() as server:
        pid, directory = server.pid, server.directory
    assert not alive(pid)
    assert not directory.exists()


def test_a_given_directory_is_kept(tmp_path: Path) -> None:
    with Server(directory=tmp_path / "data") as server, server.admin() as client:
        client.set("a", "1")
    assert (tmp_path / "data" / "appendonlydir").is_dir()


def test_a_server_that_cannot_start_says_what_it_said() -> None:
    server = Server(options={"no-such-option": "1"})
    with pytest.raises(NoServerError, match="no-such-option"):
        server.start()
    assert not server.running


def test_a_given_port_that_is_taken_is_not_exchanged() -> None:
    with Server() as first:
        second = Server(port=first.port)
        with pytest.raises(NoServerError):
            second.start()
        assert first.running


def test_free_ports_differ_and_lie_below_those_of_outgoing_connections() -> None:
    ports = free_ports(50)
    assert len(set(ports)) == 50
    assert max(ports) < 32768


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child with its parent")
def test_a_server_dies_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    program = (
        "import sys, time\n"
        "from service.local.servers import Server\n"
        f"server = Server(directory=__import__('pathlib').Path({str(tmp_path)!r})).start()\n"
        "sys.stdout.write(f'{server.pid}\\n'); sys.stdout.flush()\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert alive(pid)
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait()
    wait_until("the server is gone, too", lambda: not alive(pid))
    assert not alive(pid)


def test_four_shards_lie_on_all_three_masters_of_a_cluster(cluster_server: TestServer) -> None:
    cluster = cluster_server.server
    assert isinstance(cluster, Cluster)
    owners = {cluster.owner_of(f"{{{shard}}}").port for shard in range(cluster.settings().shards)}
    assert owners == {master.port for master in cluster.masters}


def test_a_cluster_without_replicas_is_whole_again_when_its_killed_master_is_back() -> None:
    with Cluster(embedded_binary(), replicas=0) as cluster:
        lost = cluster.owner_of("{0}")
        lost.kill()
        lost.restart()
        cluster.wait_until_whole()
        assert cluster.owner_of("{0}") is lost


def test_a_replica_takes_over_the_slots_of_a_killed_master() -> None:
    with Cluster(embedded_binary(), replicas=1) as cluster:
        lost = cluster.owner_of("{0}")
        lost.kill()
        wait_until("another node serves", lambda: cluster.owner_of("{0}") is not lost)
        cluster.wait_until_whole()
        assert cluster.owner_of("{0}") in cluster.nodes[3:]


def test_sentinels_promote_a_replica_and_take_the_old_master_back_as_one() -> None:
    with Sentinels(embedded_binary()) as group:
        first = group.master
        assert group.failover() is not first
        group.heal()
        with first.admin() as client:
            assert client.info("replication")["role"] == "slave"
        assert group.failover() is first


def test_an_interrupt_in_the_middle_of_a_launch_leaves_no_process(tmp_path: Path) -> None:
    script = (
        "import os, signal, subprocess\n"
        "from pathlib import Path\n"
        "from service.local import process\n"
        "spawn, pids = subprocess.Popen.__init__, []\n"
        "def interrupted(self, *words, **how):\n"
        "    spawn(self, *words, **how)\n"
        "    pids.append(self.pid)\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "subprocess.Popen.__init__ = interrupted\n"
        "try:\n"
        "    process.launch(['/bin/sleep', '60'], directory=Path('.'), output=Path('out'))\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted', os.path.exists(f'/proc/{pids[0]}'))\n"
    )
    words = [sys.executable, "-c", script]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("interrupted False\n", "")
