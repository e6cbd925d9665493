"""How fast, and with how many calls, one process removes what a hundred deleted clusters have left in an AWS account.

The account is the stand-in under AWS's own token buckets: they decide how fast it can be done, and what is too much.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from bench.aws_leftovers import OF_A_CLUSTER
from bench.bench_server import BenchServer
from bench.contenders.protocol import Contender
from bench.goals import at_most, at_most_limit, below, goal
from bench.order import Finding
from bench.rows.row import Measure, RoundSize, Row, Trial

_CLUSTERS: Final = 100
_SHORT: Final = 12


def _measured(finding: Finding) -> Measure:
    def measure(contender: Contender, server: BenchServer, size: RoundSize) -> Mapping[str, float]:
        cleaned = contender.clean(server, finding, size.pick(_CLUSTERS, _SHORT))
        figures = {"seconds": cleaned.seconds}
        if cleaned.calls:
            figures["calls"] = cleaned.calls / cleaned.resources
            figures["refused"] = 100 * (cleaned.refused or 0) / cleaned.calls
        return figures

    return measure


TAGGING = Trial("aws-clean", _measured("tagging"), most_rounds=1)
DESCRIBE = Trial("aws-clean.describe", _measured("describe"), most_rounds=1)


def _time(how: str) -> Callable[[RoundSize], str]:
    def words(size: RoundSize) -> str:
        return (
            f"{size.pick(_CLUSTERS, _SHORT)} deleted clusters with {sum(OF_A_CLUSTER.values())} resources each "
            f"({OF_A_CLUSTER['elb.DeleteLoadBalancer']} classic and {OF_A_CLUSTER['elbv2.DeleteLoadBalancer']} other "
            f"balancers, {OF_A_CLUSTER['elbv2.DeleteTargetGroup']} target groups, "
            f"{OF_A_CLUSTER['ec2.DeleteSecurityGroup']} security groups) in one account, interfaces that drain at "
            "once, lists of the tagging API that drop what is deleted at once: time from the first deletion to the "
            f"last resource gone; {how}"
        )

    return words


_CALLS = (
    "calls to AWS per resource in the same run, with those that follow when the last resource is gone (Knell: the "
    "proofs of absence)"
)
_MORE_THAN_ITS_OWN_CODE = (
    "CAPA's own code was seen to need 4.1 where each action had a bucket of its own; here all reads of ELB share one, "
    "as AWS documents it: calls for tags are refused and made again, what was listed vanishes meanwhile, which ends "
    "the pass, and the next one lists the whole account again"
)
_REFUSED = "part of the calls that AWS refused for want of quota, in the same run"


def _rows(trial: Trial, how: str, about_calls: str = "") -> tuple[Row, ...]:
    return (
        Row(trial.name, _time(how), "s", trial, "seconds", "less", goal(at_most_limit(1.05))),
        Row(
            f"{trial.name}.calls",
            "; ".join([_CALLS, how, *([about_calls] if about_calls else [])]),
            "calls per resource",
            trial,
            "calls",
            "less",
            goal(at_most(2.5, "calls")),
        ),
        Row(f"{trial.name}.refused", f"{_REFUSED}; {how}", "%", trial, "refused", "less", goal(below(0.5, "%"))),
    )


ROWS = (
    *_rows(TAGGING, "with the tagging API"),
    *_rows(DESCRIBE, "without the tagging API", _MORE_THAN_ITS_OWN_CODE),
)
