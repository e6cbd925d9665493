"""Knell on an AWS account: a process of `knell run`, whose clusters are AWSClusters of the bench's API server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from bench import capi_clusters
from bench.aws_account import BenchAccount
from bench.aws_leftovers import AccountLeftovers
from bench.bench_server import BenchServer
from bench.contenders.knell_settings import common, launched, scaled, shorter
from bench.contenders.program import Program
from bench.contenders.protocol import ContenderFailedError
from bench.objects import TookTooLongError
from bench.order import Finding
from service.contract import Limit
from service.sources.capa import AWS_CLUSTERS, CAPA, FEATURE, AwsSettings
from workers.providers.aws.kinds import KINDS
from workers.providers.aws.limits import CALL_DELAY, AwsLimits

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


def document(server: BenchServer, account: BenchAccount, namespace: str, finding: Finding) -> dict[str, Any]:
    """What would stand in the file of settings."""
    scale, aws = account.scale, AwsSettings()
    source = {"resource": AWS_CLUSTERS, "collector": CAPA, "namespaces": [namespace], "adopt_existing": True}
    return common(server, namespace, source, scale) | {
        "features": {FEATURE: True},
        "aws": {
            "endpoint": account.address,
            "account": account.number,
            "finding": finding,
            "settle": shorter(aws.settle, scale),
            "check_after": shorter(aws.check_after, scale),
            "drain_check": shorter(aws.drain_check, scale),
        },
        "limits": {
            pattern: scaled(sample_of(account.region, pattern, operation), scale, CALL_DELAY)
            for pattern, operation in LIMITS.items()
        },
    }


def sample_of(region: str, pattern: str, operation: str) -> Limit:
    """A limit that the pattern is for; the last of those that an operation draws on is the one over all."""
    return AwsLimits(KINDS).of(region, operation)[-1 if pattern.endswith(".all") else 0].limit


class KnellClearingProcess:
    def __init__(self, server: BenchServer, namespace: str, program: Program, began: float) -> None:
        self._cluster, self._namespace, self._program = server.cluster, namespace, program
        self.began = began

    def check(self) -> None:
        self._program.check()

    def over(self) -> bool:
        """When the last AWSCluster was released, the fresh list after the settle time has come back empty."""
        return self._cluster.run(lambda session: capi_clusters.left(session, self._namespace)) == 0


@contextmanager
def begin(
    server: BenchServer, account: BenchAccount, remains: AccountLeftovers, finding: Finding
) -> Iterator[KnellClearingProcess]:
    cluster = server.cluster
    cluster.run(capi_clusters.define)
    namespace = cluster.namespace()
    cluster.run(lambda session: capi_clusters.create(session, namespace, account.region, remains.vpcs))
    try:
        with launched(document(server, account, namespace, finding), account.credentials) as program:
            yield KnellClearingProcess(server, namespace, program, _deleted(server, namespace, remains, program))
    finally:
        cluster.run(lambda session: capi_clusters.abandon(session, namespace))


def _deleted(server: BenchServer, namespace: str, remains: AccountLeftovers, program: Program) -> float:
    names = list(remains.vpcs)
    run = server.cluster.run
    try:
        run(lambda session: capi_clusters.wait_until_held(session, namespace, len(names), _HELD_WITHIN, program.check))
    except TookTooLongError as failure:
        raise ContenderFailedError(f"knell: {failure}") from failure
    return run(lambda session: capi_clusters.delete(session, namespace, names))
