"""Settings of clusters, sources, policy, guard, watches, and feedback to the clusters.
Names of clusters and sources are the keys of these sections; they appear in records, metrics and Leases."""

import re
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from service.durations import NotNegative, Positive
from service.policy.selectors import InvalidSelector, parse_selector
from service.policy.services import normalized, service_fault
from service.settings.problems import Problem, SettingsError
from service.sources.declaration import Mode
from service.sources.registry import known_sources, source_named

ORPHANS: Final = ".orphans"
"""Suffix of a source's name under which the guard counts orphans that a sweep found."""

Count = Annotated[int, msgspec.Meta(ge=1)]
PolicyWord = Literal["delete", "retain"]

_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")
_RESOURCE: Final = re.compile(r"[a-z0-9]+(\.[a-z0-9]([a-z0-9.-]*[a-z0-9])?)?")


class ClusterSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Access to one cluster: in-cluster, a kubeconfig file, or a kubeconfig in a Secret of another cluster."""

    in_cluster: bool = False
    kubeconfig: Path | None = None
    # The context of the kubeconfig; default: its current one.
    context: str | None = None
    # namespace/name/key of a Secret, read through the cluster that `via` names.
    secret: (
        Annotated[str, msgspec.Meta(pattern=r"\A[^/\s]+/[^/\s]+/[^/\s]+\Z", description="namespace/name/key")] | None
    ) = None
    via: str | None = None
    # The uid of its Namespace kube-system. Where it is set, another cluster at the same address is rejected even at the
    # first start; else the first uid seen is stored.
    uid: str | None = None


class GuardSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Limit of deletions of a source per window: at most `most`, and at most `percent` of the recent peak of its
    objects, but at least 20. With the defaults that is 20 an hour for up to 100 objects, a fifth of them for up to
    2,500, and 500 beyond that."""

    most: Count = 500
    percent: Annotated[float, msgspec.Meta(ge=0, le=100)] = 20.0
    window: Positive = timedelta(hours=1)
    enabled: bool = True


class SourceSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    # plural.group, such as clusters.cluster.x-k8s.io; the plural alone for the core group.
    resource: Annotated[str, msgspec.Meta(min_length=1)]
    collector: Annotated[str, msgspec.Meta(min_length=1)]
    # A name under `clusters`; optional where there is only one.
    cluster: str | None = None
    mode: Mode = "finalizer"
    # Empty: every namespace.
    namespaces: tuple[str, ...] = ()
    # Only objects with these labels are watched at all.
    selector: str = ""
    # Of the watched objects, only those that match opt_in are managed, and none that match opt_out.
    opt_in: str = ""
    opt_out: str = ""
    # The service for prefixed annotations; for *.services.k8s.aws it is the first label of the group.
    service: str = ""
    deletion_policy: PolicyWord | None = None
    # Also manage objects that existed before the source was first enabled.
    adopt_existing: bool = False
    paused: bool = False
    dry_run: bool = False
    # Number of parts by namespace, each with its own Lease, so that several replicas share a large source.
    shares: Count = 1
    guard: GuardSettings = GuardSettings()


class PolicySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    deletion_policy: PolicyWord = "delete"
    # Defaults by service.
    services: dict[str, PolicyWord] = msgspec.field(default_factory=dict)
    paused: bool = False
    dry_run: bool = False


class WatchSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    # The namespace of the Leases and of the ConfigMap with the times of first enabling.
    namespace: Annotated[str, msgspec.Meta(min_length=1)] = "knell"
    lease: Positive = timedelta(seconds=15)
    page: Count = 500
    # A watch without an event or a bookmark for this time is replaced.
    silence: Positive = timedelta(minutes=3)
    # The interval of full lists.
    relist: Positive = timedelta(hours=1)
    # The interval of retries for a resource that is not installed or forbidden.
    retry: Positive = timedelta(seconds=30)


class FeedbackSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Feedback to the owners of objects in their cluster."""

    events: bool = True
    conditions: bool = True
    # At most one Event per object and reason in this interval.
    every: NotNegative = timedelta(minutes=10)


def find_contradictions(
    clusters: dict[str, ClusterSettings], sources: dict[str, SourceSettings]
) -> list[tuple[str, str]]:
    """Contradictions between values, as pairs of path and reason."""
    found: list[tuple[str, str]] = []
    for name, cluster in clusters.items():
        found += [(f"clusters.{name}", fault) for fault in _cluster_faults(name, cluster, clusters)]
    for name, source in sources.items():
        found += [(f"sources.{name}{key}", fault) for key, fault in _source_faults(name, source, clusters)]
    return found + _overlaps(clusters, sources)


def check_collectors(sources: Mapping[str, SourceSettings]) -> None:
    """Raises SettingsError that names every source whose collector does not exist."""
    known = {source.name for source in known_sources()}
    problems = [
        Problem(f"sources.{name}.collector", f"{source.collector!r} given; allowed: {', '.join(sorted(known))}")
        for name, source in sources.items()
        if source.collector not in known
    ]
    if problems:
        raise SettingsError(problems)


def resource_fault(resource: str) -> str:
    """Why the text is no resource; empty where it is one."""
    if _RESOURCE.fullmatch(resource):
        return ""
    return f"{resource!r} given; allowed: plural.group, such as nodeclaims.karpenter.sh"


def _cluster_faults(name: str, cluster: ClusterSettings, clusters: dict[str, ClusterSettings]) -> list[str]:
    found = [] if _NAME.fullmatch(name) else [_bad_name(name)]
    ways = [way for way in ("in_cluster", "kubeconfig", "secret") if getattr(cluster, way)]
    if len(ways) > 1:
        found.append(f"{' and '.join(ways)} are different ways to a cluster; give one of them")
    if cluster.context is not None and cluster.in_cluster:
        found.append("context names a part of a kubeconfig; in_cluster has none")
    if (cluster.secret is None) != (cluster.via is None):
        found.append("secret and via belong together: via names the cluster that holds the Secret")
    if cluster.via is not None and cluster.via not in clusters:
        found.append(f"via names {cluster.via!r}, which is not among clusters ({_listed(clusters)})")
    elif cluster.via is not None and (cluster.via == name or clusters[cluster.via].via is not None):
        found.append("via must name a cluster that is reached without a Secret")
    return found


def _source_faults(name: str, source: SourceSettings, clusters: dict[str, ClusterSettings]) -> list[tuple[str, str]]:
    found = [] if _NAME.fullmatch(name) else [("", _bad_name(name))]
    if name.endswith(ORPHANS):
        found.append(("", f"{ORPHANS} at the end of a name stands for what a sweep of another source finds"))
    if fault := resource_fault(source.resource):
        found.append((".resource", fault))
    if source.cluster is None and len(clusters) != 1:
        found.append((".cluster", f"must be given, for there is not exactly one under clusters ({_listed(clusters)})"))
    elif source.cluster is not None and source.cluster not in clusters:
        found.append((".cluster", f"{source.cluster!r} is not among clusters ({_listed(clusters)})"))
    if source.shares > 1 and len(source.namespaces) == 1:
        found.append((".shares", "one namespace can't be divided; leave shares out"))
    if fault := service_fault(normalized(source.service)):
        found.append((".service", fault))
    found += _collector_faults(source)
    for key in ("selector", "opt_in", "opt_out"):
        try:
            parse_selector(getattr(source, key), key)
        except InvalidSelector as error:
            found.append((f".{key}", str(error).partition(": ")[2]))
    return found


def _collector_faults(source: SourceSettings) -> list[tuple[str, str]]:
    declared = source_named(source.collector)
    found: list[tuple[str, str]] = []
    if declared.resources and not any(_is_about(one, source.resource) for one in declared.resources):
        allowed = " or ".join(declared.resources)
        found.append((".resource", f"{source.resource!r} given; the collector {source.collector} is for {allowed}"))
    if source.mode == "observe" and source.mode not in declared.modes:
        found.append((".mode", f"the collector {source.collector} needs the object as long as it collects: finalizer"))
    if source.mode == "finalizer" and source.mode not in declared.modes:
        found.append((".mode", f"the collector {source.collector} never holds its objects back: observe"))
    return found


def _is_about(declared: str, resource: str) -> bool:
    """Whether a declaration means the resource: by its name, or by the domain of its group."""
    wild, _, domain = declared.partition(".")
    return resource.partition(".")[2].endswith(f".{domain}") if wild == "*" else resource == declared


def _overlaps(clusters: dict[str, ClusterSettings], sources: dict[str, SourceSettings]) -> list[tuple[str, str]]:
    """Sources that certainly have the same objects: an object has one deletion, so that one collector would never be
    used. Whether different selectors overlap is not checked here, but when an object is deleted."""
    found: list[tuple[str, str]] = []
    only = next(iter(clusters), None)
    for place, (name, source) in enumerate(sources.items()):
        for other, before in list(sources.items())[:place]:
            where = [one.cluster or only for one in (before, source)]
            if where[0] == where[1] and before.resource == source.resource and _same_objects(before, source):
                found.append(
                    (
                        f"sources.{name}",
                        f"sources {other} and {name} watch the same objects ({source.resource}), and each object goes "
                        f"in the name of one; let their namespaces, selector or opt_in exclude each other",
                    )
                )
    return found


def _same_objects(one: SourceSettings, other: SourceSettings) -> bool:
    apart = one.namespaces and other.namespaces and not set(one.namespaces) & set(other.namespaces)
    chosen = (one.selector.strip(), one.opt_in.strip()) == (other.selector.strip(), other.opt_in.strip())
    # Two sources that opt out of different objects may have none in common.
    left_out = one.opt_out.strip() and other.opt_out.strip() and one.opt_out.strip() != other.opt_out.strip()
    return chosen and not apart and not left_out


def _bad_name(name: str) -> str:
    return f"{name!r} can't be a name; allowed: up to 63 small letters, digits, dots and hyphens"


def _listed(clusters: dict[str, ClusterSettings]) -> str:
    return ", ".join(sorted(clusters)) or "none"
