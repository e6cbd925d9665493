"""As whom a cluster's resources are reached: its identityRef is read in its management cluster, and turned into a key.
Whether its namespace may use that identity, and every one behind it, is settled before AWS is asked for anything."""

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

from service.contract.aws import CAPA_NAMESPACE
from service.kubernetes import NAMESPACES, SECRETS, ClusterError
from service.kubernetes.decoding import text_of_secret
from workers.handlers.aws.access import OWN, Access
from workers.handlers.aws.errors import AwsError, NoAccess
from workers.handlers.aws.model import Whose
from workers.handlers.aws.remembering import Remembered
from workers.handlers.aws.sessions import Sessions
from workers.handlers.aws.tenancy import RESOURCES, Identity, Role, identity_of, kind_and_name, permits
from workers.handlers.places import Place, Places

FRESH: Final = timedelta(seconds=5)
"""How long what was read of an identity, a Secret or a Namespace is used."""

EARLY: Final = timedelta(minutes=2)
"""So long before it ends a session is replaced: longer than any call that begins with it."""

DEEPEST: Final = 8
"""Identities one behind the other; STS itself sees no limit, people do."""


class Identities:
    """`namespace` is where Cluster API Provider AWS runs, and so where the Secrets of static identities are."""

    def __init__(
        self,
        places: Places,
        sessions: Sessions,
        *,
        namespace: str = CAPA_NAMESPACE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._places, self._sessions, self._namespace = places, sessions, namespace
        self._read = Remembered[tuple[str, str], Identity](clock=clock)
        self._labels = Remembered[tuple[str, str], dict[str, str]](clock=clock)
        self._own = Remembered[str, Access](clock=clock)
        self._keys = Remembered[tuple[str, ...], Access](clock=clock)
        self._roles = Remembered[tuple[str, ...], Access](clock=clock)

    async def access(self, whose: Whose) -> Access:
        """Raises NoAccess, with a sentence that says what to do."""
        partition = self._sessions.partition(whose.region)
        if not whose.identity:
            return await self._of_this_process(whose.region)
        place = self._places.of(whose.source)
        if place is None:
            raise NoAccess(f"this process has no way to the cluster of source {whose.source}, which has the identity")
        *roles, last = await self._chain(place, whose)
        if last.role is not None:
            roles.append(last)
        # All partitions before any call: a key of one says nothing in another.
        for one in roles:
            if one.role is not None and one.role.partition != partition:
                raise NoAccess(
                    f"region {whose.region} is in partition {partition}, but {one.called} has a role of "
                    f"{one.role.partition}: {one.role.arn}; correct spec.region or spec.identityRef"
                )
        access = await (self._static(place, last) if last.secret else self._of_this_process(whose.region))
        for one in reversed(roles):
            if one.role is not None:
                access = await self._assumed(place, one, one.role, access, whose.region)
        return access

    def forget(self, access: Access, region: str) -> None:
        """AWS did not accept it in that region: it is made anew for who asks next. All share the process's own, which
        is not forgotten for a region that never knew it."""
        if access.origin == OWN and not self._sessions.good_elsewhere(access, region):
            self._sessions.forget_own(access)
            self._own.forget("")
        self._roles.forget(access.origin)

    # ---- which identities, and whether they may be used

    async def _chain(self, place: Place, whose: Whose) -> Sequence[Identity]:
        """The identity and those behind it. As Cluster API has it, each must allow the cluster's namespace."""
        chain: list[Identity] = []
        called = whose.identity
        while called:
            before = [one.called for one in chain]
            if called in before:
                raise NoAccess(f"identities refer to each other in a circle: {' -> '.join([*before, called])}")
            if len(chain) == DEEPEST:
                raise NoAccess(f"more than {DEEPEST} identities one behind the other: {' -> '.join(before)}")
            one = await self._read.get((place.name, called), partial(self._find, place, called))
            await self._permit(place, one, whose.namespace)
            chain.append(one)
            called = one.source
        return chain

    async def _find(self, place: Place, called: str) -> tuple[Identity, timedelta]:
        kind, name = kind_and_name(called)
        try:
            live = await place.get(RESOURCES[kind], "", name)
        except ClusterError as error:
            raise NoAccess(f"{called} can't be read: {error}") from None
        if live is None:
            raise NoAccess(f"there is no {called} in cluster {place.name}; create it, or correct spec.identityRef")
        return identity_of(called, live.uid, live.resource_version, live.raw), FRESH

    async def _permit(self, place: Place, identity: Identity, namespace: str) -> None:
        allowed = identity.allowed
        try:
            if permits(allowed, namespace, None):
                return
            if allowed is not None and allowed.requirements():
                found = await self._labels.get((place.name, namespace), partial(self._find_labels, place, namespace))
                if permits(allowed, namespace, found):
                    return
        except ValueError as error:
            raise NoAccess(f"spec.allowedNamespaces of {identity.called} can't be understood: {error}") from None
        raise NoAccess(
            f"{identity.called} may not be used from namespace {namespace}: its spec.allowedNamespaces does not allow "
            f"it; add the namespace there, or name another identity in spec.identityRef"
        )

    async def _find_labels(self, place: Place, namespace: str) -> tuple[dict[str, str], timedelta]:
        try:
            live = await place.cluster.get(NAMESPACES, "", namespace, metadata_only=True)
        except ClusterError as error:
            raise NoAccess(f"the labels of Namespace {namespace} can't be read: {error}") from None
        if live is None:
            raise NoAccess(f"there is no Namespace {namespace} in cluster {place.name}")
        return live.labels, FRESH

    # ---- keys

    async def _of_this_process(self, region: str) -> Access:
        async def find() -> tuple[Access, timedelta]:
            return await self._sessions.own(region), FRESH

        return await self._own.get("", find)

    async def _static(self, place: Place, identity: Identity) -> Access:
        where = f"Secret {self._namespace}/{identity.secret} of {identity.called}"

        async def find() -> tuple[Access, timedelta]:
            try:
                live = await place.cluster.get(SECRETS, self._namespace, identity.secret)
                if live is None:
                    raise NoAccess(f"there is no {where}; create it with AccessKeyID and SecretAccessKey")
                key, secret, token = (
                    (text_of_secret(live.raw, name) or b"").decode().strip()
                    for name in ("AccessKeyID", "SecretAccessKey", "SessionToken")
                )
            except (ClusterError, UnicodeDecodeError) as error:
                said = "it is no text" if isinstance(error, UnicodeDecodeError) else str(error)
                raise NoAccess(f"{where} can't be read: {said}") from None
            if not key or not secret:
                raise NoAccess(f"{where} has no AccessKeyID or no SecretAccessKey; set both")
            origin = ("static", place.name, identity.uid, live.uid, live.resource_version)
            return Access(key, secret, token, identity.called, origin), FRESH

        return await self._keys.get((place.name, identity.uid, identity.secret), find)

    async def _assumed(self, place: Place, identity: Identity, role: Role, by: Access, region: str) -> Access:
        """Kept until shortly before it ends, under everything that it came from: whoever changes an identity, or what
        is behind it, has it assumed anew."""
        origin = ("role", place.name, identity.uid, identity.version, *by.origin)

        async def find() -> tuple[Access, timedelta]:
            try:
                answer = await self._sessions.call(by, region, "sts", "assume_role", role.arguments())
            except AwsError as error:
                hint = " (see the role's trust policy and the external id)" if error.what == "denied" else ""
                raise NoAccess(f"{identity.called}: {by.by} can't assume {role.arn}: {error}{hint}") from None
            except NoAccess as error:
                self.forget(by, region)
                raise NoAccess(f"{identity.called}: {by.by} can't assume {role.arn}: {error}") from None
            made, now = answer["Credentials"], datetime.now(UTC)
            lasting: timedelta = made["Expiration"] - now - EARLY
            key = Access(made["AccessKeyId"], made["SecretAccessKey"], made["SessionToken"], identity.called, origin)
            return key, max(lasting, FRESH)

        return await self._roles.get(origin, find)
