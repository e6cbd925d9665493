"""Computed parts of the bench rows about AWS: the buckets' limit, the peer's waits, Knell's scaled settings.
The limit is compared with figures that were worked out by hand."""

from fnmatch import fnmatchcase

import pytest
from botocore.exceptions import ClientError
from msgspec.structs import replace

from bench.contenders.all_contenders import CONTENDERS
from bench.contenders.buckets import Buckets, seconds_for
from bench.contenders.capa import calls_listing
from bench.contenders.knell_clearing import LIMITS, sample_of
from bench.contenders.knell_identifiers import used
from bench.contenders.knell_settings import scaled
from bench.contenders.protocol import NotSupportedError
from bench.peers.go_retries import ATTEMPTS, GoRetries
from bench.rounds import Outcome
from bench.rows import ROWS
from bench.rows.aws_clean import TAGGING
from bench.rows.row import RoundSize
from service.contract import Limit
from standins.aws import AwsJournalEntry
from tests.unit.test_bench_report import line_of, row
from workers.providers.aws.kinds import KINDS
from workers.providers.aws.limits import CALL_DELAY, AwsLimits

pytestmark = pytest.mark.long

USED = (
    "tag.GetResources", "elb.DescribeLoadBalancers", "elb.DescribeTags", "elb.DeleteLoadBalancer",
    "elbv2.DescribeLoadBalancers", "elbv2.DescribeTargetGroups", "elbv2.DescribeTags", "elbv2.DeleteLoadBalancer",
    "elbv2.DeleteTargetGroup", "ec2.DescribeSecurityGroups", "ec2.DescribeNetworkInterfaces", "ec2.DescribeInstances",
    "ec2.DescribeVpcs", "ec2.DescribeSecurityGroupRules", "ec2.DeleteSecurityGroup", "ec2.RevokeSecurityGroupIngress",
    "ec2.RevokeSecurityGroupEgress",
)  # fmt: skip


def refusal(code: str, status: int = 400) -> ClientError:
    return ClientError({"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}, "DeleteTargetGroup")


# ---- the limit


def test_balancers_and_target_groups_of_a_hundred_clusters_wait_for_the_bucket_that_they_share() -> None:
    # 500 at 3 a second after a burst of 20.
    assert Buckets().clean(None, "tagging", 100).seconds == 160  # type: ignore[arg-type]  # no arena is needed


def test_a_thousand_removals_by_cloud_control_need_three_calls_each() -> None:
    # 3,000 at 30 a second after a burst of 30.
    assert Buckets().remove(None, 1000).seconds == 99  # type: ignore[arg-type]  # no arena is needed


@pytest.mark.parametrize(
    ("calls", "seconds"),
    [
        ({"elbv2.DeleteLoadBalancer": 20}, 0),
        ({"elbv2.DeleteLoadBalancer": 20, "elbv2.DeleteTargetGroup": 3}, 1),
        # Classic balancers have a bucket of their own, and the slowest bucket decides.
        ({"elb.DeleteLoadBalancer": 80, "elbv2.DeleteLoadBalancer": 23}, 20),
        ({"ec2.DeleteSecurityGroup": 400, "elb.DeleteLoadBalancer": 100}, 70),
        # 40 at once and 10 a second over everything: less than what reads alone may do.
        ({"elbv2.DeleteLoadBalancer": 20, "elbv2.DescribeTags": 120}, 10),
    ],
)
def test_the_limit_is_when_the_slowest_bucket_has_let_everything_through(calls: dict[str, int], seconds: float) -> None:
    assert seconds_for(calls) == pytest.approx(seconds)


def test_the_limit_knows_no_lateness_of_groups() -> None:
    with pytest.raises(NotSupportedError):
        row("aws-drain.p99").trial.measure(Buckets(), None, RoundSize())  # type: ignore[arg-type]  # no arena is needed


# ---- the peer


def test_as_the_peer_asks_a_hundred_clusters_without_the_tagging_api_need_what_its_own_code_was_seen_to_need() -> None:
    # Ten deletions, four lists, and the tags of 6 things of each cluster that is still there, 20 at once.
    assert [calls_listing(there) for there in (1, 6, 7, 100)] == [17, 17, 18, 14 + 5 + 10 + 15]
    undisturbed = sum(calls_listing(there) for there in range(1, 101)) / 1000
    # A quarter of its own code's calls was refused.
    assert undisturbed / (1 - 0.25) == pytest.approx(4.1, abs=0.05)


@pytest.mark.parametrize(("attempt", "longest"), [(1, 2.0), (2, 4.0), (5, 20.0)])
def test_the_peer_waits_at_most_twice_as_long_each_time_and_never_above_twenty_seconds(
    attempt: int, longest: float
) -> None:
    assert GoRetries(draw=lambda: 1.0).wait_after(attempt) == longest
    assert GoRetries(scale=3, draw=lambda: 0.5).wait_after(1) == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("error", "times"),
    [
        (refusal("Throttling"), ATTEMPTS),
        (refusal("ThrottledException"), ATTEMPTS),
        (refusal("RequestLimitExceeded", 503), ATTEMPTS),
        (refusal("InternalFailure", 500), ATTEMPTS),
        (refusal("DependencyViolation"), 1),
        # No mode of the SDK tries this one again.
        (refusal("DependencyThrottle"), 1),
    ],
    ids=lambda given: given.response["Error"]["Code"] if isinstance(given, ClientError) else None,
)
async def test_only_what_passes_is_tried_again_and_three_times_in_all(error: ClientError, times: int) -> None:
    made = 0

    async def call() -> None:
        nonlocal made
        made += 1
        raise error

    with pytest.raises(ClientError):
        await GoRetries(draw=lambda: 0.0).of(call)
    assert made == times


async def test_a_call_that_is_let_through_at_last_answers() -> None:
    refusals = [refusal("Throttling"), refusal("Throttling")]

    async def call() -> str:
        if refusals:
            raise refusals.pop()
        return "done"

    assert await GoRetries(draw=lambda: 0.0).of(call) == "done"


# ---- Knell


@pytest.mark.parametrize("operation", USED)
def test_every_limit_that_knell_keeps_there_is_scaled_and_none_twice(operation: str) -> None:
    for drawn in AwsLimits(KINDS).of("eu-central-1", operation):
        limit = drawn.limit
        samples = [
            sample_of("eu-central-1", pattern, sample)
            for pattern, sample in LIMITS.items()
            if fnmatchcase(limit.name, pattern)
        ]
        assert [replace(sample, name=limit.name) for sample in samples] == [limit]


def test_a_scaled_limit_is_as_much_faster_and_never_larger_than_the_accounts() -> None:
    limit = Limit.bucket("eu-central-1/elbv2.changes", 20, 3, spare=2.25)
    found = scaled(limit, 3, CALL_DELAY)
    assert found["rate"] == pytest.approx(9)
    # A quarter is the most that is left for calls on their way: 5 instead of 2.25.
    assert found["capacity"] == 17


@pytest.mark.parametrize("operation", [one for one in USED if ".Delete" in one])
def test_a_lane_that_deletes_gathers_jobs_whichever_of_its_limits_is_scarce(operation: str) -> None:
    draws = AwsLimits(KINDS).of_lane(f"aws/111122223333/eu-central-1/{operation}")
    assert draws is not None
    assert min(draw.together for draw in draws) > 1


def test_the_used_part_of_cloud_controls_quota_ends_with_the_last_deletion_and_leaves_out_what_was_throttled() -> None:
    def entry(at: float, action: str, code: str = "") -> AwsJournalEntry:
        return AwsJournalEntry(number=0, at=at, real=at, action=f"cloudcontrol.{action}", code=code)

    calls = [
        *(entry(10.0, "GetResource") for _ in range(44)),
        entry(10.0, "GetResource", "ThrottlingException"),
        entry(11.0, "DeleteResource"),
        entry(11.5, "DeleteResource", "ThrottlingException"),
        entry(12.0, "GetResource"),
    ]
    # 45 of a burst of 30, and of 30 that flowed in within a second.
    assert used(calls) == 45 / 60


# ---- rows


@pytest.mark.parametrize(
    ("id_", "knell", "met"),
    [
        ("aws-clean", 168.0, True),
        ("aws-clean", 168.1, False),
        ("aws-clean.describe", 168.0, True),
        ("aws-clean.calls", 2.5, True),
        ("aws-clean.calls", 2.51, False),
        ("aws-clean.describe.calls", 2.51, False),
        ("aws-clean.refused", 0.49, True),
        ("aws-clean.refused", 0.5, False),
        ("aws-clean.describe.refused", 0.5, False),
        ("ack-clean.used", 95.0, True),
        ("ack-clean.used", 94.9, False),
        ("ack-clean.refused", 0.49, True),
        ("ack-clean.refused", 0.5, False),
        ("aws-drain.p99", 4.9, True),
        ("aws-drain.p99", 5.0, False),
        ("aws-drain.mutual", 100.0, True),
        ("aws-drain.mutual", 95.0, False),
    ],
)
def test_each_goal_about_aws_turns_at_its_bound(id_: str, knell: float, met: bool) -> None:
    outcome = Outcome(5)
    chosen = row(id_)
    outcome.samples[chosen.trial.name, "knell", chosen.figure] = [knell]
    outcome.samples[chosen.trial.name, "buckets", chosen.figure] = [160.0]
    assert line_of(id_, outcome)["met"] is met


def test_one_round_is_enough_where_buckets_or_leases_set_the_pace() -> None:
    assert (TAGGING.rounds(5), TAGGING.rounds(1)) == (1, 1)
    assert {one.trial.name for one in ROWS if one.trial.rounds(5) != 5} == {
        "ack-clean",
        "aws-clean",
        "aws-clean.describe",
        "aws-drain",
        "aws-drain.unseen",
        "azure-clean",
        "azure-clean.patient",
        "azure-clean.reads",
        "azure-reservation",
        "azure-reservation.begun",
        "handover",
        "killed",
        "quota.learned",
        "quota.learned.declared",
        "takeover",
    }


def test_the_rows_about_drains_name_the_clusters_and_groups_that_were_run() -> None:
    assert "of 200 groups of 100 deleted clusters whose balancers' interfaces take 30 to 300 s" in row(
        "aws-drain.p99"
    ).words(RoundSize())
    assert "of 24 groups of 12 deleted clusters whose balancers' interfaces take 10 to 30 s" in row(
        "aws-drain.p50"
    ).words(RoundSize(short=True))
    assert "a pair in each of 2 more clusters" in row("aws-drain.mutual").words(RoundSize(short=True))


def test_it_is_said_why_the_peer_needs_more_calls_here_and_only_where_it_does() -> None:
    assert [one.id for one in ROWS if "4.1" in one.words(RoundSize())] == ["aws-clean.describe.calls"]


def test_capa_is_a_peer_and_the_buckets_are_the_limit() -> None:
    outcome = Outcome(5)
    for name, seconds in (("knell", 160.0), ("capa", 170.0), ("buckets", 160.0)):
        outcome.samples["aws-clean", name, "seconds"] = [seconds]
    line = line_of("aws-clean", outcome)
    assert (line["limit"], line["peers"]) == (160.0, {"capa": 170.0})
    assert {one.name for one in CONTENDERS if one.kind == "collector"} == {"capa", "karpenter"}
