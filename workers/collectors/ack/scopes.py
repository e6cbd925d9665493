"""Scope of an object of ACK: in which account and region its resource may be, and with which credentials it is reached.
The settings and ACK's own maps decide; what the object's status says only chooses among them."""

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase

from service.kubernetes import ClusterError
from service.settings import Settings
from service.sources.ack import DEFAULT_REGION, AckScope, AckSettings
from service.sources.aws import AwsAccess
from workers.collectors.ack.identities import AckIdentities
from workers.collectors.ack.role_maps import RoleIdentity, Subject, identity_of
from workers.collectors.ack.subject import AckSubject, Unremovable
from workers.handlers.collector import ObjectFacts
from workers.handlers.source_clusters import SourceCluster
from workers.providers.aws.model import AwsClient, AwsClients, CallScope


class AckScopes:
    """`partition` returns the partition of a region; it raises NoAccess for an unknown one."""

    def __init__(
        self, settings: Settings, clients: AwsClients, identities: AckIdentities, partition: Callable[[str], str]
    ) -> None:
        self._settings, self._own = settings.section(AckSettings), settings.section(AwsAccess).account or ""
        self._clients, self._identities, self._partition = clients, identities, partition

    async def client(
        self, subject: AckSubject, facts: ObjectFacts, place: SourceCluster, *, paced: bool = True
    ) -> AwsClient:
        """For the account and region of the resource. Raises Unremovable if they are out of scope, NoAccess, AwsError
        and ClusterError."""
        seen = subject.seen
        allowed = self._settings.scope(subject.namespace)
        if allowed is None:
            raise Unremovable(
                f"ack.namespaces does not name namespace {subject.namespace}; add where its resources are"
            )
        if (fault := region_fault(subject, allowed, facts.namespace_annotations)) is not None:
            raise Unremovable(fault)
        if seen.partition and self._partition(seen.region) != seen.partition:
            raise Unremovable(f"region {seen.region} is not in partition {seen.partition}, as its status says")
        identity = await self.identity(subject, facts, place)
        if (fault := account_fault(subject, allowed, identity)) is not None:
            raise Unremovable(fault)
        scope = CallScope(
            source=facts.ref.source, namespace=subject.namespace, region=seen.region, identity=identity.label
        )
        if not (identity.account or allowed.accounts):
            own = self._own or (await self._clients.client(scope)).account
            if own != seen.account:
                raise Unremovable(
                    f"its status says account {seen.account}, and the credentials are of account {own}: neither "
                    f"ack.namespaces nor ACK's maps lead namespace {subject.namespace} there"
                )
        return await self._clients.client(scope, account=seen.account, paced=paced)

    async def identity(self, subject: AckSubject, facts: ObjectFacts, place: SourceCluster) -> RoleIdentity:
        """Raises NoAccess, and ClusterError."""
        maps = await self._identities.maps(place)
        labels: Mapping[str, str] = {}
        if maps.selectors:
            labels = await self._identities.namespace_labels(place, subject.namespace)
        version = ""
        try:
            version = (await place.served(subject.resource)).version
        except ClusterError:
            if any(one.spec.types for one in maps.selectors):
                raise
        return identity_of(
            maps,
            Subject(
                service=subject.service, group=subject.resource.partition(".")[2], version=version,
                kind=subject.seen.kind, namespace=subject.namespace, labels=facts.labels,
                annotations=facts.namespace_annotations, namespace_labels=labels,
            ),
        )  # fmt: skip


def region_fault(subject: AckSubject, allowed: AckScope, namespace: Mapping[str, str]) -> str | None:
    region, default = subject.seen.region, namespace.get(DEFAULT_REGION, "").strip()
    if allowed.regions:
        if any(fnmatchcase(region, pattern) for pattern in allowed.regions):
            return None
        return f"its status says region {region}, which ack.namespaces does not allow for namespace {subject.namespace}"
    if default and region != default:
        return (
            f"its status says region {region}, and annotation {DEFAULT_REGION} of Namespace {subject.namespace} "
            f"{default}; ack.namespaces can allow more regions"
        )
    return None


def account_fault(subject: AckSubject, allowed: AckScope, identity: RoleIdentity) -> str | None:
    account = subject.seen.account
    if identity.account and identity.account != account:
        return (
            f"its status says account {account}, and ACK's maps lead namespace {subject.namespace} to account "
            f"{identity.account}"
        )
    if allowed.accounts and account not in allowed.accounts:
        return (
            f"its status says account {account}, which ack.namespaces does not allow for namespace {subject.namespace}"
        )
    return None
