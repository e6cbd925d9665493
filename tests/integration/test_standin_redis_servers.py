"""Local Redis servers: they restart with their data, fail over, and do not outlive their parent."""

import os
import signal
import socket
import socketserver
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from types import ModuleType

import pytest

from standins.child_process import with_clone_path
from standins.ports import free_ports
from standins.redis_servers import (
    LocalRedis,
    LocalRedisCluster,
    LocalRedisSentinel,
    NoServerError,
    cluster,
    embedded_binary,
)
from standins.redis_servers import (
    server as server_module,
)
from standins.redis_servers.sentinel import MASTER_NAME, SentinelProcess
from standins.redis_servers.server import wait_until
from tests.redis_servers import TestServer

pytestmark = pytest.mark.long


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_a_server_keeps_what_was_written_to_disk_when_it_is_killed() -> None:
    with LocalRedis(appendfsync="always") as server:
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
    with LocalRedis() as server, server.admin() as client:
        assert client.config_get("maxmemory-policy")["maxmemory-policy"] == "noeviction"
        assert client.config_get("appendonly")["appendonly"] == "yes"


async def test_a_server_is_revived_from_an_event_loop() -> None:
    with LocalRedis() as server:
        first = server.pid
        await server.revive()
        assert server.pid != first
        assert server.running


def test_a_stopped_server_leaves_neither_process_nor_directory() -> None:
    with LocalRedis() as server:
        pid, directory = server.pid, server.directory
    assert not alive(pid)
    assert not directory.exists()


def test_a_given_directory_is_kept(tmp_path: Path) -> None:
    with LocalRedis(directory=tmp_path / "data") as server, server.admin() as client:
        client.set("a", "1")
    assert (tmp_path / "data" / "appendonlydir").is_dir()


def test_a_server_that_cannot_start_says_what_it_said() -> None:
    server = LocalRedis(options={"no-such-option": "1"})
    with pytest.raises(NoServerError, match="no-such-option"):
        server.start()
    assert not server.running


def test_a_given_port_that_is_taken_is_not_exchanged() -> None:
    with LocalRedis() as first:
        second = LocalRedis(port=first.port)
        with pytest.raises(NoServerError):
            second.start()
        assert first.running


def test_free_ports_differ_and_lie_below_those_of_outgoing_connections() -> None:
    ports = free_ports(50)
    assert len(set(ports)) == 50
    assert max(ports) < 32768


@pytest.fixture
def occupy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[ModuleType], list[int]]]:
    """Takes the ports that a module chooses the first time, after they were found free and before they are used.
    The list that is returned holds them from then on."""
    with ExitStack() as stack:

        def occupy(module: ModuleType) -> list[int]:
            taken: list[int] = []

            def choose(count: int) -> list[int]:
                ports = free_ports(count)
                if not taken:
                    taken.extend(ports)
                    for port in ports:
                        listener = stack.enter_context(socket.socket())
                        listener.bind(("127.0.0.1", port))
                        # Nothing listens: who connects is refused at once.
                return ports

            monkeypatch.setattr(module, "free_ports", choose)
            return taken

        yield occupy


def test_a_server_starts_at_another_port_if_the_chosen_one_is_taken(occupy: Callable[[ModuleType], list[int]]) -> None:
    taken = occupy(server_module)
    with LocalRedis() as server:
        assert taken
        assert server.port not in taken


def test_a_server_starts_at_another_port_if_a_web_server_took_the_chosen_one(monkeypatch: pytest.MonkeyPatch) -> None:
    class RefusingHandler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(1024)
            self.request.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    (port,) = free_ports(1)
    chosen = [[port]]
    monkeypatch.setattr(server_module, "free_ports", lambda count: chosen.pop() if chosen else free_ports(count))
    with socketserver.ThreadingTCPServer(("127.0.0.1", port), RefusingHandler) as web:
        thread = threading.Thread(target=web.serve_forever)
        thread.start()
        try:
            with LocalRedis() as server:
                assert not chosen
                assert server.port != port
        finally:
            web.shutdown()
            thread.join()


def test_a_cluster_starts_at_another_bus_port_if_the_chosen_one_is_taken(
    occupy: Callable[[ModuleType], list[int]],
) -> None:
    taken = occupy(cluster)
    with LocalRedisCluster(embedded_binary()) as started:
        assert taken
        assert started.nodes[0].bus_port not in taken
        started.wait_until_whole()


def test_a_sentinel_starts_at_another_port_if_the_chosen_one_is_taken(
    tmp_path: Path, occupy: Callable[[ModuleType], list[int]]
) -> None:
    with LocalRedis() as watched:
        taken = occupy(server_module)
        sentinel = SentinelProcess(embedded_binary(), tmp_path, watch=watched, down_after=timedelta(seconds=30))
        with sentinel, sentinel.admin() as client:
            assert taken
            assert sentinel.port not in taken
            assert client.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER_NAME)[1] == str(watched.port)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child with its parent")
def test_a_server_dies_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    program = (
        "import sys, time\n"
        "from standins.redis_servers import LocalRedis\n"
        f"server = LocalRedis(directory=__import__('pathlib').Path({str(tmp_path)!r})).start()\n"
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
    assert isinstance(cluster, LocalRedisCluster)
    owners = {cluster.owner_of(f"{{{shard}}}").port for shard in range(cluster.settings().shards)}
    assert owners == {master.port for master in cluster.masters}


def test_a_cluster_without_replicas_is_whole_again_when_its_killed_master_is_back() -> None:
    with LocalRedisCluster(embedded_binary(), replicas=0) as cluster:
        lost = cluster.owner_of("{0}")
        lost.kill()
        lost.restart()
        cluster.wait_until_whole()
        assert cluster.owner_of("{0}") is lost


def test_a_replica_takes_over_the_slots_of_a_killed_master() -> None:
    with LocalRedisCluster(embedded_binary(), replicas=1) as cluster:
        lost = cluster.owner_of("{0}")
        lost.kill()
        wait_until("another node serves", lambda: cluster.owner_of("{0}") is not lost)
        cluster.wait_until_whole()
        assert cluster.owner_of("{0}") in cluster.nodes[3:]


def test_sentinels_promote_a_replica_and_take_the_old_master_back_as_one() -> None:
    with LocalRedisSentinel(embedded_binary()) as group:
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
        "from standins import child_process\n"
        "spawn, pids = subprocess.Popen.__init__, []\n"
        "def interrupted(self, *words, **how):\n"
        "    spawn(self, *words, **how)\n"
        "    pids.append(self.pid)\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "subprocess.Popen.__init__ = interrupted\n"
        "try:\n"
        "    child_process.launch(['/bin/sleep', '60'], directory=Path('.'), output=Path('out'))\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted', os.path.exists(f'/proc/{pids[0]}'))\n"
    )
    words = [sys.executable, "-c", script]
    done = subprocess.run(
        words, cwd=tmp_path, env=with_clone_path(os.environ), capture_output=True, text=True, timeout=60
    )
    assert (done.stdout, done.stderr) == ("interrupted False\n", "")
