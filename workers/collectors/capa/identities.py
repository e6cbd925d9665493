"""Resolver of a cluster's identityRef into AWS credentials. The namespace must be allowed to use the identity, and
every identity it refers to, before AWS is called at all."""

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

from service.kubernetes import NAMESPACES, SECRETS, ClusterError
from service.kubernetes.decoding import secret_value
from service.sources.capa import CAPA_NAMESPACE
from workers.collectors.capa.identity_objects import (
    RESOURCES,
    AssumedRole,
    CapaIdentity,
    kind_and_name,
    parse_identity,
    permits,
)
from workers.handlers.source_clusters import SourceCluster, SourceClusters
from workers.providers.aws.client.credentials import AwsCredentials
from workers.providers.aws.client.own_credentials import OwnCredentials
from workers.providers.aws.client.sessions import RoleSessions
from workers.providers.aws.client.ttl_cache import TtlCache
from workers.providers.aws.errors import AwsError, NoAccess
from workers.providers.aws.model import CallScope

CACHE_TTL: Final = timedelta(seconds=5)
"""How long reads of identities, Secrets and Namespaces are cached."""

RENEW_BEFORE: Final = timedelta(minutes=2)
"""Sessions are replaced this long before they expire: longer than any call that begins with them."""

MAX_CHAIN: Final = 8
"""Longest chain of identities; STS itself has no limit."""


class CapaIdentities:
    """Implements the IdentityResolver of the provider. `namespace` is where Cluster API Provider AWS runs, and so where
    the Secrets of static identities are."""

    def __init__(
        self,
        places: SourceClusters,
        sessions: RoleSessions,
        own: OwnCredentials,
        *,
        namespace: str = CAPA_NAMESPACE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._places, self._sessions, self._own, self._namespace = places, sessions, own, namespace
        self._read = TtlCache[tuple[str, str], CapaIdentity](clock=clock)
        self._labels = TtlCache[tuple[str, str], dict[str, str]](clock=clock)
        self._keys = TtlCache[tuple[str, ...], AwsCredentials](clock=clock)
        self._roles = TtlCache[tuple[str, ...], AwsCredentials](clock=clock)

    async def credentials(self, scope: CallScope) -> AwsCredentials:
        """Raises NoAccess, with a message that says what to do."""
        partition = self._sessions.partition(scope.region)
        place = self._places.of(scope.source)
        if place is None:
            raise NoAccess(f"this process has no way to the cluster of source {scope.source}, which has the identity")
        *roles, last = await self._chain(place, scope)
        if last.role is not None:
            roles.append(last)
        # All partitions are checked before any call: credentials of one are not valid in another.
        for one in roles:
            if one.role is not None and one.role.partition != partition:
                raise NoAccess(
                    f"region {scope.region} is in partition {partition}, but {one.label} has a role of "
                    f"{one.role.partition}: {one.role.arn}; correct spec.region or spec.identityRef"
                )
        credentials = await (self._static(place, last) if last.secret else self._own.get(scope.region))
        for one in reversed(roles):
            if one.role is not None:
                credentials = await self._assumed(place, one, one.role, credentials, scope.region)
        return credentials

    def forget(self, credentials: AwsCredentials) -> None:
        self._roles.forget(credentials.origin)

    # ---- which identities, and whether they may be used

    async def _chain(self, place: SourceCluster, scope: CallScope) -> Sequence[CapaIdentity]:
        """The identity and those it refers to. As in Cluster API, each must allow the cluster's namespace."""
        chain: list[CapaIdentity] = []
        label = scope.identity
        while label:
            before = [one.label for one in chain]
            if label in before:
                raise NoAccess(f"identities refer to each other in a circle: {' -> '.join([*before, label])}")
            if len(chain) == MAX_CHAIN:
                raise NoAccess(f"more than {MAX_CHAIN} identities one behind the other: {' -> '.join(before)}")
            one = await self._read.get((place.name, label), partial(self._find, place, label))
            await self._permit(place, one, scope.namespace)
            chain.append(one)
            label = one.source
        return chain

    async def _find(self, place: SourceCluster, label: str) -> tuple[CapaIdentity, timedelta]:
        kind, name = kind_and_name(label)
        try:
            live = await place.get(RESOURCES[kind], "", name)
        except ClusterError as error:
            raise NoAccess(f"{label} can't be read: {error}") from None
        if live is None:
            raise NoAccess(f"there is no {label} in cluster {place.name}; create it, or correct spec.identityRef")
        return parse_identity(label, live.uid, live.resource_version, live.raw), CACHE_TTL

    async def _permit(self, place: SourceCluster, identity: CapaIdentity, namespace: str) -> None:
        allowed = identity.allowed
        try:
            if permits(allowed, namespace, None):
                return
            if allowed is not None and allowed.requirements():
                found = await self._labels.get((place.name, namespace), partial(self._find_labels, place, namespace))
                if permits(allowed, namespace, found):
                    return
        except ValueError as error:
            raise NoAccess(f"spec.allowedNamespaces of {identity.label} can't be understood: {error}") from None
        raise NoAccess(
            f"{identity.label} may not be used from namespace {namespace}: its spec.allowedNamespaces does not allow "
            f"it; add the namespace there, or name another identity in spec.identityRef"
        )

    async def _find_labels(self, place: SourceCluster, namespace: str) -> tuple[dict[str, str], timedelta]:
        try:
            live = await place.client.get(NAMESPACES, "", namespace, metadata_only=True)
        except ClusterError as error:
            raise NoAccess(f"the labels of Namespace {namespace} can't be read: {error}") from None
        if live is None:
            raise NoAccess(f"there is no Namespace {namespace} in cluster {place.name}")
        return live.labels, CACHE_TTL

    # ---- credentials

    async def _static(self, place: SourceCluster, identity: CapaIdentity) -> AwsCredentials:
        where = f"Secret {self._namespace}/{identity.secret} of {identity.label}"

        async def find() -> tuple[AwsCredentials, timedelta]:
            try:
                live = await place.client.get(SECRETS, self._namespace, identity.secret)
                if live is None:
                    raise NoAccess(f"there is no {where}; create it with AccessKeyID and SecretAccessKey")
                key, secret, token = (
                    (secret_value(live.raw, name) or b"").decode().strip()
                    for name in ("AccessKeyID", "SecretAccessKey", "SessionToken")
                )
            except (ClusterError, UnicodeDecodeError) as error:
                said = "it is no text" if isinstance(error, UnicodeDecodeError) else str(error)
                raise NoAccess(f"{where} can't be read: {said}") from None
            if not key or not secret:
                raise NoAccess(f"{where} has no AccessKeyID or no SecretAccessKey; set both")
            origin = ("static", place.name, identity.uid, live.uid, live.resource_version)
            return AwsCredentials(key, secret, token, identity.label, origin), CACHE_TTL

        return await self._keys.get((place.name, identity.uid, identity.secret), find)

    async def _assumed(
        self, place: SourceCluster, identity: CapaIdentity, role: AssumedRole, source: AwsCredentials, region: str
    ) -> AwsCredentials:
        """Cached until shortly before expiry, keyed by everything that it came from: a change of an identity, or of one
        it refers to, has the role assumed again."""
        origin = ("role", place.name, identity.uid, identity.version, *source.origin)

        async def find() -> tuple[AwsCredentials, timedelta]:
            try:
                answer = await self._sessions.assume_role(source, region, role.arguments())
            except AwsError as error:
                hint = " (see the role's trust policy and the external id)" if error.what == "denied" else ""
                raise NoAccess(f"{identity.label}: {source.label} can't assume {role.arn}: {error}{hint}") from None
            except NoAccess as error:
                self._own.forget(source, region)
                self.forget(source)
                raise NoAccess(f"{identity.label}: {source.label} can't assume {role.arn}: {error}") from None
            made, now = answer["Credentials"], datetime.now(UTC)
            lasting: timedelta = made["Expiration"] - now - RENEW_BEFORE
            key = AwsCredentials(
                made["AccessKeyId"], made["SecretAccessKey"], made["SessionToken"], identity.label, origin
            )
            return key, max(lasting, CACHE_TTL)

        return await self._roles.get(origin, find)
