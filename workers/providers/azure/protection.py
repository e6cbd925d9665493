"""Knell's own tags that keep a resource on Azure: protection written by people, and the mark of what was kept on
purpose. They count for every collector; names of tags are compared without case."""

from service.contract import Left, Refused
from service.contract.kept import is_protection
from service.sources.azure import KEEP_TAG, RETAINED
from workers.providers.azure.model import AzureResource


def kept_by_tag(found: AzureResource) -> Left | Refused | None:
    """The verdict for a resource with such a tag; None if it has none."""
    tags = {name.lower(): value for name, value in found.tags.items()}
    if is_protection(tags.get(KEEP_TAG, "")):
        return Refused(f"{found.name}: its tag {KEEP_TAG} is {tags[KEEP_TAG]!r}: it stays until that is taken off")
    if value := tags.get(RETAINED, ""):
        return Left(f"{found.name} is left alone: its tag {RETAINED} says that it was kept with {value}")
    return None
