"""Reads and tags the Azure resources that stay when a NodeClaim's deletion ends without them, and returns the decisions
to store. Only the tag is ever written."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from service.contract import VERSION
from service.contract.azure import RETAINED, resource_name
from service.contract.kept import Decision, KeptResource
from service.settings import AzureNodes, AzureSettings
from workers.handlers.azure.errors import AzureError
from workers.handlers.azure.kinds import KINDS, Kind
from workers.handlers.azure.model import PROVIDER, Found, Where
from workers.handlers.azure.ownership import judged
from workers.handlers.memory import Keep, NotMarked

if TYPE_CHECKING:
    from workers.handlers.azure.calls import AzureCalls

_PASSING: Final = frozenset({"throttled", "unreachable", "unreadable", "credentials", "busy"})


def place_of(nodes: AzureNodes) -> str:
    """Under which decisions are remembered."""
    return f"{PROVIDER}/{nodes.subscription}/{nodes.resource_group}".lower()


class Keeping:
    """`calling` gives calls that draw for themselves, and fail at once where there is no room."""

    def __init__(self, settings: AzureSettings, calling: "Callable[[Where], AzureCalls]") -> None:
        self._settings, self._calling = settings, calling

    async def keep(self, keep: Keep, places: Sequence[AzureNodes]) -> Sequence[Decision]:
        """Of what is there: of a claim that left nothing there is nothing to remember. Raises NotMarked."""
        if keep.namesake:
            # What has that name is the other's by now.
            return ()
        try:
            found = [await self._one(keep, nodes) for nodes in places]
        except AzureError as error:
            bare = [_decision(keep, nodes, (), f"not marked: {error}") for nodes in places]
            raise NotMarked(str(error), bare, again=error.what in _PASSING, after=error.after) from None
        return [one for one in found if one.resources]

    async def _one(self, keep: Keep, nodes: AzureNodes) -> Decision:
        calls, resources, name = self._calling(Where.of(nodes)), list[KeptResource](), resource_name(keep.about.name)
        for kind in KINDS:
            found = await calls.read(kind, name)
            if found is not None and (tagged := await self._tagged(calls, nodes, kind, found, keep.mark)) is not None:
                resources.append(KeptResource(kind.name, calls.where.id(kind.type, name), tagged))
        return _decision(keep, nodes, tuple(resources), "")

    async def _tagged(
        self, calls: "AzureCalls", nodes: AzureNodes, kind: Kind, found: Found, value: str
    ) -> str | None:  # fmt: skip
        """Empty where it carries the tag, else why it does not; None for what is none of ours."""
        if any(name.lower() == RETAINED for name in found.tags):
            return ""
        if judged(found.tags, nodes.cluster, nodes.tags).kind in ("left", "untagged"):
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


def _decision(keep: Keep, nodes: AzureNodes, resources: tuple[KeptResource, ...], remark: str) -> Decision:
    about = keep.about
    return Decision(
        v=VERSION, place=place_of(nodes), name=about.name, object=about.object, uid=about.uid, source=about.source,
        why=about.kept, at=keep.at, resources=resources, remark=remark,
    )  # fmt: skip
