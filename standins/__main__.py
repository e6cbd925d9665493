"""Command `python -m standins aws|azure|kubernetes|redis`: runs one stand-in alone, for use by other programs.
It prints how to connect once the stand-in is ready, and removes everything it made when it is stopped."""

import os
import signal
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Final

import click

from service.cli.session import CommandError, InvalidUsage
from standins.api_servers import choose
from standins.aws import LocalAws
from standins.azure import GROUP, SUBSCRIPTION, LocalAzure
from standins.controlplane import NoControlPlane
from standins.http_server import listening_socket
from standins.redis_servers import LocalRedis, NoServerError
from standins.stand_in_process import StandInFailed, StandInProcess

_CHECK_INTERVAL: Final = 0.5
_ENDS: Final = "Ctrl-C ends it, and all its data is lost."
_port = click.option("--port", type=click.IntRange(0, 65535), default=0, help="On 127.0.0.1; 0 takes any free one.")
_rate = click.option(
    "--rate",
    type=click.FloatRange(0),
    default=1.0,
    show_default=True,
    help="Speed of its clock: 2 makes every delay half as long, 0 stops the clock until it is advanced.",
)

_AZURE: Final = """\
The stand-in for Azure is at {address}. {ends}

Programs that use azure-identity get a managed identity's token:
  export IDENTITY_ENDPOINT={address}/msi/token IDENTITY_HEADER=any
Knell connects with the setting azure.endpoint, or with
  export KNELL_AZURE_ENDPOINT={address}
Other clients send any bearer token; its text is the principal. It starts empty; to create a resource and read it:
  curl {address}/_knell/resources -d '[{{"kind": "nic", "name": "aks-one", "tags": {{"team": "a"}}}}]'
  curl -H 'Authorization: Bearer me' '{address}{nic}?api-version=2025-05-01'
Journal of all requests: {address}/_knell/journal
"""
_NIC: Final = (
    f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}/providers/Microsoft.Network/networkInterfaces/aks-one"
)
_AWS: Final = """\
The stand-in for AWS is at {address}. {ends}

AWS SDKs and the `aws` command connect in any region; the twelve digits in the access key are the account:
  export AWS_ENDPOINT_URL={address} AWS_REGION=eu-west-1
  export AWS_ACCESS_KEY_ID=AKIA111122223333 AWS_SECRET_ACCESS_KEY=any
In Python: client("ec2", endpoint_url="{address}", region_name="eu-west-1")
Knell connects with the setting aws.endpoint, or with
  export KNELL_AWS_ENDPOINT={address}
Journal of all requests: {address}/_knell/journal
"""
_KUBERNETES: Final = """\
The API server is {words}. {ends}

Its kubeconfig, with a context for the admin:
  export KUBECONFIG={kubeconfig}
Knell watches it with the settings
  clusters: {{local: {{kubeconfig: {kubeconfig}}}}}
"""
_REDIS: Final = """\
The embedded Valkey is at {url}. {ends}

Knell connects with the setting redis.url, or with
  export KNELL_REDIS_URL={url}
"""


@click.group()
def standins() -> None:
    """Run one stand-in alone, until Ctrl-C or SIGTERM."""


@standins.command()
@_port
@_rate
def azure(port: int, rate: float) -> None:
    """Azure: a small ARM with network interfaces, VMs, disks, public addresses and Resource Graph, with Azure's
    limits."""
    _run_cloud(LocalAzure(rate=rate, port=port), lambda address: _AZURE.format(address=address, ends=_ENDS, nic=_NIC))


@standins.command()
@_port
@_rate
def aws(port: int, rate: float) -> None:
    """AWS: EC2, ELB, tagging, STS and EKS, with AWS's limits and errors."""
    _run_cloud(LocalAws(rate=rate, port=port), lambda address: _AWS.format(address=address, ends=_ENDS))


@standins.command()
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File to write; a temporary one if not given. It is removed at the end.",
)
@click.option("--real", is_flag=True, help="The real control plane, where `make controlplane` has built it.")
@_port
def kubernetes(kubeconfig: Path | None, real: bool, port: int) -> None:
    """A Kubernetes API server: the embedded one, or the real control plane."""
    if kubeconfig is not None and kubeconfig.exists():
        # It may lead to a real cluster.
        raise InvalidUsage(f"{kubeconfig} is there already and is not overwritten: remove it, or name another file")
    stop = _stop_signals()
    with tempfile.TemporaryDirectory(prefix="knell-kubernetes-") as directory:
        path = (kubeconfig or Path(directory) / "kubeconfig").absolute()
        try:
            chosen = choose("real" if real else "embedded", port)
        except NoControlPlane as error:
            raise CommandError(f"{error}; `make controlplane` builds it") from None
        try:
            try:
                chosen.server.start()
            except (NoControlPlane, OSError) as error:
                raise CommandError(f"{chosen.words} did not start: {error}") from None
            chosen.server.kubeconfig(path)
            click.echo(_KUBERNETES.format(words=chosen.words, ends=_ENDS, kubeconfig=path))
            stop.wait()
        finally:
            chosen.server.stop()
            path.unlink(missing_ok=True)


@standins.command()
@_port
def redis(port: int) -> None:
    """Redis: the embedded Valkey, empty, without a password."""
    stop = _stop_signals()
    try:
        listening_socket(port).close()
        server = LocalRedis(port=port or None)
        server.start()
    except OSError as error:
        raise CommandError(f"the embedded Valkey did not start: port {port}: {_reason(error)}") from None
    except NoServerError as error:
        raise CommandError(f"the embedded Valkey did not start: {error}") from None
    try:
        click.echo(_REDIS.format(url=f"redis://{server.host}:{server.port}/0", ends=_ENDS))
        _wait(stop, "the embedded Valkey", lambda: server.running)
    finally:
        server.stop()


def _run_cloud(cloud: StandInProcess, instructions: Callable[[str], str]) -> None:
    stop = _stop_signals()
    try:
        cloud.start()
    except StandInFailed as error:
        # The lines above the last one are a traceback of the stand-in's process.
        raise CommandError(f"{cloud.NAME} did not start: {str(error).strip().splitlines()[-1]}") from None
    try:
        click.echo(instructions(cloud.address))
        _wait(stop, cloud.NAME, lambda: cloud.running)
    finally:
        cloud.stop()


def _wait(stop: threading.Event, name: str, is_running: Callable[[], bool]) -> None:
    while not stop.wait(_CHECK_INTERVAL):
        if not is_running():
            raise CommandError(f"{name} has ended by itself")


def _stop_signals() -> threading.Event:
    """An event that SIGTERM or SIGINT sets. Called before anything is started, so that no signal is lost meanwhile."""
    stop = threading.Event()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    return stop


def _reason(error: OSError) -> str:
    return os.strerror(error.errno or 0).lower()


if __name__ == "__main__":
    standins(prog_name="python -m standins")
