"""Objects of the protection at admission that are in a cluster: admission policies, their bindings and the webhook
configuration. They are found by their names; only those with our label are ours to remove."""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import msgspec

from service.admission.ca_bundle import CONFIGURATIONS
from service.admission.names import CONFIGURATION, LABELS, MARKS_POLICY, POLICY
from service.kubernetes import (
    ClusterError,
    KubeObject,
    KubernetesClient,
    NotFound,
    NotServed,
    ServedResource,
    Unreadable,
)

GROUP: Final = "admissionregistration.k8s.io"


def _resource(plural: str, kind: str) -> ServedResource:
    return ServedResource(
        resource=f"{plural}.{GROUP}",
        group=GROUP,
        version="v1",
        plural=plural,
        kind=kind,
        namespaced=False,
        status=False,
    )


POLICIES: Final = _resource("validatingadmissionpolicies", "ValidatingAdmissionPolicy")
BINDINGS: Final = _resource("validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding")

ALL_INSTALLED: Final = (
    # In the order of their removal: as long as the webhook is configured, Namespaces can't be deleted without it.
    (CONFIGURATIONS, CONFIGURATION),
    (BINDINGS, POLICY),
    (BINDINGS, MARKS_POLICY),
    (POLICIES, POLICY),
    (POLICIES, MARKS_POLICY),
)


class InstalledObject(NamedTuple):
    """`ours` is false for an object of that name without our label."""

    served: ServedResource
    live: KubeObject
    ours: bool

    def __str__(self) -> str:
        return f"{self.served.kind} {self.live.name}"

    @property
    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = msgspec.json.decode(self.live.raw)
        return document


class UnreadObject(NamedTuple):
    what: str
    error: ClusterError


async def read_installed(cluster: KubernetesClient, served: ServedResource, name: str) -> InstalledObject | None:
    """None also where the resource is not served. Raises ClusterError if it can't be read."""
    try:
        live = await cluster.get(served, "", name)
    except (NotServed, NotFound):
        return None
    if live is None:
        return None
    return InstalledObject(served, live, all(live.labels.get(key) == value for key, value in LABELS.items()))


async def find_installed(cluster: KubernetesClient) -> tuple[list[InstalledObject], list[UnreadObject]]:
    """In the order of their removal."""
    found, unread = list[InstalledObject](), list[UnreadObject]()
    for served, name in ALL_INSTALLED:
        try:
            one = await read_installed(cluster, served, name)
        except ClusterError as error:
            unread.append(UnreadObject(f"{served.kind} {name}", error))
            continue
        if one is not None:
            found.append(one)
    return found, unread


async def remove_installed(cluster: KubernetesClient, found: Iterable[InstalledObject]) -> list[UnreadObject]:
    """Removes those with our label; returns the failures."""
    failures: list[UnreadObject] = []
    for one in found:
        if not one.ours:
            continue
        try:
            await cluster.delete(one.served, "", one.live.name, uid=one.live.uid)
        except NotFound:
            continue
        except ClusterError as error:
            failures.append(UnreadObject(str(one), error))
    return failures


# ---- comparison with a manifest

_DEFAULTS: Final[dict[str, Any]] = {
    "matchPolicy": "Equivalent",
    "scope": "*",
    "failurePolicy": "Fail",
    "timeoutSeconds": 10,
    "port": 443,
    "parameterNotFoundAction": "Allow",
}
"""What the API server adds where a manifest says nothing. Empty values need not be listed."""


def first_difference(wanted: object, live: object, path: str = "spec", ignored: frozenset[str] = frozenset()) -> str:
    """In words; empty if the live object is as the manifest makes it. Keys of `ignored` are not compared."""
    if isinstance(wanted, dict) and isinstance(live, dict):
        for key in (*wanted, *(key for key in live if key not in wanted)):
            if key in ignored:
                continue
            if key not in wanted:
                if live[key] and live[key] != _DEFAULTS.get(key):
                    return f"{path}.{key} was added"
            elif key not in live and wanted[key] not in (None, "", {}, []):
                return f"{path}.{key} is missing"
            elif different := first_difference(wanted[key], live.get(key), f"{path}.{key}", ignored):
                return different
        return ""
    if isinstance(wanted, list) and isinstance(live, list):
        if len(wanted) != len(live):
            return f"{path} has {len(live)} entries instead of {len(wanted)}"
        pairs = zip(wanted, live, strict=True)
        found = (first_difference(*pair, f"{path}[{place}]", ignored) for place, pair in enumerate(pairs))
        return next(filter(None, found), "")
    if wanted == live or (not wanted and not live):
        return ""
    short = all(isinstance(one, str | int | bool) and len(str(one)) <= 40 for one in (wanted, live))
    return f"{path} is {live!r} instead of {wanted!r}" if short else f"{path} differs"


def decoded_spec(one: InstalledObject, kind: Any) -> Any:
    """The object as a struct of the caller. Raises Unreadable."""
    try:
        return msgspec.json.decode(one.live.raw, type=kind)
    except msgspec.MsgspecError as error:
        raise Unreadable(f"{one} can't be decoded: {error}") from None
