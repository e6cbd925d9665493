"""Clients for one identity, account and region, with the account verified by STS. Permission to use an identity may be
withdrawn at any time, so a client rechecks it every few seconds."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from service.contract import Draw
from workers.providers.aws.client.credentials import OWN_ORIGIN, AwsCredentials, IdentityResolver
from workers.providers.aws.client.operations import operation_names
from workers.providers.aws.client.own_credentials import OwnCredentials
from workers.providers.aws.client.paging import paginate
from workers.providers.aws.client.sessions import SdkSessions
from workers.providers.aws.client.ttl_cache import TtlCache
from workers.providers.aws.errors import BUDGET_EXHAUSTED, AwsError, NoAccess
from workers.providers.aws.limits import AwsLimits, place_of_account
from workers.providers.aws.model import AwsBudgets, CallScope

ACCOUNT_TTL: Final = timedelta(minutes=5)
"""How long the account of credentials is cached: it can't change, but what answers for AWS can."""

IDENTITY_TTL: Final = timedelta(seconds=15)
"""When an identity is read again, also in the middle of a batch. With the cache of the reads themselves, a withdrawn
identity stops within half a minute."""

PACED_WAIT: Final = timedelta(seconds=5)
"""How long a paced call waits for the budget in total, by default."""

PATIENT_WAIT: Final = timedelta(minutes=2)
"""The same for lists in the background, which hold no lease."""

MAX_REFUSALS: Final = 3
"""Retries in a row of a throttled call by a patient client: one refused page must not restart a list of hundreds."""


class CallerIdentity(NamedTuple):
    """The result of sts:GetCallerIdentity."""

    account: str
    arn: str


class SdkClients:
    """Implements AwsClients; an async context. `limits` is what calls draw on; `collector_of` returns the collector of
    a source in the settings, empty if there is no such source; `endpoint` overrides the endpoints of all services;
    `account` is the one that the process's own credentials must belong to."""

    def __init__(
        self,
        limits: AwsLimits,
        collector_of: Callable[[str], str],
        *,
        endpoint: str | None = None,
        account: str | None = None,
        quota: AwsBudgets | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.sessions = SdkSessions(endpoint, clock=clock)
        self.own_credentials = OwnCredentials(self.sessions, clock=clock)
        self.limits, self.quota, self.clock = limits, quota, clock
        self._collector_of, self._resolvers = collector_of, dict[str, IdentityResolver]()
        self._account = account or ""
        # Per region: credentials that one region refuses may be valid in another.
        self._callers = TtlCache[tuple[AwsCredentials, str], CallerIdentity](clock=clock)

    def add_resolver(self, collector: str, resolver: IdentityResolver) -> None:
        """From now on it resolves the identities of this collector's sources."""
        self._resolvers[collector] = resolver

    async def __aenter__(self) -> Self:
        await self.sessions.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.sessions.__aexit__(kind, error, trace)

    async def client(
        self, scope: CallScope, *, account: str = "", paced: bool = False, patient: bool = False
    ) -> "SdkClient":
        """With `account`, the credentials must belong to it. `paced` clients draw on the shared budgets, for callers
        without a lane, and wait a few seconds (AwsError says when tokens will be available); `patient` ones wait for
        minutes. Raises NoAccess."""
        until = self.clock() + IDENTITY_TTL.total_seconds()
        credentials, caller = await self.authenticate(scope, account)
        wait = PATIENT_WAIT if patient else PACED_WAIT if paced else None
        return SdkClient(self, scope, credentials, caller.account, until, wait=wait, patient=patient)

    async def caller_identity(self, scope: CallScope) -> CallerIdentity:
        """The account and ARN of an identity, to display, also if it is not the expected account. Raises NoAccess."""
        return (await self._identified(scope))[1]

    async def authenticate(self, scope: CallScope, account: str) -> tuple[AwsCredentials, CallerIdentity]:
        """Credentials and their account; never of an account other than the expected one."""
        credentials, caller = await self._identified(scope)
        own = self._account if credentials.origin == OWN_ORIGIN else ""
        for expected, why in ((account, "the resources are in account"), (own, "the setting aws.account says")):
            if expected and expected != caller.account:
                raise NoAccess(
                    f"{why} {expected}, but {credentials.label} is of account {caller.account} ({caller.arn}): "
                    f"nothing is looked for there; correct the identity that the object names, or the credentials"
                )
        return credentials, caller

    async def _identified(self, scope: CallScope) -> tuple[AwsCredentials, CallerIdentity]:
        credentials = await self._credentials(scope)

        async def find() -> tuple[CallerIdentity, timedelta]:
            try:
                answer = await self.sessions.call(credentials, scope.region, "sts", "get_caller_identity", {})
            except AwsError as error:
                raise NoAccess(f"the account of {credentials.label} can't be determined: {error}") from None
            except NoAccess as error:
                valid_region = self.sessions.valid_elsewhere(credentials, scope.region)
                self._forget(credentials, scope.region)
                if not valid_region:
                    raise
                raise NoAccess(
                    f"{error}; {valid_region} accepts those of {credentials.label}, so let the object name an identity "
                    f"that region {scope.region} knows, or enable the region"
                ) from None
            return CallerIdentity(answer["Account"], answer["Arn"]), ACCOUNT_TTL

        return credentials, await self._callers.get((credentials, scope.region), find)

    def refused(self, credentials: AwsCredentials, region: str) -> None:
        """Drops credentials that AWS no longer accepts in the region."""
        self._forget(credentials, region)
        self._callers.forget((credentials, region))

    async def _credentials(self, scope: CallScope) -> AwsCredentials:
        """By the collector of the scope's source, as the settings say: neither a claim nor a scope chooses who resolves
        an identity."""
        if not scope.identity:
            self.sessions.partition(scope.region)
            return await self.own_credentials.get(scope.region)
        collector = self._collector_of(scope.source)
        if not collector:
            raise NoAccess(f"this process has no way to the cluster of source {scope.source}, which has the identity")
        resolver = self._resolvers.get(collector)
        if resolver is None:
            raise NoAccess(f"identity {scope.identity} can't be used: collector {collector} knows no identities of AWS")
        return await resolver.credentials(scope)

    def _forget(self, credentials: AwsCredentials, region: str) -> None:
        self.own_credentials.forget(credentials, region)
        for resolver in self._resolvers.values():
            resolver.forget(credentials)


class SdkClient:
    """Implements AwsClient. Raises AwsError, and NoAccess if the identity or its credentials can't be used any more.
    `wait` is how long a call waits for the shared budget; None if a lane has drawn for it."""

    def __init__(
        self, clients: SdkClients, scope: CallScope, credentials: AwsCredentials, account: str, until: float, *,
        wait: timedelta | None = None, patient: bool = False,
    ) -> None:  # fmt: skip
        self._clients, self._whose, self._credentials, self._account = clients, scope, credentials, account
        self._until, self._wait, self._patient = until, wait, patient

    @property
    def scope(self) -> CallScope:
        return self._whose

    @property
    def account(self) -> str:
        return self._account

    async def call(self, service: str, operation: str, /, **arguments: Any) -> dict[str, Any]:
        """One request without retry, `service` and `operation` as botocore names them. A paced client waits for the
        budget a little; a patient one waits long and retries throttled calls."""
        named = operation_names(service, operation)
        # Also if a lane has drawn for the call: an operation without a declared limit is not called at all.
        draws = self._clients.limits.of(self._whose.region, named.limited)
        refusals = 0
        while True:
            if self._wait is not None:
                await self._draw(draws, named.action, self._wait)
            try:
                return await self._request(service, operation, arguments)
            except AwsError as error:
                if error.what != "throttled" or self._wait is None:
                    raise
                await self._tell(draws)
                if not self._patient or refusals == MAX_REFUSALS:
                    raise
            await asyncio.sleep(2**refusals)
            refusals += 1

    def pages(self, service: str, operation: str, key: str, /, **arguments: Any) -> AsyncIterator[list[dict[str, Any]]]:
        """Each page's list under `key`; a page may be empty while more follow. A list that ends without an error is
        complete."""
        return paginate(self.call, service, operation, key, arguments)

    async def renew(self, lasting: timedelta) -> None:
        begun = self._clients.clock()
        if begun + lasting.total_seconds() >= self._until:
            self._credentials, _ = await self._clients.authenticate(self._whose, self._account)
            self._until = begun + IDENTITY_TTL.total_seconds()

    def unreserved(self) -> "SdkClient":
        return SdkClient(
            self._clients, self._whose, self._credentials, self._account, self._until, wait=timedelta(0)
        )  # fmt: skip

    async def _request(self, service: str, operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
        # After waiting for the budget: permission must hold at the time of the call.
        begun = self._clients.clock()
        await self.renew(timedelta(0))
        credentials = self._credentials
        try:
            return await self._clients.sessions.call(credentials, self._whose.region, service, operation, arguments)
        except NoAccess:
            self._clients.refused(credentials, self._whose.region)
            # The next call gets new credentials, if there are any.
            self._until = begun
            raise

    async def _draw(self, draws: Sequence[Draw], action: str, left: timedelta) -> None:
        quota = self._clients.quota
        if quota is None or not draws:
            return
        place = place_of_account(self._account)
        while wait := await quota.draw(place, draws):
            if wait > left:
                said = f"the shared budget of account {self._account} has no room for it yet"
                raise AwsError("throttled", action, BUDGET_EXHAUSTED, said, after=wait)
            left -= wait
            await asyncio.sleep(wait.total_seconds())

    async def _tell(self, draws: Sequence[Draw]) -> None:
        quota = self._clients.quota
        if quota is not None and draws:
            told, *others = (draw.limit for draw in draws)
            await quota.refused(place_of_account(self._account), told, None, others)
