"""Reads of the stand-in for Azure: lists in pages, and Resource Graph in a part of its language, late and in mixed
case, also with very many resources."""

from collections.abc import AsyncIterator

import aiohttp
import msgspec
import pytest

from standins.azure import GROUP, SUBSCRIPTION, Disk, LocalAzure, Nic, Vm, id_of
from tests.azure import ArmClients, arm_on, refusal

pytestmark = pytest.mark.long

NICS = "Resources | where type =~ 'Microsoft.Network/networkInterfaces'"
OTHER = "00000000-0000-4000-8000-000000000002"


@pytest.fixture
async def azure() -> AsyncIterator[LocalAzure]:
    """Its clock stands until a test moves it."""
    async with LocalAzure() as made:
        await made.set_rate(0)
        await made.behave(read_quotas=False)
        yield made


@pytest.fixture
async def arm(azure: LocalAzure) -> AsyncIterator[ArmClients]:
    async with arm_on(azure) as made:
        yield made


async def found(arm: ArmClients, query: str, *subscriptions: str) -> list[str]:
    answer = await arm.query(f"{query} | project name | order by name asc", *subscriptions)
    return [one["name"] for one in answer.data]


async def test_a_list_is_of_one_group_or_one_subscription_and_comes_in_pages(
    azure: LocalAzure, arm: ArmClients
) -> None:
    await azure.make(*(Nic(name=f"aks-{number:03d}") for number in range(250)))
    await azure.make(Nic(name="aks-x", group="mc_pool2"), Nic(name="aks-y", subscription=OTHER), Vm(name="aks-000"))
    names = [one.name async for one in arm.network.network_interfaces.list("MC_POOL")]
    assert names == [f"aks-{number:03d}" for number in range(250)]
    assert len(await azure.requests("nic.list")) == 3
    everywhere = [one.name async for one in arm.network.network_interfaces.list_all()]
    assert everywhere == [*names, "aks-x"]
    await azure.behave(network_page=1000)
    start = len(await azure.journal())
    assert len([one async for one in arm.network.network_interfaces.list(GROUP)]) == 250
    assert len(await azure.requests("nic.list", start)) == 1
    assert [one.name async for one in arm.compute.virtual_machines.list_all()] == ["aks-000"]


async def test_what_goes_between_two_pages_shifts_nothing(azure: LocalAzure, arm: ArmClients) -> None:
    await azure.make(*(Nic(name=f"aks-{number}") for number in range(6)))
    await azure.behave(network_page=2)
    pages = arm.network.network_interfaces.list(GROUP).by_page()
    seen = [one.name async for one in await anext(pages)]
    for gone in ("aks-0", "aks-1", "aks-2"):
        await azure.remove("nic", gone)
    async for page in pages:
        seen += [one.name async for one in page]
    assert seen == ["aks-0", "aks-1", "aks-3", "aks-4", "aks-5"]


async def test_a_query_chooses_by_type_group_subscription_and_tags(azure: LocalAzure, arm: ArmClients) -> None:
    await azure.make(
        Nic(name="a", tags={"pool": "one", "cluster": "c"}),
        Nic(name="b", tags={"pool": "ONE"}),
        Nic(name="c", tags={"pool": ""}),
        Nic(name="d", group="elsewhere"),
        Nic(name="e", subscription=OTHER),
        Vm(name="v", tags={"pool": "one"}),
        Disk(name="w"),
    )
    assert await found(arm, NICS) == ["a", "b", "c", "d", "e"]
    assert await found(arm, NICS, SUBSCRIPTION) == ["a", "b", "c", "d"]
    assert await found(arm, f"{NICS} | where subscriptionId =~ '{OTHER}'") == ["e"]
    assert await found(arm, f'{NICS} | where resourceGroup =~ "MC_Pool" and tags["pool"] =~ "one"') == ["a", "b"]
    assert await found(arm, f"{NICS} | where tags['pool'] == 'one'") == ["a"]
    assert await found(arm, f"{NICS} | where isnotempty(tags['pool'])") == ["a", "b"]
    untagged = f"{NICS} | where isempty(tags.cluster) | where resourceGroup == 'mc_pool'"
    assert await found(arm, untagged, SUBSCRIPTION) == ["b", "c"]
    kinds = "'microsoft.compute/VIRTUALMACHINES', 'microsoft.compute/disks'"
    assert await found(arm, f"resources | where type in~ ({kinds})") == ["v", "w"]
    assert await found(arm, "Resources | where type == 'microsoft.compute/disks'") == ["w"]
    # Rows have types in small letters.
    assert await found(arm, "Resources | where type == 'Microsoft.Compute/disks'") == []


async def test_a_query_projects_orders_and_limits(azure: LocalAzure, arm: ArmClients) -> None:
    await azure.make(Nic(name="b"), Nic(name="a"), Vm(name="m", nics=("a",)), Nic(name="c"))
    answer = await arm.query(
        f"{NICS} | project name, state=properties.provisioningState, vm=properties.virtualMachine.id, "
        "tags['k'] | order by name desc | take 2"
    )
    assert answer.data == [
        {"name": "c", "state": "Succeeded", "vm": None, "tags_k": None},
        {"name": "b", "state": "Succeeded", "vm": None, "tags_k": None},
    ]
    (first,) = (await arm.query(f"{NICS} | order by id asc | limit 1")).data
    assert first["properties"]["virtualMachine"]["id"].lower() == id_of(SUBSCRIPTION, GROUP, "vm", "m").lower()
    assert (first["type"], first["resourceGroup"]) == ("microsoft.network/networkinterfaces", GROUP)


@pytest.mark.parametrize(
    "query",
    [
        "ResourceContainers",
        f"{NICS} | summarize count()",
        f"{NICS} | where name contains 'a'",
        f"{NICS} | where name == 'a' or name == 'b'",
        f"{NICS} | project name | where name == 'a'",
        f"{NICS} | where name =~",
        f"{NICS} | join (Resources)",
        "",
    ],
)
async def test_a_query_that_is_not_understood_is_refused_not_guessed(
    azure: LocalAzure, arm: ArmClients, query: str
) -> None:
    await azure.make(Nic(name="a"))
    with refusal("BadRequest", 400) as caught:
        await arm.query(query)
    assert [one.code for one in caught[0].error.details] == ["InvalidQuery"]  # type: ignore[union-attr]


async def test_pages_of_a_query_go_on_with_a_token_and_end(azure: LocalAzure, arm: ArmClients) -> None:
    await azure.make(*(Nic(name=f"aks-{number:04d}") for number in range(2300)))
    first = await arm.query(NICS, top=5000)
    assert (first.count, first.total_records) == (1000, 2300)
    await azure.remove("nic", "aks-0000")
    await azure.remove("nic", "aks-1500")
    second = await arm.query(NICS, skip_token=first.skip_token)
    third = await arm.query(NICS, skip_token=second.skip_token)
    assert third.skip_token is None
    rows = [one["name"] for page in (first, second, third) for one in page.data]
    assert rows == [f"aks-{number:04d}" for number in range(2300) if number != 1500]
    with refusal("BadRequest", 400):
        await arm.query(f"{NICS} | limit 5", skip_token=first.skip_token)


async def test_resource_graph_sees_what_comes_changes_and_goes_late(azure: LocalAzure, arm: ArmClients) -> None:
    states = f"{NICS} | project name, state=properties.provisioningState"

    async def shown() -> list[tuple[str, str]]:
        return [(one["name"], one["state"]) for one in (await arm.query(states)).data]

    await azure.behave(graph_lag=30)
    await azure.make(Nic(name="a"))
    await azure.advance(29)
    assert await shown() == []
    await azure.advance(2)
    assert await shown() == [("a", "Succeeded")]
    await arm.delete("a")
    await azure.advance(4)
    assert (await azure.there("nic"), await shown()) == ([], [("a", "Succeeded")])
    await azure.advance(26.2)
    assert await shown() == [("a", "Deleting")]
    await azure.advance(4)
    assert await shown() == []


async def test_some_names_are_never_shown_by_resource_graph(azure: LocalAzure, arm: ArmClients) -> None:
    await azure.behave(graph_omits=["A"])
    await azure.make(Nic(name="a"), Nic(name="b"))
    assert await found(arm, NICS) == ["b"]
    assert [one.name async for one in arm.network.network_interfaces.list(GROUP)] == ["a", "b"]


async def test_resource_graph_spells_ids_in_mixed_case_and_all_are_the_same_id(
    azure: LocalAzure, arm: ArmClients
) -> None:
    await azure.make(*(Nic(name=f"aks-{number}") for number in range(30)))
    ids = [one["id"] for one in (await arm.query(f"{NICS} | project id")).data]
    assert {one.lower() for one in ids} == {id_of(SUBSCRIPTION, GROUP, "nic", f"aks-{n}").lower() for n in range(30)}
    assert {one.split("/")[4] for one in ids} == {"mc_pool", "MC_POOL"}
    await azure.behave(graph_cases=False)
    ids = [one["id"] for one in (await arm.query(f"{NICS} | project id")).data]
    assert sorted(ids) == sorted(id_of(SUBSCRIPTION, GROUP, "nic", f"aks-{n}") for n in range(30))


async def test_eighty_thousand_interfaces_are_made_and_paged_through(azure: LocalAzure, arm: ArmClients) -> None:
    await azure.make(*(Nic(name=f"aks-{number:05d}", tags={"pool": "one"}) for number in range(80_000)))
    query = f"{NICS} | where resourceGroup =~ 'mc_pool' | where tags['pool'] =~ 'one' | project id, name"
    first = await arm.query(query)
    assert (first.count, first.total_records) == (1000, 80_000)
    await azure.behave(network_page=1000)
    front = f"{azure.address}/subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}/providers"
    async with (
        aiohttp.ClientSession(headers={"Authorization": "Bearer tester"}) as client,
        client.get(f"{front}/Microsoft.Network/networkInterfaces") as response,
    ):
        assert len(msgspec.json.decode(await response.read())["value"]) == 1000
    second = await arm.query(query, skip_token=first.skip_token)
    assert [one["name"] for one in second.data] == [f"aks-{number:05d}" for number in range(1000, 2000)]
