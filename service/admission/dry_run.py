"""Server dry run of a deletion: the API server asks admission and answers as it would, and nothing is deleted.
An answer is about the object that was read: the request has its uid as a precondition."""

import re
from datetime import timedelta
from typing import Final, Literal, NamedTuple

from service.kubernetes import ClusterError, Forbidden, KubeObject, KubernetesClient, ServedResource

_WEBHOOK: Final = re.compile(r'admission webhook "([^"]+)" denied the request')
_POLICY: Final = re.compile(r"ValidatingAdmissionPolicy '([^']+)'")
_UNREACHABLE: Final = re.compile(r'failed calling webhook "([^"]+)"')
_PATIENCE: Final = timedelta(seconds=45)
"""Longer than the API server waits for a webhook."""

DryRunOutcome = Literal["allowed", "denied", "unreachable", "forbidden"]


class DryRunAnswer(NamedTuple):
    """`unreachable`: the API server could not ask a webhook, and so denies. `forbidden`: these credentials may not
    delete it, so admission was not asked. `by` is the name of the policy or webhook, empty where the server names
    none."""

    outcome: DryRunOutcome
    by: str = ""
    message: str = ""


async def dry_run_delete(cluster: KubernetesClient, served: ServedResource, live: KubeObject) -> DryRunAnswer:
    """Raises ClusterError if the server says neither yes nor no."""
    body = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        # The server reads the query only if there is no body; proxies and audit logs show the query.
        "dryRun": ["All"],
        "preconditions": {"uid": live.uid},
    }
    path = served.path(live.namespace, live.name)
    try:
        await cluster.request("DELETE", path, query={"dryRun": "All"}, body=body, timeout=_PATIENCE)
    except ClusterError as error:
        found = _denial(error)
        if found is None:
            raise
        return found
    return DryRunAnswer("allowed")


def _denial(error: ClusterError) -> DryRunAnswer | None:
    """None for an error that says nothing about admission."""
    message = error.answer
    if found := _UNREACHABLE.search(message):
        return DryRunAnswer("unreachable", found[1], message)
    if found := _WEBHOOK.search(message) or _POLICY.search(message):
        return DryRunAnswer("denied", found[1], message)
    if not isinstance(error, Forbidden):
        return None
    if " cannot delete resource " in message:
        return DryRunAnswer("forbidden", "", message)
    return DryRunAnswer("denied", "", message)
