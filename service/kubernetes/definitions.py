"""Which CRD stands behind a resource, by its uid: one that was deleted and installed again is another one.
Its objects went with the first, so that their absence says nothing of what anybody wanted to delete."""

from service.kubernetes.client import Cluster
from service.kubernetes.errors import NotFound, NotServed
from service.kubernetes.objects import CRDS


async def crd_uid(cluster: Cluster, resource: str) -> str:
    """Empty where there is none, as for what comes with the server itself."""
    if "." not in resource or await cluster.crd_state(resource) == "built-in":
        return ""
    try:
        found = await cluster.get(CRDS, "", resource, metadata_only=True)
    except (NotFound, NotServed):
        return ""
    return found.uid if found is not None else ""


def replaced(resource: str) -> str:
    """Why nothing is believed of objects whose CRD is another one now."""
    return f"the CRD of {resource} was deleted and installed again; its objects went with it"
