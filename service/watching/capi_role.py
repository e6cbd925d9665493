"""What the service reads of Cluster API and its AWS provider beside the objects of its sources: the Clusters that own
them, what still runs in these, namesakes, and the identities by which AWS is reached. Only where a source needs it."""

from collections.abc import Iterable, Iterator

from service.contract.aws import AWS_CLUSTERS, AWS_MANAGED_CONTROL_PLANES, CAPA_MANAGER, CLUSTERS, MACHINE_POOLS
from service.contract.traits import traits_of
from service.settings import SourceSettings

Rule = dict[str, list[str]]

_CORE = CLUSTERS.partition(".")[2]
_INFRASTRUCTURE = AWS_CLUSTERS.partition(".")[2]


def capi_sources(sources: Iterable[SourceSettings]) -> list[SourceSettings]:
    return [source for source in sources if traits_of(source.collector).capi]


def definitions(sources: Iterable[SourceSettings]) -> tuple[str, ...]:
    """Kinds that need not be installed, beside those of the sources: their CRDs say whether they are."""
    optional = (AWS_CLUSTERS, AWS_MANAGED_CONTROL_PLANES, MACHINE_POOLS)
    return optional if capi_sources(sources) else ()


def owners() -> list[Rule]:
    """Where objects of a source are: in its namespaces, or everywhere."""
    return [
        {"apiGroups": [_CORE], "resources": ["clusters"], "verbs": ["get"]},
        {"apiGroups": [_CORE], "resources": ["machinepools", "machines"], "verbs": ["list"]},
    ]


def everywhere() -> Iterator[Rule]:
    """Identities have no namespace, and a namesake may be in any."""
    for resource in (AWS_MANAGED_CONTROL_PLANES, AWS_CLUSTERS):
        plural, _, group = resource.partition(".")
        yield {"apiGroups": [group], "resources": [plural], "verbs": ["list"]}
    kinds = ["awsclustercontrolleridentities", "awsclusterroleidentities", "awsclusterstaticidentities"]
    yield {"apiGroups": [_INFRASTRUCTURE], "resources": kinds, "verbs": ["get"]}


def in_capa_namespace() -> list[Rule]:
    """The Secrets of static identities, whose names only the identities know; and CAPA itself, for `knell doctor`."""
    manager = {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get"], "resourceNames": [CAPA_MANAGER]}
    return [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}, manager]
