"""What sources with resources on Azure share: the settings of the access, the keep tags, and their places. No source
itself."""

from collections.abc import Callable, Sequence
from typing import Annotated, Final

import msgspec

from service.contract.kept import PREVENT_DELETE_TAG, RETAINED_TAG
from service.sources.declaration import KeptPlaces, Sections

KEEP_TAG: Final = PREVENT_DELETE_TAG.replace("/", "_")
RETAINED: Final = RETAINED_TAG.replace("/", "_")
"""The operator's and the service's keep tag, as they are named on Azure."""


class AzureAccess(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A part of the section `azure`."""

    # The part of every quota that is left for others, such as the controllers that made the resources.
    reserve: Annotated[float, msgspec.Meta(ge=0, le=0.9)] = 0.2
    # The endpoint of Azure Resource Manager: that of another cloud, or of a stand-in.
    endpoint: Annotated[str, msgspec.Meta(pattern=r"\Ahttps?://\S+\Z", description="http(s)://host:port")] = (
        "https://management.azure.com"
    )


def kept_on_azure(configured: Callable[[Sections], Sequence[str]]) -> KeptPlaces:
    """Places of kept resources; `configured` are those that the settings name for the source."""
    return KeptPlaces(
        provider="azure",
        form="azure/SUBSCRIPTION/GROUP",
        pattern="azure/[^/]+/[^/]+",
        configured=configured,
        untag=_untag_command,
    )


def _untag_command(_place: str, _kind: str, one: str) -> str:
    return f"az tag update --operation Delete --resource-id {one} --tags {RETAINED}"
