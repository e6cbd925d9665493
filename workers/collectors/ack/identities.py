"""Resolver of the roles in ACK's maps into AWS credentials. A role is assumed only for a namespace that ACK's maps or
the settings lead there, whatever a claim says."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

from service.kubernetes import NAMESPACES, ClusterError, NotFound
from service.sources.ack import OWNER_ACCOUNT, TEAM, AckSettings
from workers.collectors.ack.role_maps import (
    RoleIdentity,
    RoleMaps,
    partition_of_role,
    read_role_maps,
    role_of_account,
    role_of_selector,
    role_of_team,
    selects_namespace,
)
from workers.handlers.source_clusters import SourceCluster, SourceClusters
from workers.providers.aws.client.credentials import AwsCredentials
from workers.providers.aws.client.own_credentials import OwnCredentials
from workers.providers.aws.client.sessions import RoleSessions
from workers.providers.aws.client.ttl_cache import TtlCache
from workers.providers.aws.errors import AwsError, NoAccess
from workers.providers.aws.model import CallScope

CACHE_TTL: Final = timedelta(seconds=5)
"""How long reads of maps and Namespaces are cached."""

RENEW_BEFORE: Final = timedelta(minutes=2)
"""Sessions are replaced this long before they expire: longer than any call that begins with them."""


class AckIdentities:
    """Implements the IdentityResolver of the provider."""

    def __init__(
        self,
        places: SourceClusters,
        sessions: RoleSessions,
        own: OwnCredentials,
        settings: AckSettings,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._places, self._sessions, self._own, self._settings = places, sessions, own, settings
        self._maps = TtlCache[str, RoleMaps](clock=clock)
        self._roles = TtlCache[tuple[str, ...], AwsCredentials](clock=clock)

    async def maps(self, place: SourceCluster) -> RoleMaps:
        """Raises NoAccess."""

        async def find() -> tuple[RoleMaps, timedelta]:
            try:
                return await read_role_maps(place, self._settings.controller_namespace), CACHE_TTL
            except ClusterError as error:
                raise NoAccess(f"ACK's maps of roles can't be read: {error}") from None

        return await self._maps.get(place.name, find)

    async def credentials(self, scope: CallScope) -> AwsCredentials:
        """Raises NoAccess, with a message that says what to do."""
        partition = self._sessions.partition(scope.region)
        place = self._places.of(scope.source)
        if place is None:
            raise NoAccess(f"this process has no way to the cluster of source {scope.source}, which has the maps")
        identity = await self._identity(place, scope)
        if partition_of_role(identity.role) != partition:
            raise NoAccess(
                f"region {scope.region} is in partition {partition}, and {identity.label} has a role of another one: "
                f"{identity.role}"
            )
        return await self._assumed(identity, await self._own.get(scope.region), scope.region)

    def forget(self, credentials: AwsCredentials) -> None:
        self._roles.forget(credentials.origin)

    # ---- which role, and whether the namespace may use it

    async def _identity(self, place: SourceCluster, scope: CallScope) -> RoleIdentity:
        maps = await self.maps(place)
        way, _, name = scope.identity.partition("/")
        if way == "selector":
            selector = next((one for one in maps.selectors if one.metadata.name == name), None)
            if selector is None:
                raise NoAccess(f"there is no IAMRoleSelector {name} in cluster {place.name} any more")
            labels = await self.namespace_labels(place, scope.namespace)
            if not selects_namespace(selector, scope.namespace, labels):
                raise NoAccess(f"IAMRoleSelector {name} does not select namespace {scope.namespace}")
            return role_of_selector(selector)
        if way == "team":
            found = role_of_team(maps, name)
            await self._permit(place, scope.namespace, TEAM, name, found.account)
            return found
        service, _, account = name.partition("/")
        if way != "account" or not account:
            raise NoAccess(f"{scope.identity!r} is no identity by ACK's maps")
        found = role_of_account(maps, service, account)
        if not found.role:
            raise NoAccess(f"ACK's map has no role for account {account} any more")
        await self._permit(place, scope.namespace, OWNER_ACCOUNT, account, account)
        return found

    async def _permit(self, place: SourceCluster, namespace: str, annotation: str, value: str, account: str) -> None:
        """By the Namespace as it is now, or by the settings: it may be deleted with its objects."""
        allowed = self._settings.scope(namespace)
        if allowed is not None and account in allowed.accounts:
            return
        try:
            marks = await place.marks(namespace)
        except NotFound:
            raise NoAccess(
                f"Namespace {namespace} is gone, and with it the annotation {annotation} that led to account "
                f"{account}; add the account to ack.namespaces for that namespace"
            ) from None
        except ClusterError as error:
            raise NoAccess(f"Namespace {namespace} can't be read: {error}") from None
        if marks.get(annotation) != value:
            raise NoAccess(
                f"{value} may not be used from namespace {namespace}: its annotation {annotation} is "
                f"{marks.get(annotation)!r}"
            )

    async def namespace_labels(self, place: SourceCluster, namespace: str) -> dict[str, str]:
        """Empty if it is gone: then only selectors by name count."""
        try:
            live = await place.client.get(NAMESPACES, "", namespace, metadata_only=True)
        except ClusterError as error:
            raise NoAccess(f"the labels of Namespace {namespace} can't be read: {error}") from None
        return live.labels if live is not None else {}

    # ---- credentials

    async def _assumed(self, identity: RoleIdentity, source: AwsCredentials, region: str) -> AwsCredentials:
        return await self._roles.get(
            ("ack-role", identity.role, *source.origin), partial(self._assume, identity, source, region)
        )

    async def _assume(
        self, identity: RoleIdentity, source: AwsCredentials, region: str
    ) -> tuple[AwsCredentials, timedelta]:
        arguments = {"RoleArn": identity.role, "RoleSessionName": "knell"}
        try:
            answer = await self._sessions.assume_role(source, region, arguments)
        except AwsError as error:
            hint = " (its trust policy must allow this process, as it allows ACK)" if error.what == "denied" else ""
            raise NoAccess(f"{source.label} can't assume {identity.role}: {error}{hint}") from None
        except NoAccess as error:
            self._own.forget(source, region)
            raise NoAccess(f"{source.label} can't assume {identity.role}: {error}") from None
        made = answer["Credentials"]
        lasting: timedelta = made["Expiration"] - datetime.now(UTC) - RENEW_BEFORE
        origin = ("ack-role", identity.role, *source.origin)
        key = AwsCredentials(made["AccessKeyId"], made["SecretAccessKey"], made["SessionToken"], identity.label, origin)
        return key, max(lasting, CACHE_TTL)
