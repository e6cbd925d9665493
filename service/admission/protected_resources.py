"""Protected resources: ACK's, those of the sources of one cluster, and those of the configured groups.
For each of them: which services' annotations protect its objects."""

from service.contract.names import ACK_PREFIX
from service.policy.services import normalized, service_of
from service.settings import Settings
from service.watching.cluster_identity import cluster_of


class ProtectedResources:
    def __init__(self, settings: Settings, cluster: str) -> None:
        services: dict[str, dict[str, None]] = {}
        for name, source in settings.sources.items():
            if cluster_of(settings, name) == cluster and not is_ack(source.resource):
                services.setdefault(source.resource, {})[normalized(source.service)] = None
        self.declared = {resource: tuple(known) for resource, known in services.items()}
        """Resources of sources, beside ACK's, with their services; the empty service has no annotations of its own."""
        self.groups = settings.protection.groups

    def services(self, resource: str) -> tuple[str, ...]:
        """The services of `plural.group`; empty if nothing protects its objects."""
        if is_ack(resource):
            return (service_of(resource.partition(".")[2], ""),)
        if resource in self.declared:
            return self.declared[resource]
        return ("",) if resource.partition(".")[2] in self.groups else ()


def is_ack(resource: str) -> bool:
    """Whether it is of a group `<service>.services.k8s.aws`."""
    return resource.partition(".")[2].endswith(f".{ACK_PREFIX}")
