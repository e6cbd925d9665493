"""The Azure provider as collectors use it: the handlers of its kinds and of added ones, and the judge of a claim."""

import dataclasses
from collections.abc import AsyncIterator

import msgspec
import pytest

from service.sources.karpenter_azure import KARPENTER_AZURE, AzureSettings
from workers.collectors.karpenter_azure.claim import KarpenterClaim
from workers.collectors.karpenter_azure.judge import KarpenterJudge
from workers.collectors.karpenter_azure.node_protection import Protection
from workers.handlers.kept_resources import NoKeptRecords
from workers.providers.azure.claims import AzureClaim, ClaimJudges, NotJudged
from workers.providers.azure.clients import AzureClients
from workers.providers.azure.components import AzureProvider
from workers.providers.azure.kinds import DISK, KINDS
from workers.providers.azure.limits import UndeclaredLimits
from workers.providers.azure.model import AzureScope

WHERE = AzureScope(subscription="s", group="g", region="westeurope")
CLAIM = KarpenterClaim(collector=KARPENTER_AZURE, source="nodes", where=WHERE, claim="a", cluster="prod")


class OtherClaim(AzureClaim, frozen=True, kw_only=True):
    proof: str


class OtherJudge(KarpenterJudge):
    """A judge of another collector, with claims of its own."""

    claim_type = OtherClaim  # type: ignore[assignment]


class NoProtection:
    async def protects(self, source: str, machine: str, node: str) -> Protection | None:
        del source, machine, node
        return None


def judge(kind: type[KarpenterJudge] = KarpenterJudge) -> KarpenterJudge:
    return kind(AzureSettings(), NoProtection())


def judges(**collectors: str) -> ClaimJudges:
    """With two collectors; `collectors` are those of the sources in the settings."""
    made = ClaimJudges(lambda source: collectors.get(source, ""))
    made.register("other", judge(OtherJudge))
    made.register(KARPENTER_AZURE, judge())
    return made


def stored(claim: AzureClaim) -> str:
    return msgspec.json.encode(claim).decode()


@pytest.fixture
async def provider() -> AsyncIterator[AzureProvider]:
    async with AzureClients("https://management.azure.com") as clients:
        yield AzureProvider(clients, 0.2, None, lambda _: KARPENTER_AZURE, NoKeptRecords())


def kinds_of(provider: AzureProvider) -> list[str]:
    return [handler.kind for handler in provider.handlers]


async def test_it_has_a_handler_for_every_kind_and_for_added_ones(provider: AzureProvider) -> None:
    assert kinds_of(provider) == [kind.name for kind in KINDS]
    provider.add_kinds(dataclasses.replace(DISK, name="azure-thing"))
    assert kinds_of(provider) == [*(kind.name for kind in KINDS), "azure-thing"]


@pytest.mark.invariant(7)
async def test_a_kind_whose_limits_are_not_declared_gets_no_handler(provider: AzureProvider) -> None:
    with pytest.raises(UndeclaredLimits):
        provider.add_kinds(dataclasses.replace(DISK, name="azure-thing", removing="thing.delete"))
    assert kinds_of(provider) == [kind.name for kind in KINDS]


async def test_a_kind_can_not_take_the_name_of_another(provider: AzureProvider) -> None:
    before = provider.handlers
    with pytest.raises(ValueError, match=f"another kind {DISK.name} already"):
        provider.add_kinds(dataclasses.replace(DISK, name="azure-thing"), dataclasses.replace(DISK))
    assert provider.handlers == before
    provider.add_kinds(DISK)
    assert kinds_of(provider) == [kind.name for kind in KINDS]


async def test_a_collector_has_one_judge(provider: AzureProvider) -> None:
    provider.register(KARPENTER_AZURE, judge())
    with pytest.raises(ValueError, match="has a judge already"):
        provider.register(KARPENTER_AZURE, judge())


def test_a_claim_is_judged_by_its_own_collector() -> None:
    other = OtherClaim(collector="other", source="things", where=WHERE, proof="p")
    known = judges(nodes=KARPENTER_AZURE, things="other")
    assert [known.read(stored(one))[0] for one in (CLAIM, other)] == [CLAIM, other]
    assert type(known.read(stored(CLAIM))[1]) is KarpenterJudge
    assert type(known.read(stored(other))[1]) is OtherJudge


@pytest.mark.invariant(8)
def test_a_claim_does_not_choose_its_judge() -> None:
    forged = OtherClaim(collector="other", source="nodes", where=WHERE, proof="p")
    with pytest.raises(NotJudged, match="source nodes has collector 'karpenter-azure'"):
        judges(nodes=KARPENTER_AZURE).read(stored(forged))


@pytest.mark.invariant(8)
@pytest.mark.parametrize("source", ["", "gone"])
def test_a_claim_of_a_source_that_the_settings_do_not_have_has_no_judge(source: str) -> None:
    known = judges(nodes=KARPENTER_AZURE)
    with pytest.raises(NotJudged, match=f"source {source!r}, which the settings do not have"):
        known.read(stored(msgspec.structs.replace(CLAIM, source=source)))


@pytest.mark.invariant(8)
def test_a_claim_of_an_unknown_collector_has_no_judge() -> None:
    with pytest.raises(NotJudged, match=r"which this process does not have \(there is: karpenter-azure, other\)"):
        judges().read(stored(msgspec.structs.replace(CLAIM, collector="else")))
    with pytest.raises(NotJudged, match=r"there is: none"):
        ClaimJudges(lambda _: "").read(stored(CLAIM))


@pytest.mark.invariant(7)
@pytest.mark.parametrize(
    "data", ["", "{", "{}", '{"collector":"karpenter-azure"}', stored(CLAIM).replace('"claim"', '"c"')]
)
def test_a_claim_that_cannot_be_read_is_an_error(data: str) -> None:
    with pytest.raises(msgspec.DecodeError):
        judges().read(data)
