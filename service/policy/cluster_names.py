"""Identity of clusters: the uid of the Namespace kube-system that a name of the settings stands for.
The uid is pinned in the settings or is the first one seen. Two names never stand for one cluster; the pinned or older
name has precedence."""

from collections.abc import Mapping

from service.settings.sources import ClusterSettings


def pinned_name(clusters: Mapping[str, ClusterSettings], uid: str) -> str | None:
    """The first name that the settings pin to this uid."""
    return next((name for name, one in clusters.items() if one.uid == uid), None)


def identity_fault(
    clusters: Mapping[str, ClusterSettings], name: str, uid: str, known: Mapping[str, str]
) -> str | None:
    """Why the cluster with this uid, which is reached under a name, is not the one that the name stands for. `known`
    are the stored uids by name."""
    wanted, pinned = clusters[name].uid, pinned_name(clusters, uid)
    if wanted is not None and wanted != uid:
        return (
            f"cluster {name} should have uid {wanted} by clusters.{name}.uid, but the one that answers has {uid}: "
            f"nothing of it is touched; mend its kubeconfig or context, or the setting"
        )
    if pinned not in (None, name):
        return (
            f"clusters {pinned} and {name} are the same cluster, and clusters.{pinned}.uid says that {uid} is "
            f"{pinned}: nothing of it is touched as {name}; mend the kubeconfig or context of {name}, or the setting"
        )
    if wanted is None and known.get(name, uid) != uid:
        return (
            f"cluster {name} has always had uid {known[name]}, but the one that answers now has {uid}: nothing "
            f"of it is touched; mend its kubeconfig or context, or, if it is meant to be another cluster now, run "
            f"`knell clusters forget {name}` or set clusters.{name}.uid to {uid}"
        )
    other = None if pinned else _other_name(clusters, name, uid, known)
    if other is None:
        return None
    return (
        f"clusters {other} and {name} are the same cluster (uid {uid}), and {other} was there first: nothing of it is "
        f"touched as {name}; mend the kubeconfig or context of {name}, remove one of the two from the settings, or, if "
        f"{other} no longer leads there, run `knell clusters forget {other}`"
    )


def _other_name(clusters: Mapping[str, ClusterSettings], name: str, uid: str, known: Mapping[str, str]) -> str | None:
    """Another name with precedence. If both are stored, the first one in the settings has it."""
    for other in clusters:
        if other == name and known.get(name) == uid:
            return None
        if other != name and known.get(other) == uid:
            return other
    return None
