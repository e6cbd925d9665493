"""A Cluster of Cluster API as an operator names it: it stands for what it has on AWS, to which it is followed.
References of both forms are understood, by group as since v1beta2 and by version as before."""

from service.cli import session
from service.contract.aws import CLUSTERS
from service.contract.traits import traits_of
from service.policy.capi import NoInfrastructure, infrastructure_of
from service.settings import Settings
from service.watching.clusters import cluster_of, reached


def is_capi(settings: Settings, kind: str) -> bool:
    """Whether a Cluster of Cluster API is meant, which stands for what it has on AWS. A source that is about clusters,
    whosever they are, comes first."""
    known = {source.resource for source in settings.sources.values()}
    plural, _, group = CLUSTERS.partition(".")
    if kind.casefold() in (CLUSTERS, f"cluster.{group}"):
        meant = CLUSTERS not in known
    else:
        meant = kind.casefold() in (plural, "cluster") and not any(one.partition(".")[0] == plural for one in known)
    return meant and any(traits_of(source.collector).capi for source in settings.sources.values())


async def followed(settings: Settings, name: str, namespace: str, cluster: str | None) -> tuple[str, str, str]:
    """Where what it has on AWS is: cluster, resource and name. Trouble or Misuse where there is none."""
    sources = settings.sources.items()
    capi = {cluster_of(settings, known) for known, source in sources if traits_of(source.collector).capi}
    fitting = sorted(capi if cluster is None else capi & {cluster})
    if len(fitting) != 1:
        meant = "none of the clusters" if not fitting else f"clusters {', '.join(fitting)}"
        raise session.Misuse(f"sources of Cluster API are in {meant}; say in which cluster {name} is by --cluster")
    async with reached(settings, fitting[0]) as there:
        found = await there.get(await there.discover(CLUSTERS), namespace, name)
    if found is None:
        raise session.Trouble(
            f"there is no Cluster {name} in namespace {namespace} of cluster {fitting[0]}; say which namespace by -n"
        )
    try:
        resource, infrastructure = infrastructure_of(found.raw)
    except NoInfrastructure as error:
        raise session.Trouble(f"Cluster {namespace}/{name}: {error}") from None
    if not any(one.resource == resource and cluster_of(settings, known) == fitting[0] for known, one in sources):
        raise session.Misuse(f"Cluster {namespace}/{name} has its resources by {resource}, which no source watches")
    return fitting[0], resource, infrastructure
