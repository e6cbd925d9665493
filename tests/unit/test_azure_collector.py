"""Collector for Azure: which resources a NodeClaim may have left, in which groups, and when there are none."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from service.contract import VERSION, Hold, Job, JobRecord, Plan, Target, Undecodable
from service.contract.kept import KeepDecision
from service.settings import SourceSettings
from service.sources.declaration import Unrecognisable
from service.sources.karpenter_azure import (
    KARPENTER_AZURE,
    NODECLAIMS,
    AzureNodes,
    AzureSettings,
    NodeClaimFacts,
    read_node_claim,
)
from service.sources.registry import source_named
from workers.collectors.karpenter_azure.claim import KarpenterClaim
from workers.collectors.karpenter_azure.collector import KarpenterCollector, OrphanIds
from workers.collectors.karpenter_azure.judge import KarpenterJudge
from workers.collectors.karpenter_azure.node_protection import Protection
from workers.handlers.collector import ObjectFacts, ObjectRef
from workers.handlers.kept_resources import NoKeptRecords
from workers.handlers.protocol import NotCleared
from workers.providers.azure.claims import Consents
from workers.providers.azure.kinds import KINDS

ONE = "0aaaaaaa-0000-4000-8000-000000000001"
TWO = "0bbbbbbb-0000-4000-8000-000000000002"
KIND_NAMES = [kind.name for kind in KINDS]
MADE = 1_700_000_000_000
HERE = AzureNodes(subscription=ONE, resource_group="MC_prod", region="westeurope", cluster="prod")
THERE = AzureNodes(subscription=TWO, resource_group="MC_prod", region="northeurope", cluster="prod", tags={"team": "a"})


def collector(*places: AzureNodes, **settings: Any) -> KarpenterCollector:
    nodes = {"nodes": places} if places else {}
    return KarpenterCollector(AzureSettings(nodes=nodes, **settings))


def facts(recognises: str = "", *, name: str = "pool-a", **changes: Any) -> ObjectFacts:
    ref = ObjectRef(
        deletion="d", source="nodes", cluster="c", resource=NODECLAIMS, uid="u", name=name,
        orphan=changes.pop("orphan", False),
    )  # fmt: skip
    declared = SourceSettings(resource=NODECLAIMS, collector=KARPENTER_AZURE, mode="observe")
    return ObjectFacts(
        ref=ref, settings=declared, labels={}, annotations={}, namespace_annotations={}, recognises=recognises,
        **changes,
    )  # fmt: skip


def machine(subscription: str = ONE, group: str = "MC_prod", name: str = "aks-pool-a") -> str:
    provider = "Microsoft.Compute/virtualMachines"
    return f"azure:///subscriptions/{subscription}/resourceGroups/{group}/providers/{provider}/{name}"


def kept(provider_id: str = "", group: str = "karpenter.azure.com") -> str:
    return msgspec.json.encode(NodeClaimFacts(group, provider_id)).decode()


def claimed(target: Target) -> KarpenterClaim:
    return msgspec.json.decode(target.data, type=KarpenterClaim)


async def planned(made: KarpenterCollector, found: ObjectFacts) -> list[Target]:
    plan = await made.collect(found)
    assert isinstance(plan, Plan), plan
    return list(plan.targets)


async def held(made: KarpenterCollector, found: ObjectFacts) -> Hold:
    hold = await made.collect(found)
    assert isinstance(hold, Hold), hold
    return hold


async def test_a_claim_leaves_a_machine_first_then_an_interface_then_a_disk_and_an_address() -> None:
    targets = await planned(collector(HERE), facts(kept(machine())))
    assert [target.kind for target in targets] == KIND_NAMES
    assert [target.stage for target in targets] == [0, 1, 2, 2]
    assert {target.id for target in targets} == {"aks-pool-a"}
    assert [target.lane.rpartition("/")[2] for target in targets] == [
        "compute.read", "network.read", "compute.read", "network.read",
    ]  # fmt: skip


async def test_karpenter_has_a_grace_for_its_own_work_before_the_first_look() -> None:
    targets = await planned(collector(HERE, grace=timedelta(seconds=7)), facts(kept(machine())))
    assert [target.after for target in targets] == [timedelta(seconds=7), *[timedelta(0)] * 3]


async def test_whose_it_is_travels_with_each_target() -> None:
    (first, *_) = await planned(collector(THERE), facts(kept()))
    whose = claimed(first)
    assert (whose.collector, whose.claim, whose.cluster, whose.source) == (KARPENTER_AZURE, "pool-a", "prod", "nodes")
    assert (whose.where.subscription, whose.where.group, whose.where.region) == (TWO, "mc_prod", "northeurope")
    assert whose.judged == ""
    # What its tags must say is read in the settings at every turn.
    assert "team" not in first.data


async def test_a_claim_that_was_launched_names_its_place_in_whatever_case() -> None:
    for spelt in (machine(), machine().lower(), machine(TWO).upper().replace("AZURE://", "azure://")):
        targets = await planned(collector(HERE, THERE), facts(kept(spelt)))
        assert len(targets) == len(KINDS)
        assert {claimed(target).where.subscription for target in targets} == {TWO if TWO[:8] in spelt.lower() else ONE}


async def test_a_claim_that_never_launched_may_have_left_something_in_any_place() -> None:
    targets = await planned(collector(HERE, THERE), facts(kept()))
    assert [(target.chain, target.kind) for target in targets] == [
        (chain, kind) for chain in ("main", "main-2") for kind in KIND_NAMES
    ]
    assert {claimed(target).where.subscription for target in targets} == {ONE, TWO}
    # Each begins for itself, and neither before the grace is over.
    assert [target.after > timedelta(0) for target in targets] == [True, False, False, False] * 2


@pytest.mark.parametrize("elsewhere", [machine("0ccccccc-0000-4000-8000-000000000003"), machine(group="MC_other")])
async def test_a_machine_where_the_settings_know_nothing_of_is_held(elsewhere: str) -> None:
    hold = await held(collector(HERE, THERE), facts(kept(elsewhere)))
    assert hold.again
    assert "azure.nodes does not name" in hold.reason


@pytest.mark.parametrize(
    ("recognises", "why"),
    [
        (kept(machine(name="aks-pool-vmss000001")), "a machine of AKS"),
        (kept("aws:///eu-west-1a/i-0123"), "no virtual machine of Karpenter's"),
        (kept(machine() + "/extensions/one"), "no virtual machine of Karpenter's"),
        (kept(machine().replace("virtualMachines", "virtualMachineScaleSets")), "no virtual machine of Karpenter's"),
        (kept(group="karpenter.k8s.aws"), "its node class is of karpenter.k8s.aws"),
        (kept(machine(), group="karpenter.k8s.aws"), "its node class is of karpenter.k8s.aws"),
    ],
)
async def test_what_is_not_karpenters_on_azure_leaves_nothing_to_do(recognises: str, why: str) -> None:
    plan = await collector(HERE).collect(facts(recognises))
    assert isinstance(plan, Plan)
    assert list(plan.targets) == []
    assert why in plan.why


async def test_a_namesake_protects_the_name() -> None:
    plan = await collector(HERE).collect(facts(kept(machine()), namesake=True))
    assert isinstance(plan, Plan)
    assert (list(plan.targets), "another NodeClaim is named pool-a" in plan.why) == ([], True)


async def test_without_a_word_on_where_nodes_are_it_is_held() -> None:
    hold = await held(collector(), facts(kept()))
    assert hold.again
    assert "azure.nodes does not say where the nodes of source nodes are" in hold.reason


async def test_an_undecodable_inventory_record_is_held() -> None:
    assert (await held(collector(HERE), facts("{"))).again


async def test_a_claim_of_which_nothing_was_kept_is_looked_for_by_name() -> None:
    assert len(await planned(collector(HERE), facts(""))) == len(KINDS)


# ---- what a sweep saw


def sighted(**changes: str) -> str:
    return msgspec.json.encode(OrphanIds(**{"subscription": ONE, "group": "mc_prod", **changes})).decode()


async def test_an_orphaned_machine_takes_all_with_it_and_goes_by_the_id_that_was_judged() -> None:
    targets = await planned(collector(HERE), facts(sighted(vm="v", nic="n"), orphan=True))
    assert [target.kind for target in targets] == KIND_NAMES
    assert [claimed(target).judged for target in targets] == ["v", "n", "", ""]
    lanes = [target.lane.rpartition("/")[2] for target in targets]
    # What was judged goes straight to its removal, which reads it again.
    assert lanes == ["compute.delete", "network.delete", "compute.read", "network.read"]
    assert {target.after for target in targets} == {timedelta(0)}


async def test_an_orphaned_interface_is_all_that_was_seen() -> None:
    (target,) = await planned(collector(HERE), facts(sighted(nic="n"), orphan=True))
    assert (target.kind, claimed(target).judged) == ("azure-network-interface", "n")


@pytest.mark.parametrize("changes", [{"subscription": TWO}, {"group": "mc_other"}, {"cluster": "staging"}])
async def test_an_orphan_in_a_place_that_the_settings_do_not_name_is_held(changes: dict[str, str]) -> None:
    hold = await held(collector(HERE), facts(sighted(vm="v", **changes), orphan=True))
    assert hold.again
    assert "azure.nodes names no group" in hold.reason


async def test_of_two_clusters_in_one_group_the_one_that_was_seen_is_meant() -> None:
    blue = msgspec.structs.replace(HERE, cluster="blue")
    for cluster in ("prod", "blue"):
        targets = await planned(collector(HERE, blue), facts(sighted(nic="n", cluster=cluster), orphan=True))
        assert {claimed(target).cluster for target in targets} == {cluster}


@pytest.mark.parametrize("data", ["", "{", '{"subscription": 1}', '{"group": "g"}'])
async def test_an_undecodable_orphan_is_held(data: str) -> None:
    assert (await held(collector(HERE), facts(data, orphan=True))).again


# ---- right before a call


class KeptInOneGroup(NoKeptRecords):
    """Decisions to keep resources in the group of HERE, by uids that a test sets."""

    def __init__(self) -> None:
        self.uids: list[str] = []
        self.unreadable = False

    async def decisions(self, place: str, name: str) -> Sequence[KeepDecision]:
        if self.unreadable:
            raise Undecodable("it can't be read")
        uids = self.uids if place == f"azure/{ONE}/mc_prod" else []
        return [
            KeepDecision(
                v=VERSION, place=place, name=name, object=f"{NODECLAIMS} {name}", uid=uid, source="nodes",
                why="retain", at=1,
            )
            for uid in uids
        ]  # fmt: skip


class NothingProtected:
    async def protects(self, source: str, machine: str, node: str) -> Protection | None:
        del source, machine, node
        return None


def check_consent(consents: Consents, target: Target, **forged: Any) -> None:
    record = JobRecord(v=VERSION, stage=0, lane=target.lane, kind=target.kind, target=target.id, data=target.data)
    claim = msgspec.structs.replace(claimed(target), **forged)
    consents.check(Job("d#1.0", 7, record), claim, KarpenterJudge(AzureSettings(), NothingProtected()))


LAUNCHED = facts(msgspec.json.encode(NodeClaimFacts("karpenter.azure.com", machine(), MADE)).decode())


@pytest.mark.invariant(9)
@pytest.mark.parametrize(
    "found",
    [LAUNCHED, facts(kept()), facts(sighted(vm="v", nic="n"), orphan=True)],
    ids=["launched", "not launched", "an orphan"],
)
async def test_what_an_earlier_claim_of_that_name_kept_since_the_plan_holds_before_the_call(found: ObjectFacts) -> None:
    decisions, consents = KeptInOneGroup(), Consents()
    made = KarpenterCollector(AzureSettings(nodes={"nodes": (HERE, THERE)}), consents, decisions)
    (first, *_) = await planned(made, found)
    decisions.uids = [found.ref.uid, "earlier"]
    objection = await made.objections(found)
    assert objection is not None
    assert "uid earlier" in objection.reason
    assert "knell kept forget" in objection.reason
    decisions.unreadable = True
    assert await made.objections(found) is not None
    with pytest.raises(NotCleared, match="no consent was recorded"):
        check_consent(consents, first)
    decisions.unreadable, decisions.uids = False, [found.ref.uid]
    assert await made.objections(found) is None
    check_consent(consents, first)


@pytest.mark.parametrize(
    "found", [facts("{"), facts(kept(machine(group="MC_other"))), facts(sighted(vm="v", group="mc_other"), orphan=True)]
)
async def test_what_can_not_be_placed_right_before_the_call_is_held(found: ObjectFacts) -> None:
    assert await collector(HERE).objections(found) is not None


@pytest.mark.invariant(8)
@pytest.mark.parametrize("forged", [0, MADE - 7_200_000])
async def test_a_claim_of_another_creation_time_than_its_node_claim_has_is_refused(forged: int) -> None:
    """By an early one, or none, no machine would be too old for it."""
    consents = Consents()
    made = KarpenterCollector(AzureSettings(nodes={"nodes": (HERE,)}), consents)
    (first, *_) = await planned(made, LAUNCHED)
    assert await made.objections(LAUNCHED) is None
    check_consent(consents, first)
    with pytest.raises(NotCleared, match="at 2023-11-14T22:13:20Z by what is known of it") as refused:
        check_consent(consents, first, made=forged)
    assert refused.value.refused


# ---- what is kept of a claim


def text(**parts: Any) -> bytes:
    return msgspec.json.encode({"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", **parts})


def test_of_a_claim_its_node_class_and_its_machine_are_kept() -> None:
    spec = {"nodeClassRef": {"group": "karpenter.azure.com", "kind": "AKSNodeClass", "name": "default"}}
    raw = text(spec=spec, status={"providerID": machine(), "conditions": []})
    assert read_node_claim(raw) == NodeClaimFacts("karpenter.azure.com", machine())
    recognised = source_named(KARPENTER_AZURE).recognise(raw)
    assert msgspec.json.decode(recognised, type=NodeClaimFacts) == read_node_claim(raw)


def test_a_claim_that_is_new_has_no_machine_yet() -> None:
    assert read_node_claim(text()) == NodeClaimFacts()
    assert source_named(KARPENTER_AZURE).recognise(text()) == "{}"


def test_a_claim_that_is_none_is_not_recognised() -> None:
    with pytest.raises(Unrecognisable):
        source_named(KARPENTER_AZURE).recognise(text(status={"providerID": 7}))
