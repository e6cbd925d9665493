"""Tagging of Azure resources that are kept when a NodeClaim is released; returns the decisions to store.
Only the tag is ever written."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from service.contract import VERSION
from service.contract.kept import KeepDecision, KeptResource
from service.sources.azure import RETAINED
from service.sources.karpenter_azure import AzureNodes, AzureSettings, resource_name
from workers.collectors.karpenter_azure.claim import STAGES
from workers.collectors.karpenter_azure.ownership import ownership_of
from workers.handlers.kept_resources import KeepRequest, NotMarked
from workers.providers.azure.errors import AzureError
from workers.providers.azure.kinds import AzureKind
from workers.providers.azure.model import AzureResource, AzureScope

if TYPE_CHECKING:
    from workers.providers.azure.calls import AzureCalls

_PASSING: Final = frozenset({"throttled", "unreachable", "unreadable", "credentials", "busy"})


def place_of(nodes: AzureNodes) -> str:
    """The place under which decisions are stored."""
    return AzureScope.of(nodes).place


class AzureKeptTagging:
    """`calling` returns calls that draw their own tokens, and fail at once if there are none."""

    def __init__(self, settings: AzureSettings, calling: "Callable[[AzureScope], AzureCalls]") -> None:
        self._settings, self._calling = settings, calling

    async def keep(self, keep: KeepRequest, places: Sequence[AzureNodes]) -> Sequence[KeepDecision]:
        """Decisions about existing resources only. Raises NotMarked."""
        if keep.namesake:
            # Resources with that name belong to the other NodeClaim now.
            return ()
        try:
            found = [await self._one(keep, nodes) for nodes in places]
        except AzureError as error:
            bare = [_decision(keep, nodes, (), f"not marked: {error}") for nodes in places]
            raise NotMarked(str(error), bare, again=error.what in _PASSING, after=error.after) from None
        return [one for one in found if one.resources]

    async def _one(self, keep: KeepRequest, nodes: AzureNodes) -> KeepDecision:
        calls, resources, name = (
            self._calling(AzureScope.of(nodes)),
            list[KeptResource](),
            resource_name(keep.ref.name),
        )
        for kind in STAGES:
            found = await calls.read(kind, name)
            if found is not None and (tagged := await self._tagged(calls, nodes, kind, found, keep.mark)) is not None:
                resources.append(KeptResource(kind.name, calls.where.id(kind.type, name), tagged))
        return _decision(keep, nodes, tuple(resources), "")

    async def _tagged(
        self, calls: "AzureCalls", nodes: AzureNodes, kind: AzureKind, found: AzureResource, value: str
    ) -> str | None:  # fmt: skip
        """Empty if it has the tag, otherwise why not; None for resources that are not ours."""
        if any(name.lower() == RETAINED for name in found.tags):
            return ""
        if ownership_of(found.tags, nodes.cluster, nodes.tags).kind in ("left", "untagged"):
            return None
        if not self._settings.mark_retained:
            return "not tagged: azure.mark_retained is off"
        try:
            await calls.tag(kind, found.name, {RETAINED: value})
        except AzureError as error:
            if error.what == "gone":
                return None
            if error.what in _PASSING:
                raise
            return f"not tagged: {error.code}"
        return ""


def _decision(keep: KeepRequest, nodes: AzureNodes, resources: tuple[KeptResource, ...], remark: str) -> KeepDecision:
    ref = keep.ref
    return KeepDecision(
        v=VERSION, place=place_of(nodes), name=ref.name, object=ref.label, uid=ref.uid, source=ref.source,
        why=ref.kept, at=keep.at, resources=resources, remark=remark,
    )  # fmt: skip
