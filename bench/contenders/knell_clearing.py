"""Knell at an AWS account: a process of `knell run`, whose clusters are AWSClusters of the arena's API server.

Its settings are the defaults, with every duration divided and every limit's rate multiplied by how much faster the
account's time runs.
"""

from __future__ import annotations

import math
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import msgspec

from bench import clusters
from bench.account import Account
from bench.arena import Arena
from bench.contenders.program import Program, running
from bench.contenders.protocol import ContenderFailedError
from bench.objects import TookTooLongError
from bench.order import Finding
from bench.remains import Remains
from service.contract import Limit
from service.contract.aws import AWS_CLUSTERS, CAPA, FEATURE
from service.settings.aws import AwsSettings
from service.settings.sections import RetrySettings
from workers.handlers.aws.limits import LATE, limits_of

SOURCE: Final = "bench"
COMMAND: Final = (sys.executable, "-c", "from service.cli.main import main; main()", "run", "--config")
# Patterns of limits, and an operation whose limits they are.
LIMITS: Final = {
    "*/ec2.Describe*": "ec2.DescribeSecurityGroups",
    "*/ec2.[!D]*": "ec2.RevokeSecurityGroupIngress",
    "*/ec2.DeleteSecurityGroup": "ec2.DeleteSecurityGroup",
    "*/elb.changes": "elb.DeleteLoadBalancer",
    "*/elb.reads": "elb.DescribeTags",
    "*/elbv2.changes": "elbv2.DeleteLoadBalancer",
    "*/elbv2.reads": "elbv2.DescribeTags",
    "*/tag.GetResources": "tag.GetResources",
    "*/elb.all": "elb.DescribeTags",
    "*/elbv2.all": "elbv2.DescribeTags",
}
_HELD_WITHIN: Final = 120.0


def document(arena: Arena, account: Account, namespace: str, finding: Finding) -> dict[str, Any]:
    """What would stand in the file of settings."""
    scale, aws, retry = account.scale, AwsSettings(), RetrySettings()
    return {
        "redis": {"url": f"redis://127.0.0.1:{arena.port}/0"},
        "surface": {"host": "127.0.0.1", "port": 0},
        "log": {"format": "json"},
        "clusters": {SOURCE: {"kubeconfig": str(arena.cluster.kubeconfig)}},
        "sources": {
            SOURCE: {
                "resource": AWS_CLUSTERS,
                "collector": CAPA,
                "namespaces": [namespace],
                "adopt_existing": True,
                "guard": {"enabled": False},
            }
        },
        "watch": {"namespace": namespace},
        "features": {FEATURE: True},
        "aws": {
            "endpoint": account.address,
            "account": account.number,
            "finding": finding,
            "settle": _shorter(aws.settle, scale),
            "check_after": _shorter(aws.check_after, scale),
            "drain_check": _shorter(aws.drain_check, scale),
        },
        "retry": {
            "base": _shorter(retry.base, scale),
            "cap": _shorter(retry.cap, scale),
            "blocked_base": _shorter(retry.blocked_base, scale),
            "blocked_cap": _shorter(retry.blocked_cap, scale),
        },
        "limits": {
            pattern: scaled(sample_of(account.region, pattern, operation), scale)
            for pattern, operation in LIMITS.items()
        },
    }


def sample_of(region: str, pattern: str, operation: str) -> Limit:
    """A limit that the pattern is for; the last of those that an operation draws on is the one over all."""
    return limits_of(region, operation)[-1 if pattern.endswith(".all") else 0].limit


def scaled(limit: Limit, scale: float) -> dict[str, float]:
    """As it would be declared for an account whose time is faster. What is left for calls that are on their way grows
    with the rate, for those don't get faster; settings have no name for it, so it is taken off the capacity."""
    rate = limit.capacity / limit.per.total_seconds() * scale
    more = max(0.0, min(limit.capacity / 4, rate * LATE) - limit.spare)
    return {"rate": rate, "capacity": math.floor(limit.capacity - more)}


def _shorter(span: timedelta, scale: float) -> float:
    return span.total_seconds() / scale


class AtWork:
    def __init__(self, arena: Arena, namespace: str, program: Program, began: float) -> None:
        self._cluster, self._namespace, self._program = arena.cluster, namespace, program
        self.began = began

    def check(self) -> None:
        self._program.check()

    def over(self) -> bool:
        """When the last AWSCluster was let go, the fresh list after the settle time has come back empty."""
        return self._cluster.run(lambda session: clusters.left(session, self._namespace)) == 0


@contextmanager
def begin(arena: Arena, account: Account, remains: Remains, finding: Finding) -> Iterator[AtWork]:
    cluster = arena.cluster
    cluster.run(clusters.define)
    namespace = cluster.namespace()
    with tempfile.TemporaryDirectory(prefix="knell-bench-") as folder:
        file = Path(folder) / "knell.yaml"
        file.write_bytes(msgspec.yaml.encode(document(arena, account, namespace, finding)))
        cluster.run(lambda session: clusters.create(session, namespace, account.region, remains.vpcs))
        try:
            with running("knell", [*COMMAND, str(file)], account.credentials) as program:
                yield AtWork(arena, namespace, program, _deleted(arena, namespace, remains, program))
        finally:
            cluster.run(lambda session: clusters.abandon(session, namespace))


def _deleted(arena: Arena, namespace: str, remains: Remains, program: Program) -> float:
    names = list(remains.vpcs)
    run = arena.cluster.run
    try:
        run(lambda session: clusters.wait_until_held(session, namespace, len(names), _HELD_WITHIN, program.check))
    except TookTooLongError as failure:
        raise ContenderFailedError(f"knell: {failure}") from failure
    return run(lambda session: clusters.delete(session, namespace, names))
