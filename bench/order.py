"""Order for one process of a contender, as one JSON argument that Python, Node and Go all read.

Only the standard library is used here, because this file is also imported inside the environments of the
peers."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Literal, Self

Task = Literal["enqueue", "schedule", "drain", "lateness"]

# A job as Knell would store it: ten short, flat, readable fields. Every contender carries exactly this.
FIELDS: dict[str, str] = {
    "version": "1",
    "deletion": "5f0c9f0a/clusters.cluster.x-k8s.io/0a7d2c1e/1",
    "kind": "aws/security-group",
    "target": "sg-0f3a9c1d2b4e5f607",
    "account": "123456789012",
    "region": "eu-west-1",
    "lane": "aws/123456789012/eu-west-1/ec2.DeleteSecurityGroup",
    "strategy": "required",
    "stage": "2",
    "object": "team-a/cluster-17",
}


@dataclass(frozen=True)
class Argument:
    """The order for a process, as its only argument."""

    def encode(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def decode(cls, text: str) -> Self:
        return cls(**json.loads(text))


@dataclass(frozen=True)
class Order(Argument):
    """One process, one task: put jobs in, put them in with due times, work them off, or work them off and
    tell how late."""

    task: Task
    port: int
    jobs: int
    concurrency: int
    fields: dict[str, str]
    start: float = 0.0
    """Epoch seconds at which the first scheduled job is due."""
    gap: float = 0.0
    """Seconds between one due time and the next; none means that all are due at one moment."""

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def due_times(self) -> list[float]:
        return [self.start + n * self.gap for n in range(self.jobs)]


TOKEN_VARIABLE = "BENCH_API_TOKEN"  # noqa: S105  # the name of it, not the token
"""Processes get the API server's token through their environment: arguments are seen by everybody."""


PEERING = "bench"
"""The object in which replicas of kopf tell of each other; the harness makes it."""

WatchTask = Literal["release", "lead", "stand-by", "watch"]


@dataclass(frozen=True)
class WatchOrder(Argument):
    """One process, one API server: release objects that are deleted there, or list and watch many. Of two that release
    the same objects one leads, and the other stands by to replace it."""

    task: WatchTask
    url: str
    ca: str
    """Path of what the server's certificate is checked against; empty where it is plain http."""
    kubeconfig: str
    namespace: str
    """Where the objects to release are; whoever watches may keep its own things there."""
    group: str
    version: str
    plural: str
    objects: int
    port: int
    """Of Redis, for who needs it."""


Finding = Literal["tagging", "describe"]
"""How a cluster's resources are found: by the tagging API, or where there is none by the lists of each service."""


@dataclass(frozen=True)
class AwsOrder(Argument):
    """One process, one account of the AWS stand-in: remove what these clusters have left there."""

    address: str
    region: str
    finding: Finding
    clusters: list[str]
    """By the names that stand in their tags."""
    scale: float
    """How many times as fast time runs in that account: waits are to be so much shorter."""


@dataclass(frozen=True)
class AzureOrder(Argument):
    """One process, one resource group of the Azure stand-in: remove the interfaces that no node has any more."""

    address: str
    token: str
    """Whose text is the principal; the stand-in knows no secret."""
    subscription: str
    group: str
    cluster: str
    """By its name in tags."""
    interfaces: int
    """How many there are, or will be: when all are gone, it is over."""
    scale: float
    """As above."""
