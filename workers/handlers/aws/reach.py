"""How handlers and the collector get at AWS: one account and region, as one identity, with the account proven.
An identity may be withdrawn while work goes on, so calls look every few seconds whether it still is what it was."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from service.contract.aws import CAPA_NAMESPACE
from service.policy.aws_accounts import is_own
from workers.handlers.aws.access import Access
from workers.handlers.aws.errors import NO_ROOM, AwsError, NoAccess
from workers.handlers.aws.identities import Identities
from workers.handlers.aws.limits import limits_of, place_of_account
from workers.handlers.aws.model import Quota, Whose
from workers.handlers.aws.operations import operation_of
from workers.handlers.aws.paging import pages_by
from workers.handlers.aws.remembering import Remembered
from workers.handlers.aws.sessions import Sessions
from workers.handlers.places import Places

SURE: Final = timedelta(minutes=5)
"""How long the account of a key is known: it can't change, but the one who answers for AWS can."""

TRUSTED: Final = timedelta(seconds=15)
"""After so long an identity is looked at again, also in the middle of a batch. With the few seconds for which a reading
is used, one that is withdrawn stops within half a minute."""

PATIENCE: Final = timedelta(seconds=5)
"""How long a paced call waits for room in the budget, in all, unless its caller says otherwise."""

PATIENT: Final = timedelta(minutes=2)
"""The same for a call of a list in the background, for which nobody's lease is kept."""

REFUSALS: Final = 3
"""How often in a row such a call is tried again after AWS refused it for want of quota: a list of hundreds of pages
would else begin anew for one of them."""


class Caller(NamedTuple):
    """Who AWS says that we are."""

    account: str
    arn: str


class AwsReach:
    """An async context, and the Reach of the model. `endpoint` replaces the addresses of all services; `account` is the
    one that the process's own credentials must be of; `namespace` is where Secrets of static identities are."""

    def __init__(
        self,
        places: Places,
        *,
        endpoint: str | None = None,
        account: str | None = None,
        namespace: str = CAPA_NAMESPACE,
        quota: Quota | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.sessions = Sessions(endpoint, clock=clock)
        self.identities = Identities(places, self.sessions, namespace=namespace, clock=clock)
        self.quota, self.clock = quota, clock
        self._account = account or ""
        # By region, too: one that refuses a key says nothing of the others.
        self._callers = Remembered[tuple[Access, str], Caller](clock=clock)

    async def __aenter__(self) -> Self:
        await self.sessions.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.sessions.__aexit__(kind, error, trace)

    async def calls(self, whose: Whose, *, account: str = "", paced: bool = False, patient: bool = False) -> "AwsCalls":
        """With `account`, the caller's must be that one. `paced` calls draw on the shared budgets themselves: for who
        has no lane that did. `patient` ones are paced, and wait for as long as it takes; others for some
        seconds: AwsError says when there will be room. Raises NoAccess."""
        until = self.clock() + TRUSTED.total_seconds()
        access, caller = await self.enter(whose, account)
        wait = PATIENT if patient else PATIENCE if paced else None
        return AwsCalls(self, whose, access, caller.account, until, wait=wait, patient=patient)

    async def whoami(self, whose: Whose) -> Caller:
        """For people. Raises NoAccess."""
        return (await self.enter(whose, ""))[1]

    async def enter(self, whose: Whose, account: str) -> tuple[Access, Caller]:
        """A key, and who it makes us; never one of an account other than the one that is meant."""
        access = await self.identities.access(whose)

        async def find() -> tuple[Caller, timedelta]:
            try:
                answer = await self.sessions.call(access, whose.region, "sts", "get_caller_identity", {})
            except AwsError as error:
                raise NoAccess(f"nobody can tell which account {access.by} is of: {error}") from None
            except NoAccess as error:
                good = self.sessions.good_elsewhere(access, whose.region)
                self.identities.forget(access, whose.region)
                if not good:
                    raise
                raise NoAccess(
                    f"{error}; {good} accepts those of {access.by}, so name an identity that region {whose.region} "
                    f"knows in spec.identityRef, or enable the region"
                ) from None
            return Caller(answer["Account"], answer["Arn"]), SURE

        caller = await self._callers.get((access, whose.region), find)
        own = self._account if is_own(whose.identity) else ""
        for expected, why in ((account, "the resources are in account"), (own, "the setting aws.account says")):
            if expected and expected != caller.account:
                raise NoAccess(
                    f"{why} {expected}, but {access.by} is of account {caller.account} ({caller.arn}): nothing is "
                    f"looked for there; correct spec.identityRef, or the credentials"
                )
        return access, caller

    def refused(self, access: Access, region: str) -> None:
        """AWS does not accept this key there, or not any more."""
        self.identities.forget(access, region)
        self._callers.forget((access, region))


class AwsCalls:
    """The Calls of the model: raises AwsError, and NoAccess where the identity, its account or its key is none now.
    `wait` is how long each of them waits for room in the shared budget; None: a lane has drawn for them."""

    def __init__(
        self, reach: AwsReach, whose: Whose, access: Access, account: str, until: float, *,
        wait: timedelta | None = None, patient: bool = False,
    ) -> None:  # fmt: skip
        self._reach, self._whose, self._access, self._account = reach, whose, access, account
        self._until, self._wait, self._patient = until, wait, patient

    @property
    def whose(self) -> Whose:
        return self._whose

    @property
    def account(self) -> str:
        return self._account

    async def call(self, service: str, operation: str, /, **arguments: Any) -> dict[str, Any]:
        """`service` and `operation` as botocore names them; one request, no retry. Only a paced one waits, a little; a
        patient one waits long, and asks again where AWS refused it for want of quota."""
        refusals = 0
        while True:
            if self._wait is not None:
                await self._draw(service, operation, self._wait)
            try:
                return await self._request(service, operation, arguments)
            except AwsError as error:
                if error.what != "throttled" or self._wait is None:
                    raise
                await self._tell(service, operation)
                if not self._patient or refusals == REFUSALS:
                    raise
            await asyncio.sleep(2**refusals)
            refusals += 1

    def pages(self, service: str, operation: str, key: str, /, **arguments: Any) -> AsyncIterator[list[dict[str, Any]]]:
        """Each page's list under `key`; a page may be empty while more follow. A list that ends without an error is
        complete."""
        return pages_by(self.call, service, operation, key, arguments)

    async def _request(self, service: str, operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
        # After the waiting: it is the moment of the call that counts.
        begun = self._reach.clock()
        if begun >= self._until:
            self._access, _ = await self._reach.enter(self._whose, self._account)
            self._until = begun + TRUSTED.total_seconds()
        access = self._access
        try:
            return await self._reach.sessions.call(access, self._whose.region, service, operation, arguments)
        except NoAccess:
            self._reach.refused(access, self._whose.region)
            # Who goes on with these calls gets a new key, if there is one.
            self._until = begun
            raise

    async def _draw(self, service: str, operation: str, left: timedelta) -> None:
        quota, named = self._reach.quota, operation_of(service, operation)
        draws = limits_of(self._whose.region, named.limited)
        if quota is None or not draws:
            return
        place = place_of_account(self._account)
        while wait := await quota.draw(place, draws):
            if wait > left:
                said = f"the shared budget of account {self._account} has no room for it yet"
                raise AwsError("throttled", named.action, NO_ROOM, said, after=wait)
            left -= wait
            await asyncio.sleep(wait.total_seconds())

    async def _tell(self, service: str, operation: str) -> None:
        quota, draws = self._reach.quota, limits_of(self._whose.region, operation_of(service, operation).limited)
        if quota is not None and draws:
            told, *others = (draw.limit for draw in draws)
            await quota.refused(place_of_account(self._account), told, None, others)
