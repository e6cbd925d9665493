"""Which cluster a name of the settings stands for, by the uid of its Namespace kube-system: pinned by the settings, or
first seen under it. No two names stand for one cluster, and one that is pinned or was there first never gives way."""

from collections.abc import Mapping

from service.settings.sources import ClusterSettings


def pinned_name(clusters: Mapping[str, ClusterSettings], uid: str) -> str | None:
    """The name that the settings pin to this uid; of several the first."""
    return next((name for name, one in clusters.items() if one.uid == uid), None)


def fault_of(clusters: Mapping[str, ClusterSettings], name: str, uid: str, known: Mapping[str, str]) -> str | None:
    """Why the cluster that answers under a name, and has this uid, is not the one that the name stands for. `known`
    are the uids that are remembered by name."""
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
    """The name that this one has to give way to. Should both be remembered, it is the first of the settings."""
    for other in clusters:
        if other == name and known.get(name) == uid:
            return None
        if other != name and known.get(other) == uid:
            return other
    return None
