"""`make demo` as a newcomer runs it: it shows something at once, ends well, and leaves nothing behind.
Its judgement is tested as well: a state that shows harm is not reported as a success."""

import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

from standins.api_servers import choose
from standins.controlplane import NoControlPlane
from standins.demo.ack_resources import AckSummary
from standins.demo.aws_account import AwsSummary
from standins.demo.azure_subscription import AzureSummary
from standins.demo.fleet import make_fleet
from standins.demo.summary import DemoSummary, judge, summary_table
from tests.api_servers import kinds, need_real

pytestmark = pytest.mark.long

COMMAND = [sys.executable, "-m", "standins.demo"]
SMALL = ["--clusters", "4", "--nodes", "4"]
INTERFACE = "aks-web-reserved"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    # A server, an account and identities that must never be asked, and a place where leftovers would be seen.
    return {
        **os.environ,
        "KNELL_REDIS_URL": "redis://127.0.0.1:1/0",
        "AWS_ACCESS_KEY_ID": "AKIA999988887777",
        "AWS_PROFILE": "nobody-has-it",
        "AWS_CONFIG_FILE": str(tmp_path / "aws-config"),
        "AZURE_CLIENT_ID": "00000000-0000-4000-8000-0000000000bb",
        "AZURE_CLIENT_SECRET": "somebody-s",
        "AZURE_TENANT_ID": "00000000-0000-4000-8000-0000000000cc",
        "IDENTITY_ENDPOINT": "http://127.0.0.1:1/msi/token",
        "MSI_SECRET": "somebody-s",
        "TMPDIR": str(tmp_path),
    }


def processes_in(directory: Path) -> list[str]:
    """Command lines of processes that name the directory, work in it, or were told of it."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                told = (entry / "environ").read_bytes().decode(errors="replace")
                place = (entry / "cwd").readlink()
            except OSError:
                continue
            if str(directory) in line + told or place.is_relative_to(directory):
                found.append(line)
    return found


def left_behind(directory: Path) -> list[str]:
    return [path.name for path in directory.glob("knell-*")] + processes_in(directory)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("api", kinds())
def test_the_demo_ends_well_by_the_api_server_and_the_clouds_own_lists_and_journals(
    environment: dict[str, str], tmp_path: Path, api: str
) -> None:
    done = subprocess.run(
        [*COMMAND, *SMALL, "--api", api, "--output", "json"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    told = msgspec.json.decode(done.stdout)
    summary = told["summary"]
    assert told["problems"] == []
    assert summary["api"] == api
    assert (summary["clusters"], summary["nodes"], summary["ack_objects"]) == (4, 4, 2)
    assert (summary["deletions"], summary["done"]) == (10, 10)
    assert summary["objects_left"] == summary["objects_missing"] == summary["not_held"] == []
    assert summary["protected"] == "billing"
    in_object, in_namespace = summary["denials"]
    assert in_object.startswith("Error from server (Forbidden): ")
    assert "awscluster/billing in Namespace shop is protected from deletion: annotation knell.dev/prev" in in_object
    assert in_namespace.startswith(
        'Error from server (Forbidden): admission webhook "namespaces.protection.knell.dev" denied the request: '
        "namespace/shop contains 1 protected object: awscluster.infrastructure.cluster.x-k8s.io/billing;"
    )
    assert summary["deleted_anyway"] == []
    assert "annotation knell.dev/prevent-delete of the object says 'true'" in summary["hold"]
    assert summary["protected_for"] > 0
    assert summary["events"]["CleanupHeld"] >= 1
    assert "kill -9 of replica-" in done.stderr
    assert summary["taken_over"] is not None
    aws = summary["aws"]
    # Three clusters with three balancers, three target groups and four groups; two interfaces for each balancer.
    assert (aws["removed"], aws["resources"], aws["drained"]) == (30, 30, 18)
    # Two clusters that keep theirs, and seven resources of others.
    assert (aws["kept"], aws["tagged"]) == (27, 10)
    assert aws["left"] == aws["missing"] == aws["touched"] == aws["early"] == aws["twice"] == []
    assert aws["calls"] >= aws["resources"]
    assert aws["throttled"] >= 1
    ack = summary["ack"]
    assert (ack["queue"], ack["by_cloud_control"]) == ("orders", 1)
    assert ack["left"] == ack["missing"] == ack["touched"] == ack["twice"] == []
    assert ack["bucket"] == "invoices"
    assert "services.k8s.aws/deletion-policy of the object says 'retain'" in ack["recorded"]
    assert ack["audit"].startswith("retain: annotation services.k8s.aws/deletion-policy")
    azure = summary["azure"]
    # A machine with interface and disk, an interface with a disk, one with an address, and the reserved one.
    assert (azure["removed"], azure["resources"], azure["kept"]) == (8, 8, 7)
    assert azure["left"] == azure["missing"] == azure["touched"] == azure["twice"] == []
    # It was refused once, and what the answer said then was waited for by another replica than the one that got it.
    assert (azure["interface"], azure["reserved"]) == (INTERFACE, 12)
    assert (azure["reservations"], azure["early"], azure["across_kill"]) == (1, 0, True)
    assert azure["late"] >= 0
    events = (
        "DELETE of namespace/shop",
        f"{INTERFACE} is reserved for another VM",
        "kill -9 of",
        "after the kill",
        "prevent-delete removed",
    )
    assert "DELETE of Queue orders and Bucket invoices, whose controllers are gone" in done.stderr
    assert "AWS: queue orders is gone" in done.stderr
    places = [done.stderr.rfind(words) for words in events]
    assert -1 not in places
    assert places == sorted(places)
    assert not left_behind(tmp_path)


@contextmanager
def running(environment: dict[str, str], *words: str) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        [*COMMAND, *SMALL, *words], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    with process.stdout:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()


def interrupted(process: "subprocess.Popen[str]") -> str:
    """What it says after Ctrl-C."""
    assert process.stdout is not None
    process.send_signal(signal.SIGINT)
    rest = process.stdout.read()
    assert process.wait(60) == 1, rest
    assert "interrupted; everything that was started has been stopped" in rest
    assert "Traceback" not in rest
    return rest


def test_without_a_terminal_plain_lines_come_and_an_interrupt_cleans_up(
    environment: dict[str, str], tmp_path: Path
) -> None:
    with running(environment, "--api", "embedded") as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        assert "4 Cluster API clusters on AWS and 4 Karpenter nodes on Azure" in first
        for line in process.stdout:
            if "gone: AWS" in line:
                break
        else:
            pytest.fail("no progress was shown")
        assert "\x1b[" not in first + line
        # The demo itself, Valkey, the stand-ins for AWS and Azure and two replicas.
        assert len(processes_in(tmp_path)) >= 6
        for cloud in ("aws", "azure"):
            assert any(f"standins.{cloud}" in line for line in processes_in(tmp_path))
        interrupted(process)
        assert not left_behind(tmp_path)


def test_an_interrupt_while_the_control_plane_starts_leaves_nothing_of_it(
    environment: dict[str, str], tmp_path: Path
) -> None:
    need_real()
    with running(environment, "--api", "real") as process:
        deadline = time.monotonic() + 60
        while not any("kube-apiserver" in line for line in processes_in(tmp_path)):
            assert time.monotonic() < deadline, "no API server is started"
            assert process.poll() is None
            time.sleep(0.02)
        assert "started Valkey" not in interrupted(process)
    assert not left_behind(tmp_path)


def test_without_the_real_control_plane_the_embedded_one_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    chosen = choose("auto")
    assert chosen.kind == "embedded"
    assert "make controlplane" in chosen.words
    with pytest.raises(NoControlPlane, match="make controlplane"):
        choose("real")


def test_a_control_plane_that_is_demanded_and_not_there_is_named(environment: dict[str, str], tmp_path: Path) -> None:
    done = subprocess.run(
        [*COMMAND, "--api", "real"],
        env={**environment, "KUBEBUILDER_ASSETS": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert "there is no kube-apiserver" in done.stderr
    assert "Traceback" not in done.stderr
    assert not left_behind(tmp_path)


# ---- objects, and what must become of them


@pytest.mark.parametrize(("clusters", "nodes"), [(4, 4), (12, 20), (60, 200)])
def test_every_part_of_the_demo_is_there_at_any_size(clusters: int, nodes: int) -> None:
    fleet = make_fleet(clusters, nodes)
    assert (len(fleet.deleted_clusters), len(fleet.deleted_nodes), fleet.deletions) == (
        clusters,
        nodes,
        clusters + nodes + 2,
    )
    assert len({one.name for one in fleet.clusters}) == clusters + 1
    assert len({one.name for one in fleet.nodes}) == nodes + 1
    for deleted in (fleet.deleted_clusters, fleet.deleted_nodes):
        assert {one.late for one in deleted} == {True, False}
    assert {one.leftover for one in fleet.deleted_nodes} == {
        "machine",
        "interface and disk",
        "interface and address",
        "interface",
    }
    assert {(one.kind, one.outcome) for one in fleet.ack} == {
        ("Queue", "removed"),
        ("Bucket", "retained"),
        ("Queue", "untouched"),
    }
    assert not fleet.protected.late
    assert not fleet.retained.late
    assert not fleet.reserved.late


# ---- the judgement

GOOD_AWS = AwsSummary(
    resources=30, removed=30, left=[], kept=27, missing=[], touched=[], early=[], twice=[], tagged=10, drained=18,
    calls=140, throttled=6, refused={"Throttling": 2, "RequestLimitExceeded": 4},
)  # fmt: skip
GOOD_ACK = AckSummary(
    queue="orders", bucket="invoices", left=[], missing=[], touched=[], twice=[], by_cloud_control=1,
    recorded="annotation services.k8s.aws/deletion-policy", audit="retain: annotation services.k8s.aws/deletion-policy",
)  # fmt: skip
GOOD_AZURE = AzureSummary(
    resources=8, removed=8, left=[], kept=7, missing=[], touched=[], twice=[], interface=INTERFACE,
    reserved=timedelta(seconds=12), reservations=1, early=0, late=timedelta(seconds=0.1), across_kill=True, calls=60,
    throttled=3, refused={"TooManyRequests": 3, "NicReservedForAnotherVm": 1},
)  # fmt: skip
DENIALS = [
    "awscluster/billing in Namespace shop is protected from deletion: annotation knell.dev/prevent-delete",
    "namespace/shop contains 1 protected object: awscluster.infrastructure.cluster.x-k8s.io/billing",
]
GOOD = DemoSummary(
    api="embedded", clusters=4, nodes=4, ack_objects=2, deletions=10, done=10, objects_left=[], objects_missing=[],
    not_held=[], protected="billing", denials=DENIALS, deleted_anyway=[], hold="protected",
    protected_for=timedelta(seconds=12), retained="archive", killed="replica-1",
    taken_over=timedelta(seconds=4), given_back=3, events={}, aws=GOOD_AWS, ack=GOOD_ACK, azure=GOOD_AZURE,
    took=timedelta(seconds=30),
)  # fmt: skip


def test_a_state_as_it_should_be_is_not_faulted() -> None:
    assert judge(GOOD) == []


def test_the_summary_fits_a_small_terminal() -> None:
    large = {"Throttling": 888, "RequestLimitExceeded": 888}
    summary = msgspec.structs.replace(
        GOOD,
        clusters=60,
        nodes=200,
        deletions=262,
        done=262,
        aws=msgspec.structs.replace(GOOD_AWS, resources=8888, removed=8888, calls=88888, refused=large),
        azure=msgspec.structs.replace(GOOD_AZURE, resources=8888, removed=8888, calls=88888),
        took=timedelta(seconds=1888),
    )
    screen = Console(width=80, height=24, file=io.StringIO(), record=True)
    screen.print(summary_table(summary))
    lines = screen.export_text().rstrip().splitlines()
    # A title and one line for each row.
    assert len(lines) == 1 + summary_table(summary).row_count <= 22


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        ({"objects_left": ["AWSCluster shop-01"]}, "should be gone from the API server: AWSCluster shop-01"),
        ({"objects_missing": ["NodeClaim web-live"]}, "should still be on the API server: NodeClaim web-live"),
        ({"not_held": ["shop-01"]}, "deleted without our finalizer: shop-01"),
        ({"done": 7}, "7 deletions are done, where 10"),
        ({"denials": DENIALS[:1]}, "no deletion was denied with the words: namespace/shop contains"),
        ({"denials": DENIALS[1:]}, "no deletion was denied with the words: awscluster/billing in Namespace shop is"),
        ({"deleted_anyway": ["awscluster/billing"]}, "deleted although protected: awscluster/billing"),
        ({"protected_for": None}, "billing was never reported as held by its protection"),
        ({"killed": "", "taken_over": None}, "no replica was killed"),
        ({"taken_over": None}, "no other replica took over the sources of replica-1"),
    ],
)
def test_whatever_is_wrong_in_the_end_is_named(harm: dict[str, Any], words: str) -> None:
    (problem,) = judge(msgspec.structs.replace(GOOD, **harm))
    assert words in problem


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        ({"left": ["sg-1"]}, "not gone at AWS: sg-1"),
        ({"missing": ["sg-2"]}, "gone at AWS and should have stayed: sg-2"),
        ({"touched": ["sg-2"]}, "touched at AWS and should have been left alone: sg-2"),
        ({"tagged": 0}, "no resource of archive was tagged as kept"),
        ({"throttled": 0}, "AWS throttled no call"),
        ({"early": ["sg-3"]}, "changed at AWS while billing was protected: sg-3"),
        ({"twice": ["sg-1"]}, "deleted more than once at AWS: sg-1"),
    ],
)
def test_whatever_is_wrong_on_aws_in_the_end_is_named(harm: dict[str, Any], words: str) -> None:
    (problem,) = judge(msgspec.structs.replace(GOOD, aws=msgspec.structs.replace(GOOD_AWS, **harm)))
    assert words in problem


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        ({"left": ["orders"], "by_cloud_control": 0}, "not gone at AWS: orders"),
        ({"by_cloud_control": 0}, "queue orders was not removed by Cloud Control"),
        ({"missing": ["invoices"]}, "gone at AWS and should have stayed: invoices"),
        ({"touched": ["returns"]}, "touched at AWS and should have been left alone: returns"),
        ({"twice": ["orders"]}, "deleted more than once at AWS: orders"),
        ({"recorded": ""}, "bucket invoices was not recorded as kept"),
        ({"audit": ""}, "the audit does not say that bucket invoices was retained"),
    ],
)
def test_whatever_is_wrong_with_acks_resources_in_the_end_is_named(harm: dict[str, Any], words: str) -> None:
    (problem,) = judge(msgspec.structs.replace(GOOD, ack=msgspec.structs.replace(GOOD_ACK, **harm)))
    assert words in problem


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        ({"reservations": 0, "late": None}, f"interface {INTERFACE} was reserved, but no delete was refused for that"),
        ({"reservations": 3, "early": 2}, f"2 deletes of interface {INTERFACE} came before its reservation was over"),
        ({"late": None}, f"interface {INTERFACE} was not deleted after its reservation"),
        ({"late": timedelta(seconds=300)}, "was deleted only 300.0 s after its reservation"),
        ({"left": [INTERFACE]}, f"not gone at Azure: {INTERFACE}"),
        ({"missing": ["disks/aks-web-live"]}, "gone at Azure and should have stayed: disks/aks-web-live"),
        ({"touched": ["aks-web-2"]}, "touched at Azure and should have been left alone: aks-web-2"),
        ({"twice": ["aks-web-01"]}, "deleted more than once at Azure: aks-web-01"),
    ],
)
def test_whatever_is_wrong_on_azure_in_the_end_is_named(harm: dict[str, Any], words: str) -> None:
    (problem,) = judge(msgspec.structs.replace(GOOD, azure=msgspec.structs.replace(GOOD_AZURE, **harm)))
    assert words in problem
