"""Lists of machines and interfaces, by Resource Graph and by the providers: everything of the cluster, page by page.
An incomplete list is an error, never an empty list."""

import uuid
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta

import msgspec
import pytest

from service.contract import Draw, Limit
from service.engine.epoch import EpochTracker
from service.engine.installation import Installation
from service.settings import Settings
from service.sources.karpenter_azure import AKS_MACHINE_TAG, CLUSTER_TAG
from standins.azure import REGION, AzureFault, BucketSize, Nic, ResourceGroup
from tests.integration.azure_removal import TAGS, AzureRemovalFixture, azure, own_api, removing
from tests.redis_servers import TestServer
from workers.collectors.karpenter_azure.listing import AzureLister, ListingMethod
from workers.handlers.components import CallBudgets
from workers.providers.azure.call_meters import BudgetCallMeter
from workers.providers.azure.errors import NO_ROOM, AzureError
from workers.providers.azure.kinds import NIC, VM, AzureKind
from workers.providers.azure.limits import call_draws
from workers.providers.azure.model import AzureResource
from workers.runtime.call_budget import CallBudget

__all__ = ["azure", "own_api", "removing"]

WAYS: tuple[ListingMethod, ...] = ("graph", "provider")
BOTH = pytest.mark.parametrize("way", WAYS)


async def pages(
    removing: AzureRemovalFixture,
    kind: AzureKind,
    way: ListingMethod,
    quota: CallBudgets | None = None,
    cluster: str = "prod",
) -> list[list[AzureResource]]:
    lister = AzureLister(lambda where: removing.calls(BudgetCallMeter(where, quota), where))
    return [page async for page in lister.pages(kind, removing.where, cluster, way)]


async def listed(removing: AzureRemovalFixture, kind: AzureKind, way: ListingMethod) -> dict[str, AzureResource]:
    return {found.name: found for page in await pages(removing, kind, way) for found in page}


async def refused(
    removing: AzureRemovalFixture, kind: AzureKind, way: ListingMethod, quota: CallBudgets | None = None
) -> AzureError:
    with pytest.raises(AzureError) as caught:
        await pages(removing, kind, way, quota)
    return caught.value


@BOTH
async def test_each_is_listed_with_what_it_is_judged_by(removing: AzureRemovalFixture, way: ListingMethod) -> None:
    machine = await removing.vm("aks-a", nics=("aks-a",))
    used = await removing.nic("aks-a", vm="aks-a")
    alone = await removing.nic("aks-b", state="Deleting")
    (vm,) = (await listed(removing, VM, way)).values()
    assert (vm.kind, vm.guid, vm.tags, vm.state) == (VM.name, machine, TAGS, "Succeeded")
    nics = await listed(removing, NIC, way)
    assert {name: one.guid for name, one in nics.items()} == {"aks-a": used, "aks-b": alone}
    # Whatever case a row happens to have its ids in.
    assert nics["aks-a"].used_by == removing.where.id(VM.type, "aks-a")
    assert (nics["aks-b"].used_by, nics["aks-b"].going) == ("", True)


@BOTH
async def test_both_ways_show_the_same_with_the_same_ids_in_one_case(
    removing: AzureRemovalFixture, way: ListingMethod
) -> None:
    await removing.nic("aks-a", guid="ABCDEF00-0000-4000-8000-000000000001")
    (found,) = (await listed(removing, NIC, way)).values()
    assert found.guid == "abcdef00-0000-4000-8000-000000000001"


@BOTH
async def test_only_what_is_the_clusters_in_this_group_is_listed(
    removing: AzureRemovalFixture, way: ListingMethod
) -> None:
    await removing.nic("aks-a")
    await removing.nic("aks-b", tags={**TAGS, CLUSTER_TAG: "staging"})
    await removing.nic("aks-c", tags={**TAGS, AKS_MACHINE_TAG: "c"})
    await removing.nic("aks-d", tags={})
    await removing.nic("aks-e", group="mc_other")
    await removing.azure.make(Nic(name="aks-f", tags=TAGS, subscription=str(uuid.uuid4())))
    assert set(await listed(removing, NIC, way)) == {"aks-a"}


@BOTH
async def test_a_cluster_of_any_name_is_asked_for_by_it(removing: AzureRemovalFixture, way: ListingMethod) -> None:
    await removing.nic("aks-a", tags={**TAGS, CLUSTER_TAG: "it is | where 1"})
    (page,) = await pages(removing, NIC, way, cluster="it is | where 1")
    assert [one.name for one in page] == ["aks-a"]


@BOTH
async def test_many_come_page_by_page(removing: AzureRemovalFixture, way: ListingMethod) -> None:
    made = [Nic(name=f"aks-{number}", tags=TAGS, subscription=removing.subscription) for number in range(2500)]
    await removing.azure.make(*made)
    found = await pages(removing, NIC, way)
    assert [len(page) for page in found] == ([1000, 1000, 500] if way == "graph" else [100] * 25)
    assert {one.name for page in found for one in page} == {one.name for one in made}


@BOTH
async def test_an_empty_group_is_empty_and_to_the_providers_one_that_is_not_there_is_an_error(
    removing: AzureRemovalFixture, way: ListingMethod
) -> None:
    assert await listed(removing, NIC, way) == {}
    assert await listed(removing, VM, way) == {}
    removing.where = msgspec.structs.replace(removing.where, group="mc_none")
    if way == "provider":
        assert (await refused(removing, NIC, way)).what == "nowhere"


# ---- what is not whole


@BOTH
@pytest.mark.parametrize(
    ("fault", "what"),
    [
        (AzureFault(what="deny"), "denied"),
        (AzureFault(what="throttle"), "throttled"),
        (AzureFault(what="html", status=200), "unreadable"),
        (AzureFault(what="html", status=502), "unreadable"),
        (AzureFault(what="error", status=200, code="Odd", message="a body of another shape"), "unreadable"),
        (AzureFault(what="error", status=500, code="InternalServerError"), "unreachable"),
        (AzureFault(what="close"), "unreachable"),
    ],
)
async def test_a_list_that_fails_is_an_error_and_never_empty(
    removing: AzureRemovalFixture, way: ListingMethod, fault: AzureFault, what: str
) -> None:
    await removing.nic("aks-a")
    await removing.azure.set_faults(fault)
    for kind in (VM, NIC):
        assert (await refused(removing, kind, way)).what == what


@BOTH
async def test_a_later_page_that_fails_is_an_error_too(removing: AzureRemovalFixture, way: ListingMethod) -> None:
    made = [Nic(name=f"aks-{number}", tags=TAGS, subscription=removing.subscription) for number in range(1500)]
    await removing.azure.make(*made)
    lister = AzureLister(lambda where: removing.calls(BudgetCallMeter(where, None), where))
    found = lister.pages(NIC, removing.where, "prod", way)
    assert await anext(found)
    await removing.azure.set_faults(AzureFault(what="throttle"))
    with pytest.raises(AzureError) as caught:
        await anext(found)
    assert caught.value.what == "throttled"


@pytest.mark.invariant(7)
async def test_rows_that_vanish_between_pages_make_the_list_incomplete(removing: AzureRemovalFixture) -> None:
    made = [Nic(name=f"aks-{number:04}", tags=TAGS, subscription=removing.subscription) for number in range(1001)]
    await removing.azure.make(*made)
    lister = AzureLister(lambda where: removing.calls(BudgetCallMeter(where, None), where))
    found = lister.pages(NIC, removing.where, "prod", "graph")
    assert len(await anext(found)) == 1000
    await removing.azure.remove("nic", "aks-1000", subscription=removing.subscription)
    with pytest.raises(AzureError) as caught:
        [page async for page in found]
    assert (caught.value.what, caught.value.code) == ("unreadable", "Incomplete")
    assert "1000 of 1001 rows came" in str(caught.value)


# ---- what lists draw


@pytest.fixture
async def installation(embedded_server: TestServer) -> AsyncIterator[Installation]:
    made = Installation(Settings(redis=embedded_server.settings()))
    await EpochTracker(made.shards).check()
    try:
        yield made
    finally:
        await made.aclose()


class RecordedCallBudget(CallBudget):
    """The shared budgets, and what was said to them."""

    def __init__(self, installation: Installation) -> None:
        super().__init__(installation.budgets, 0.1)
        self.drawn: list[tuple[str, ...]] = []
        self.told: list[tuple[str, float | None]] = []
        self.paused: list[tuple[str, timedelta | None]] = []

    async def draw(self, place: str, draws: Sequence[Draw], *, urgent: bool = True) -> timedelta:
        assert not urgent
        wait = await super().draw(place, draws, urgent=urgent)
        if not wait:
            self.drawn.append(tuple(draw.limit.name for draw in draws))
        return wait

    async def answered(self, place: str, limit: Limit, left: float | None) -> None:
        self.told.append((limit.name, left))
        await super().answered(place, limit, left)

    async def refused(self, place: str, limit: Limit, wait: timedelta | None, others: Sequence[Limit] = ()) -> None:
        self.paused.append((limit.name, wait))
        await super().refused(place, limit, wait, others)


@pytest.fixture
def quota(installation: Installation) -> RecordedCallBudget:
    return RecordedCallBudget(installation)


async def test_each_page_draws_for_itself_and_tells_what_its_answer_said(
    removing: AzureRemovalFixture, quota: RecordedCallBudget
) -> None:
    await removing.azure.behave(network_page=2, compute_page=2)
    for number in range(3):
        await removing.nic(f"aks-{number}")
    assert len(await pages(removing, NIC, "provider", quota)) == 2
    arm, network, compute = (f"{REGION}/{name}" for name in ("own/arm.reads", "network.reads", "compute.reads"))
    assert quota.drawn == [(arm, network)] * 2
    assert quota.told == [(arm, 249.0), (network, None), (arm, 248.0), (network, None)]
    await pages(removing, VM, "provider", quota)
    assert (quota.drawn[-1], quota.told[-2:]) == ((arm, compute), [(arm, 247.0), (compute, None)])
    await pages(removing, NIC, "graph", quota)
    assert (quota.drawn[-1], quota.told[-1]) == (("own/graph.queries",), ("own/graph.queries", None))


async def test_a_refused_page_pauses_the_limit_for_everybody(
    removing: AzureRemovalFixture, quota: RecordedCallBudget
) -> None:
    await removing.azure.set_faults(AzureFault(what="throttle"))
    await refused(removing, NIC, "graph", quota)
    assert quota.paused == [("own/graph.queries", timedelta(seconds=5))]
    draws = call_draws(removing.where, "graph", 0.2)
    assert await quota.draw(removing.where.budget, draws, urgent=False) > timedelta(seconds=3)
    await refused(removing, NIC, "provider", quota)
    assert quota.paused[-1] == (f"{REGION}/own/arm.reads", timedelta(seconds=1))


async def test_a_page_waits_for_room_and_goes_on_then(removing: AzureRemovalFixture, quota: RecordedCallBudget) -> None:
    await removing.nic("aks-a")
    (draw,) = call_draws(removing.where, "graph", 0.2)
    await quota.refused(removing.where.budget, draw.limit, timedelta(milliseconds=300))
    (found,) = await pages(removing, NIC, "graph", quota)
    assert [one.name for one in found] == ["aks-a"]


async def test_who_would_have_to_wait_too_long_gives_up_and_nothing_is_asked(
    removing: AzureRemovalFixture, quota: RecordedCallBudget
) -> None:
    (draw,) = call_draws(removing.where, "graph", 0.2)
    await quota.refused(removing.where.budget, draw.limit, timedelta(minutes=10))
    removing.since = len(await removing.azure.journal())
    error = await refused(removing, NIC, "graph", quota)
    assert (error.what, error.code) == ("throttled", NO_ROOM)
    assert error.after is not None
    assert error.after > timedelta(minutes=5)
    assert removing.subscription in str(error)
    assert await removing.asked() == []


async def test_patience_is_for_all_waits_together(removing: AzureRemovalFixture) -> None:
    class RefusingCallBudget(RecordedCallBudget):
        def __init__(self) -> None:
            self.asked = 0

        async def draw(self, place: str, draws: Sequence[Draw], *, urgent: bool = True) -> timedelta:
            self.asked += 1
            return timedelta(milliseconds=4)

    never = RefusingCallBudget()
    meter = BudgetCallMeter(removing.where, never, timedelta(milliseconds=10))
    with pytest.raises(AzureError):
        await meter.draw(call_draws(removing.where, "graph", 0.2))
    assert never.asked == 3


async def test_the_queries_of_a_sweep_are_never_throttled_by_resource_graph(
    removing: AzureRemovalFixture, quota: RecordedCallBudget
) -> None:
    """As fast as they may: fifteen in a window, and no more."""
    await removing.azure.set_rate(1.0)
    for _ in range(8):
        await pages(removing, NIC, "graph", quota)
    assert quota.paused == []


async def test_what_others_used_up_is_learnt_from_an_answer(
    removing: AzureRemovalFixture, quota: RecordedCallBudget
) -> None:
    await removing.azure.declare(ResourceGroup(subscription=removing.subscription))
    await removing.azure.behave(arm_reads=BucketSize(30, 1.0))
    await pages(removing, VM, "provider", quota)
    # Of 30 are 29 left, and 50 are kept for others.
    draw, _ = call_draws(removing.where, "compute.read", 0.2)
    assert await quota.draw(removing.where.budget, (draw,), urgent=False) > timedelta(0)
