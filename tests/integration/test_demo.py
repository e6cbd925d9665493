"""`knell demo` as a newcomer runs it: it shows something at once, ends well, and leaves nothing behind. Its judge is
put to the test as well: a world that shows harm is not called a success."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from standins.aws import LocalAws, LocalAwsFailed
from standins.aws.world import credentials, session
from standins.controlplane import NoControlPlane
from standins.demo import AwsSummary, AzureSummary, Held, Ledger, Summary, choose, invent, judge
from standins.demo.amazon import ACCOUNT, REGION, Account
from standins.demo.reckoning import reckon
from standins.provider import Line
from tests.clusters import kinds, need_real

pytestmark = pytest.mark.long

COMMAND = [sys.executable, "-c", "from service.cli.main import main; main()", "demo"]
SMALL = ["--objects", "8", "--seconds", "10"]
INVENTED = invent(8, timedelta(seconds=10))
VAULT = "clusters.demo.knell.dev shop/cluster-vault"
CHECKOUT = "AWSCluster shop/checkout"
NODE = "NodeClaim web-k4x9t"
INTERFACE = "aks-web-k4x9t"


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
def test_the_demo_ends_well_by_the_api_server_and_the_provider_s_own_log(
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
    # Eight that go, three retained, one protected, one opted out, and two that nobody deletes.
    assert (summary["objects"], summary["deleted"], summary["living"]) == (15, 13, 2)
    assert (summary["released"], summary["retained"], summary["opted_out"]) == (11, 3, 1)
    assert summary["objects_left"] == summary["objects_missing"] == []
    (held,) = summary["held"]
    assert held["object"] == VAULT
    assert held["why"] == "protected: annotation knell.dev/prevent-delete of the object says 'true'"
    assert held["condition"] == "ExternalResourcesRemoved is False: CleanupHeld"
    assert summary["events"]["CleanupHeld"] >= 1
    assert summary["removed"] == summary["resources"] == len(INVENTED.ours)
    assert summary["kept"] == summary["to_keep"] == len(INVENTED.kept)
    assert summary["left"] == summary["touched"] == []
    assert summary["reservations"] == INVENTED.reserved
    assert summary["early"] == 0
    assert summary["refused_foreign"] >= 1
    assert "kill -9 of replica-" in done.stderr
    assert summary["taken_over"] is not None
    aws = summary["aws"]
    assert aws["cluster"] == CHECKOUT
    assert (aws["held"], aws["gone"]) == (True, True)
    # Three balancers, three target groups and four groups; two interfaces for each balancer.
    assert (aws["removed"], aws["resources"], aws["drained"]) == (10, 10, 6)
    assert (aws["kept"], aws["to_keep"]) == (7, 7)
    assert aws["left"] == aws["touched"] == []
    assert aws["calls"] >= aws["resources"]
    assert f"{CHECKOUT} is gone" in done.stderr
    azure = summary["azure"]
    assert (azure["claim"], azure["interface"], azure["gone"]) == (NODE, INTERFACE, True)
    # It was met once, and what was said then was waited for by others than who heard it.
    assert (azure["reserved"], azure["refused"], azure["early"], azure["across_kill"]) == (12, 1, 0, True)
    assert azure["late"] >= 0
    assert azure["took"] > azure["reserved"]
    assert (azure["kept"], azure["to_keep"], azure["touched"]) == (4, 4, [])
    scenes = ("is reserved for another VM", "kill -9 of", f"{INTERFACE}, reserved, goes in", f"{INTERFACE} is gone")
    places = [done.stderr.rfind(words) for words in scenes]
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
        assert "8 objects are to go" in first
        for line in process.stdout:
            if "gone " in line:
                break
        else:
            pytest.fail("no progress was shown")
        assert "\x1b[" not in first + line
        # The demo itself, Valkey, the provider, the stand-ins for AWS and Azure and two replicas.
        assert len(processes_in(tmp_path)) >= 7
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


# ---- the judge

GOOD_AWS = AwsSummary(
    cluster=CHECKOUT, held=True, gone=True, resources=10, removed=10, left=[], kept=7, to_keep=7, touched=[], drained=6,
    calls=40, refused={}, took=timedelta(seconds=9),
)  # fmt: skip
GOOD_AZURE = AzureSummary(
    claim=NODE, interface=INTERFACE, reserved=timedelta(seconds=12), refused=1, early=0, late=timedelta(seconds=0.1),
    across_kill=True, gone=True, kept=4, to_keep=4, touched=[], calls=11, took=timedelta(seconds=14),
)  # fmt: skip
GOOD = Summary(
    api="embedded", objects=15, deleted=13, released=11, retained=3, held=[Held(VAULT, "protected", "")], opted_out=1,
    living=2, resources=len(INVENTED.ours), removed=len(INVENTED.ours), kept=len(INVENTED.kept),
    to_keep=len(INVENTED.kept), calls=100, throttled=0, repeated=0, blocked=0, failed=0, reservations=0, early=0,
    late_median=None, late_most=None, longest_wait=None, refused_foreign=0, touched=[], left=[], objects_left=[],
    objects_missing=[], events={}, given_back=0, taken_over=None, took=timedelta(seconds=1), aws=GOOD_AWS,
    azure=GOOD_AZURE,
)  # fmt: skip


def test_a_world_as_it_should_be_is_not_faulted() -> None:
    assert judge(INVENTED, GOOD) == []


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        ({"objects_left": ["clusters shop/cluster-1"]}, "should be gone from the API server: clusters shop/cluster-1"),
        ({"objects_missing": [VAULT]}, "should be left at the API server"),
        ({"left": ["nic-1"]}, "not gone by the provider's log: nic-1"),
        ({"touched": ["nic-vault"]}, "touched at the provider, and not to be: nic-vault"),
        ({"kept": 3}, "3 resources are at the provider"),
        ({"early": 2}, "2 calls came before a reservation was over"),
        ({"released": 10}, "10 objects were released, where 11"),
        ({"retained": 2}, "2 objects were released by retain, where 3"),
        ({"held": []}, "held are none, where shop/cluster-vault should be"),
    ],
)
def test_whatever_is_wrong_in_the_end_is_named(harm: dict[str, Any], words: str) -> None:
    (problem,) = judge(INVENTED, msgspec.structs.replace(GOOD, **harm))
    assert words in problem


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        ({"held": False}, f"{CHECKOUT} was deleted, and our finalizer was not on it"),
        ({"gone": False}, f"{CHECKOUT} should be gone from the API server"),
        ({"left": ["sg-1"]}, "not gone at AWS: sg-1"),
        ({"touched": ["sg-2"]}, "touched at AWS, and not to be: sg-2"),
        ({"kept": 6}, "6 resources of others are at AWS, where 7"),
    ],
)
def test_whatever_is_wrong_on_aws_in_the_end_is_named(harm: dict[str, Any], words: str) -> None:
    aws = msgspec.structs.replace(GOOD_AWS, **harm)
    (problem,) = judge(INVENTED, msgspec.structs.replace(GOOD, aws=aws))
    assert words in problem


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        ({"refused": 0, "late": None}, f"interface {INTERFACE} was reserved, and no delete was refused for that"),
        ({"refused": 3, "early": 2}, f"2 deletes of interface {INTERFACE} came before its reservation was over"),
        ({"late": None}, f"nobody came again for interface {INTERFACE} after its reservation"),
        ({"late": timedelta(seconds=300)}, "was deleted 300.0 s after its reservation, not at the first moment"),
        ({"gone": False}, f"not gone at Azure: {INTERFACE}"),
        ({"touched": ["aks-web-p8d2s"]}, "touched at Azure, and not to be: aks-web-p8d2s"),
        ({"kept": 3}, "3 resources of others are at Azure, where 4"),
    ],
)
def test_whatever_is_wrong_on_azure_in_the_end_is_named(harm: dict[str, Any], words: str) -> None:
    azure = msgspec.structs.replace(GOOD_AZURE, **harm)
    (problem,) = judge(INVENTED, msgspec.structs.replace(GOOD, azure=azure))
    assert words in problem


# ---- the account at the stand-in for AWS


@pytest.fixture
async def aws() -> AsyncIterator[LocalAws]:
    async with LocalAws() as running:
        yield running


@pytest.fixture
async def account(aws: LocalAws) -> AsyncIterator[Account]:
    made = Account(aws, "checkout")
    await made.build()
    yield made
    await made.aclose()


async def test_what_is_left_and_what_was_touched_on_aws_is_told_by_aws(aws: LocalAws, account: Account) -> None:
    (balancer,) = [one for one in account.ours["load balancers"] if "/net/" in one]
    strangers, _ = account.strangers
    (foreign,) = [one for one in strangers if "/net/" in one]
    async with session().create_client(
        "elbv2", region_name=REGION, endpoint_url=aws.address, **credentials(ACCOUNT)
    ) as elbv2:
        await elbv2.describe_load_balancers()
        await elbv2.delete_load_balancer(LoadBalancerArn=balancer)
        await account.look()
        assert account.counts == {
            "load balancers": (2, 3),
            "their interfaces": (6, 6),
            "target groups": (3, 3),
            "security groups": (4, 4),
        }
        assert account.touched == set()
        await elbv2.delete_load_balancer(LoadBalancerArn=foreign)
    await aws.advance(60)
    await account.look()
    assert account.counts["their interfaces"] == (4, 6)
    found = reckon(account, CHECKOUT, held=True, gone=True, took=None)
    assert (found.resources, found.removed, found.calls) == (10, 1, 3)
    assert (found.kept, found.to_keep, found.touched) == (6, 7, [foreign])
    assert len(found.left) == 9
    assert balancer not in found.left


async def test_a_stand_in_for_aws_that_dies_is_named(aws: LocalAws, account: Account) -> None:
    os.kill(aws.pid, signal.SIGKILL)
    with pytest.raises(LocalAwsFailed, match="the stand-in for AWS does not answer"):
        await account.look()


# ---- the provider's log


class Log:
    """A provider's log, written by hand."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = 1000.0

    def delete(self, name: str, status: int, reserved_until: float | None = None, caller: str = "") -> None:
        call = Line(what="request", at=self.clock, arrived=self.clock, method="DELETE", account="a", id=name)
        self._write(msgspec.structs.replace(call, status=status, reserved_until=reserved_until, caller=caller))

    def gone(self, name: str) -> None:
        self._write(Line(what="gone", at=self.clock, account="a", id=name))

    def _write(self, line: Line) -> None:
        with self.path.open("ab") as file:
            file.write(msgspec.json.encode(line) + b"\n")


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "log.jsonl")


@pytest.fixture
def read(log: Log) -> Callable[..., Ledger]:
    def ledger(*ours: str, **killed: float) -> Ledger:
        made = Ledger(log.path, frozenset(ours), killed=killed)
        made.catch_up()
        return made

    return ledger


def test_what_is_not_gone_is_left_also_when_it_was_accepted(log: Log, read: Callable[..., Ledger]) -> None:
    log.delete("x", 204)
    log.gone("x")
    log.delete("y", 202)
    ledger = read("x", "y", "z")
    assert ledger.left() == ["y", "z"]
    log.gone("y")
    ledger.catch_up()
    assert ledger.left() == ["z"]
    assert ledger.removed == 2


def test_a_call_for_what_is_not_ours_is_seen(log: Log, read: Callable[..., Ledger]) -> None:
    log.delete("somebody-s", 409)
    assert read("x").strangers == {"somebody-s"}


def test_a_reservation_is_kept_or_broken_by_the_next_call(log: Log, read: Callable[..., Ledger]) -> None:
    log.delete("x", 400, reserved_until=1006.0)
    log.delete("y", 400, reserved_until=1006.0)
    log.clock = 1005.0
    log.delete("y", 400, reserved_until=1006.0)
    log.clock = 1006.25
    log.delete("x", 429)
    log.clock = 1006.5
    log.delete("x", 204)
    ledger = read("x", "y")
    assert ledger.reservations == 2
    assert ledger.early == 1
    assert ledger.late == [0.5]
    assert ledger.statuses[429] == 1


@pytest.mark.parametrize(
    ("killed", "early"), [({"one": 1001.0}, 0), ({"one": 1004.0}, 1), ({"two": 1001.0}, 1), ({}, 1)]
)
def test_only_what_died_with_its_reader_may_be_asked_again(
    log: Log, read: Callable[..., Ledger], killed: dict[str, float], early: int
) -> None:
    log.delete("x", 400, reserved_until=1006.0, caller="one")
    log.clock = 1005.0
    log.delete("x", 400, reserved_until=1006.0, caller="two")
    assert read("x", **killed).early == early


def test_only_calls_after_an_accepted_one_are_repeated(log: Log, read: Callable[..., Ledger]) -> None:
    for status in (500, 409, 202, 202, 404):
        log.delete("x", status)
    ledger = read("x")
    assert ledger.repeated == 2
    assert ledger.calls == 5
