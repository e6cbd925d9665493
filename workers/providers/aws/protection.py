"""Knell's own tags that keep a resource: protection written by people, and the mark of what was kept on purpose. Pure:
the functions return why a resource is kept, or an empty string."""

from service.contract.kept import PREVENT_DELETE_TAG, RETAINED_TAG, is_protection
from workers.providers.aws.model import AwsResource


def protection_reason(resource: AwsResource) -> str:
    """Why a protection tag keeps it; empty if none does."""
    value = resource.tags.get(PREVENT_DELETE_TAG, "")
    if not is_protection(value):
        return ""
    return f"the tag {PREVENT_DELETE_TAG} of {resource.id} is {value!r}: it stays until that is taken off"


def retention_reason(resource: AwsResource) -> str:
    """The object it was kept with, by its tag; empty if there is none."""
    value = resource.tags.get(RETAINED_TAG, "")
    return f"the tag {RETAINED_TAG} of {resource.id} says that it was kept with {value}" if value else ""
