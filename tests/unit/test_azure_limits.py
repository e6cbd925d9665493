"""Rate limits of Azure calls: the documented buckets, by subscription, region and identity, less the reserve."""

import dataclasses
from datetime import timedelta
from typing import Any

import pytest

from service.contract import Limit, place_of
from service.sources.karpenter_azure import AzureNodes
from workers.providers.azure import limits
from workers.providers.azure.kinds import DISK, KINDS, VM
from workers.providers.azure.limits import (
    CALLS,
    LATE,
    CallBuckets,
    LaneLimits,
    UndeclaredLimits,
    call_draws,
    remaining,
)
from workers.providers.azure.model import AzureScope

SUBSCRIPTION = "0aaaaaaa-0000-4000-8000-000000000001"
CLIENT = "0bbbbbbb-0000-4000-8000-000000000002"
OWN = AzureScope(subscription=SUBSCRIPTION, group="mc_prod", region="westeurope")
NAMED = AzureScope(subscription=SUBSCRIPTION, group="mc_prod", region="westeurope", client_id=CLIENT)


def size(limit: Limit) -> tuple[float, float]:
    """Capacity and refill per second."""
    return limit.capacity, round(limit.capacity / limit.per.total_seconds(), 3)


def costs(where: AzureScope, operation: str) -> dict[str, float]:
    draws = LaneLimits(KINDS, 0.2).draws(where.lane(operation))
    assert draws is not None
    return {draw.limit.name: draw.cost for draw in draws}


def test_resource_manager_counts_per_identity_and_the_network_and_compute_do_not() -> None:
    arm, network = call_draws(OWN, "network.delete", 0.0)
    assert (arm.limit.name, size(arm.limit)) == ("westeurope/own/arm.deletes", (200, 10))
    assert (network.limit.name, size(network.limit)) == ("westeurope/network.writes", (1000, 3.333))
    other_arm, other_network = call_draws(NAMED, "network.delete", 0.0)
    assert other_arm.limit.name == f"westeurope/{CLIENT}/arm.deletes"
    assert other_network.limit == network.limit


def test_reads_are_counted_as_well() -> None:
    arm, network = call_draws(OWN, "network.read", 0.0)
    assert (arm.limit.name, size(arm.limit)) == ("westeurope/own/arm.reads", (250, 25))
    assert (network.limit.name, size(network.limit)) == ("westeurope/network.reads", (10_000, 33.333))
    same, compute = call_draws(OWN, "compute.read", 0.0)
    assert same.limit == arm.limit
    assert (compute.limit.name, size(compute.limit)) == ("westeurope/compute.reads", (1000, 50))


def test_deletes_of_machines_and_of_disks() -> None:
    arm, machines = call_draws(OWN, "compute.delete", 0.0)
    assert (machines.limit.name, size(machines.limit)) == ("westeurope/compute.vm-deletes", (1500, 8.333))
    same, disks = call_draws(OWN, "disk.delete", 0.0)
    assert same.limit == arm.limit
    assert (disks.limit.name, size(disks.limit)) == ("westeurope/compute.disks", (200, 10))


def test_resource_graph_is_never_asked_more_than_15_times_in_five_seconds() -> None:
    (draw,) = call_draws(OWN, "graph", 0.2)
    capacity, rate = size(draw.limit)
    assert capacity + rate * 5 <= 15
    assert draw.limit.name == "own/graph.queries"


def test_of_a_bucket_that_tells_what_is_left_the_reserve_stays_in_it() -> None:
    for reserve in (0.2, 0.5):
        arm, machines = call_draws(OWN, "compute.delete", reserve)
        assert (arm.limit.capacity, arm.limit.spare) == (200, 200 * reserve)
        assert (machines.limit.capacity, machines.limit.spare) == (1500, 1500 * reserve)


def test_of_a_bucket_without_feedback_a_share_of_the_rate_is_left_to_others() -> None:
    _, network = call_draws(OWN, "network.delete", 0.2)
    assert size(network.limit) == (800, 2.667)
    assert network.limit.spare < network.limit.capacity / 4 + 1


def test_without_a_reserve_only_what_flows_in_meanwhile_is_left() -> None:
    for draw in (*call_draws(OWN, "network.delete", 0.0), *call_draws(OWN, "compute.delete", 0.0)):
        _, rate = size(draw.limit)
        assert draw.limit.spare == pytest.approx(rate * LATE, rel=0.01)


def test_a_job_draws_on_its_call_and_on_the_fresh_reads_before_it() -> None:
    arm = "westeurope/own/arm"
    assert costs(OWN, "network.delete") == {
        f"{arm}.deletes": 1, "westeurope/network.writes": 1, f"{arm}.reads": 2, "westeurope/network.reads": 1,
        "westeurope/compute.reads": 1,
    }  # fmt: skip
    assert costs(OWN, "compute.delete") == {
        f"{arm}.deletes": 1, "westeurope/compute.vm-deletes": 1, f"{arm}.reads": 1, "westeurope/compute.reads": 1,
    }  # fmt: skip
    assert costs(OWN, "disk.delete") == {
        f"{arm}.deletes": 1, "westeurope/compute.disks": 1, f"{arm}.reads": 1, "westeurope/compute.reads": 1,
    }  # fmt: skip
    assert costs(OWN, "network.read") == {f"{arm}.reads": 1, "westeurope/network.reads": 1}
    assert costs(OWN, "compute.read") == {f"{arm}.reads": 1, "westeurope/compute.reads": 1}


def test_a_lane_and_the_calls_in_it_draw_on_the_same_limits() -> None:
    for where in (OWN, NAMED):
        reserved = costs(where, "network.delete")
        made = [draw for call in ("network.delete", "network.read", "compute.read")
                for draw in call_draws(where, call, 0.2)]  # fmt: skip
        spent = dict.fromkeys(reserved, 0.0)
        for draw in made:
            spent[draw.limit.name] += draw.cost
        assert spent == reserved


def test_a_lane_is_named_for_subscription_region_identity_and_operation() -> None:
    assert OWN.lane("network.read") == f"azure/{SUBSCRIPTION}/westeurope/network.read"
    assert NAMED.lane("network.read") == f"azure/{SUBSCRIPTION}/westeurope/{CLIENT}/network.read"
    assert {place_of(where.lane("network.read")) for where in (OWN, NAMED)} == {OWN.budget}


def test_one_spelling_of_a_place_makes_one_lane() -> None:
    loud = AzureNodes(
        subscription=SUBSCRIPTION.upper(), resource_group="MC_Prod", region="westeurope", cluster="prod",
        client_id=CLIENT.upper(),
    )  # fmt: skip
    assert AzureScope.of(loud) == NAMED


@pytest.mark.parametrize(
    "lane", ["aws/1/eu-west-1/ec2.DeleteVolume", "azure/s/westeurope", "azure/1/2/3/4/5", "release"]
)
def test_a_lane_of_another_provider_is_ignored(lane: str) -> None:
    assert LaneLimits(KINDS, 0.2).draws(lane) is None


# ---- calls without limits


def test_every_call_of_every_kind_has_declared_limits() -> None:
    for kind in KINDS:
        assert {kind.reading, kind.removing} <= CALLS.keys(), kind.name
        for operation in (kind.reading, kind.removing):
            assert costs(OWN, operation), kind.name


@pytest.mark.invariant(7)
@pytest.mark.parametrize("field", ["reading", "removing"])
def test_a_kind_whose_limits_are_not_declared_is_not_added(field: str) -> None:
    changes: dict[str, Any] = {"name": "azure-thing", field: "thing.call"}
    unlimited = dataclasses.replace(KINDS[0], **changes)
    with pytest.raises(UndeclaredLimits, match=r"kind azure-thing makes a call 'thing\.call' .*CALLS in .*limits\.py"):
        LaneLimits(KINDS, 0.2).add(unlimited)


@pytest.mark.invariant(7)
def test_a_call_without_declared_limits_is_not_made() -> None:
    with pytest.raises(UndeclaredLimits, match=r"a call 'thing\.call' on Azure without declared limits"):
        call_draws(OWN, "thing.call", 0.2)


@pytest.mark.invariant(7)
def test_a_row_without_a_bucket_declares_no_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CALLS", {**CALLS, "thing.call": CallBuckets("")})
    with pytest.raises(UndeclaredLimits):
        call_draws(OWN, "thing.call", 0.2)
    with pytest.raises(UndeclaredLimits, match="kind azure-thing"):
        LaneLimits(KINDS, 0.2).add(dataclasses.replace(KINDS[0], name="azure-thing", removing="thing.call"))


def test_nothing_is_reserved_in_a_lane_that_no_kind_has() -> None:
    assert LaneLimits(KINDS, 0.2).draws(OWN.lane("thing.call")) == ()


def test_an_added_kind_has_room_for_its_calls_beside_those_of_the_others() -> None:
    lanes = LaneLimits(KINDS, 0.2)
    lanes.draws(OWN.lane("disk.delete"))
    lanes.add(dataclasses.replace(DISK, name="azure-thing", host=VM, reading="network.read"))
    drawn = {draw.limit.name: draw.cost for draw in lanes.draws(OWN.lane("disk.delete")) or ()}
    assert drawn == costs(OWN, "disk.delete") | {"westeurope/own/arm.reads": 2, "westeurope/network.reads": 1}


# ---- what answers tell


def told(call: str, **headers: str) -> list[float | None]:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return [remaining(draw, given) for draw in call_draws(OWN, call, 0.2)]


def test_what_is_left_at_resource_manager_is_reported_for_the_right_kind_of_call() -> None:
    assert told("network.delete", x_ms_ratelimit_remaining_subscription_deletes="199") == [199, None]
    assert told("network.delete", X_Ms_Ratelimit_Remaining_Subscription_Deletes="199") == [199, None]
    assert told("network.delete", x_ms_ratelimit_remaining_subscription_reads="11") == [None, None]
    assert told("compute.read", x_ms_ratelimit_remaining_subscription_reads="11") == [11, None]
    # Of all principals together: another bucket.
    assert told("network.delete", x_ms_ratelimit_remaining_subscription_global_deletes="2999") == [None, None]


def test_what_is_left_of_the_deletes_of_machines_stands_among_other_things() -> None:
    value = "Microsoft.Compute/DeleteVMSubscriptionMaximum;1499,Microsoft.Compute/DeleteVMResource;11"
    assert told("compute.delete", x_ms_ratelimit_remaining_resource=value) == [None, 1499]
    reads = "Microsoft.Compute/GetVMSubscriptionMaximum;3999"
    assert told("compute.delete", x_ms_ratelimit_remaining_resource=reads) == [None, None]


def test_of_resource_graphs_window_only_its_end_is_news() -> None:
    assert told("graph", x_ms_user_quota_remaining="14") == [None]
    assert told("graph", x_ms_user_quota_remaining="0") == [0]


def test_what_is_no_number_tells_nothing() -> None:
    assert told("network.delete", x_ms_ratelimit_remaining_subscription_deletes="many") == [None, None]
    assert told("network.delete") == [None, None]


def test_a_bucket_of_azure_refills_in_the_time_of_the_facts() -> None:
    _, network = call_draws(OWN, "network.delete", 0.0)
    assert network.limit.per == timedelta(minutes=5)
