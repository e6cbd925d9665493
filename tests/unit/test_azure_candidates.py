"""Orphan candidates of a resource group's lists; and the name under which the guard counts orphans."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from service.policy.guard import held_reason, orphans_guard_name, split_guard_name
from service.settings import GuardSettings
from service.sources.karpenter_azure import AzureNodes
from workers.collectors.karpenter_azure.candidates import gained_machine, gather, is_other, orphan_ids
from workers.handlers.orphans import OrphanCandidate, OrphanCandidates
from workers.providers.azure.kinds import NIC, VM, AzureKind
from workers.providers.azure.model import AzureResource

HERE = AzureNodes(
    subscription="0aaaaaaa-0000-4000-8000-000000000001", resource_group="g", region="westeurope", cluster="prod"
)


class ListedResources:
    """Pages that were read."""

    def __init__(self, *found: AzureResource) -> None:
        self._found = found

    async def pages(self, kind: AzureKind, *_: Any) -> AsyncIterator[list[AzureResource]]:
        yield [one for one in self._found if one.kind == kind.name]


def vm(claim: str, **given: str) -> AzureResource:
    named: dict[str, Any] = {"name": f"aks-{claim}", "guid": f"v-{claim}", **given}
    return AzureResource(kind=VM.name, tags={}, **named)


def nic(claim: str, **given: str) -> AzureResource:
    named: dict[str, Any] = {"name": f"aks-{claim}", "guid": f"n-{claim}", **given}
    return AzureResource(kind=NIC.name, tags={}, **named)


async def gathered(*found: AzureResource, place: int = 0, into: OrphanCandidates | None = None) -> OrphanCandidates:
    candidates = into or OrphanCandidates()
    lists: Any = ListedResources(*found)
    await gather(candidates, lists, HERE, place, "graph", lambda _words, _count: None)
    return candidates


def candidate(vm: str, nic: str, place: int) -> OrphanCandidate:
    return OrphanCandidate(orphan_ids(vm, nic), place)


async def test_a_machine_and_an_interface_without_one_are_candidates_of_their_claim() -> None:
    found = await gathered(vm("a"), nic("a"), nic("b"))
    assert dict(found) == {"a": candidate("v-a", "n-a", 0), "b": candidate("", "n-b", 0)}
    assert [one.ids for _, one in found] == ["v-a n-a", " n-b"]
    assert (len(found), found.listed) == (2, 3)


async def test_what_is_being_deleted_or_in_use_or_not_named_after_a_claim_is_no_candidate() -> None:
    found = await gathered(
        vm("going", state="Deleting"), nic("used", used_by="/vm"), nic("odd", name="k8s-odd"), nic("lost", guid="")
    )
    assert dict(found) == {}
    assert found.listed == 4
    # But it is there, under its name.
    assert found.names() == {"going", "used", "lost"}


async def test_an_interface_that_its_machine_has_goes_with_that() -> None:
    found = await gathered(vm("a"), nic("a", used_by="/vm"))
    assert dict(found) == {"a": candidate("v-a", "", 0)}
    assert found.names() == {"a"}


async def test_one_name_in_two_groups_is_two_candidates_and_one_claim_speaks_for_both() -> None:
    found = await gathered(nic("a"), place=1, into=await gathered(vm("a")))
    assert sorted(found) == [("a", candidate("", "n-a", 1)), ("a", candidate("v-a", "", 0))]
    assert len(found) == 2
    found.remove("a")
    found.remove("never")
    assert (len(found), found.names()) == (0, set())


@pytest.mark.parametrize(
    ("before", "now", "other", "gained"),
    [
        ("v n", "v n", False, False),
        ("v n", " n", False, False),
        (" n", "v n", False, True),
        (" n", "v ", False, True),
        ("v n", "w n", True, False),
        (" n", " m", True, False),
        ("", "v n", False, False),
    ],
)
def test_only_another_id_is_another_resource_and_a_new_machine_is_more(
    before: str, now: str, other: bool, gained: bool
) -> None:
    assert (is_other(before, now), gained_machine(before, now)) == (other, gained)


async def test_names_are_compared_as_claims_have_them() -> None:
    assert (await gathered(nic("x", name="AKS-Pool-A"))).names() == {"pool-a"}


# ---- the guard's name for them


def test_orphans_are_counted_under_a_name_of_their_own() -> None:
    assert split_guard_name(orphans_guard_name("nodes")) == ("nodes", True)
    assert split_guard_name("nodes") == ("nodes", False)
    said = held_reason(orphans_guard_name("nodes"), GuardSettings(most=7), None)
    assert "more than 7 deletions of source nodes.orphans" in said
    assert "`knell guard release nodes.orphans`" in said
