"""`knell local`: one stand-in of the outside world alone, for whoever wants to point a program at it.
It says how to reach it as soon as it is there, and ends without a trace when it is told to."""

import signal
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Final

import click

from service.cli.session import Misuse, Trouble
from standins.aws import LocalAws
from standins.azure import GROUP, SUBSCRIPTION, LocalAzure
from standins.controlplane import NoControlPlane
from standins.demo.apis import choose
from standins.stand_in import StandIn, StandInFailed

_LOOK_EVERY: Final = 0.5
_ENDS: Final = "Ctrl-C ends it, and everything in it is forgotten."
_port = click.option("--port", type=click.IntRange(0, 65535), default=0, help="On 127.0.0.1; 0 takes any free one.")
_rate = click.option(
    "--rate",
    type=click.FloatRange(0),
    default=1.0,
    show_default=True,
    help="How many of its seconds pass in one of ours; 0 stops its clock until it is moved.",
)

_AZURE: Final = """\
The stand-in for Azure is at {address}. {ends}

Programs that use azure-identity get a token of a managed identity there:
  export IDENTITY_ENDPOINT={address}/msi/token IDENTITY_HEADER=any
Knell goes there with the setting azure.endpoint, or with
  export KNELL_AZURE_ENDPOINT={address}
Anybody else brings a bearer token, whose text is who it is. It begins empty; to make something and look at it:
  curl {address}/_knell/resources -d '[{{"kind": "nic", "name": "aks-one", "tags": {{"team": "a"}}}}]'
  curl -H 'Authorization: Bearer me' '{address}{nic}?api-version=2025-05-01'
What it was asked: {address}/_knell/journal
"""
_NIC: Final = (
    f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}/providers/Microsoft.Network/networkInterfaces/aks-one"
)
_AWS: Final = """\
The stand-in for AWS is at {address}. {ends}

Programs that use an SDK of AWS, or `aws` itself, go there in any region; the twelve digits in the key are the account:
  export AWS_ENDPOINT_URL={address} AWS_REGION=eu-west-1
  export AWS_ACCESS_KEY_ID=AKIA111122223333 AWS_SECRET_ACCESS_KEY=any
In Python: client("ec2", endpoint_url="{address}", region_name="eu-west-1")
Knell goes there with the setting aws.endpoint, or with
  export KNELL_AWS_ENDPOINT={address}
What it was asked: {address}/_knell/journal
"""
_KUBERNETES: Final = """\
The API server is {words}. {ends}

Its kubeconfig, with a context for the admin:
  export KUBECONFIG={kubeconfig}
Knell watches it with the settings
  clusters: {{local: {{kubeconfig: {kubeconfig}}}}}
"""


@click.group()
def local() -> None:
    """Run one stand-in of the outside world alone, until Ctrl-C or SIGTERM."""


@local.command()
@_port
@_rate
def azure(port: int, rate: float) -> None:
    """Azure: a small ARM with interfaces, machines, disks, public addresses and Resource Graph, with Azure's limits."""
    _stand_in(LocalAzure(rate=rate, port=port), lambda address: _AZURE.format(address=address, ends=_ENDS, nic=_NIC))


@local.command()
@_port
@_rate
def aws(port: int, rate: float) -> None:
    """AWS: EC2, ELB, tagging, STS and EKS, with AWS's limits and manners."""
    _stand_in(LocalAws(rate=rate, port=port), lambda address: _AWS.format(address=address, ends=_ENDS))


@local.command()
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Where to write it; otherwise a temporary file. It is removed at the end.",
)
@click.option("--real", is_flag=True, help="The real control plane, where `make controlplane` has built it.")
@_port
def kubernetes(kubeconfig: Path | None, real: bool, port: int) -> None:
    """A Kubernetes API server: the embedded one, or the real control plane."""
    if kubeconfig is not None and kubeconfig.exists():
        # It may be somebody's way to a real cluster.
        raise Misuse(f"{kubeconfig} is there already and is not overwritten: remove it, or name another file")
    told = _listen()
    with tempfile.TemporaryDirectory(prefix="knell-kubernetes-") as directory:
        path = (kubeconfig or Path(directory) / "kubeconfig").absolute()
        try:
            chosen = choose("real" if real else "embedded", port)
        except NoControlPlane as error:
            raise Trouble(f"{error}; `make controlplane` builds it") from None
        try:
            try:
                chosen.server.start()
            except (NoControlPlane, OSError) as error:
                raise Trouble(f"{chosen.words} did not start: {error}") from None
            chosen.server.kubeconfig(path)
            click.echo(_KUBERNETES.format(words=chosen.words, ends=_ENDS, kubeconfig=path))
            told.wait()
        finally:
            chosen.server.stop()
            path.unlink(missing_ok=True)


def _stand_in(cloud: StandIn, words: Callable[[str], str]) -> None:
    told = _listen()
    try:
        cloud.start()
    except StandInFailed as error:
        # Above its last line stands where in the program it happened, which is nothing to a caller.
        raise Trouble(f"{cloud.NAME} did not start: {str(error).strip().splitlines()[-1]}") from None
    try:
        click.echo(words(cloud.address))
        while not told.wait(_LOOK_EVERY):
            if not cloud.running:
                raise Trouble(f"{cloud.NAME} has ended by itself")
    finally:
        cloud.stop()


def _listen() -> threading.Event:
    """Set when somebody wants the end. Before anything is started: a signal meanwhile is not lost."""
    told = threading.Event()

    def tell(_number: int, _frame: FrameType | None) -> None:
        told.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, tell)
    return told
