"""The way to AWS: clients of the SDK, made once for each key, region and service, lent to all who ask, closed in time.
One call is one request; the SDK retries nothing, because budgets stand before a call and durable retries behind it."""

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from types import TracebackType
from typing import Any, Final, Self

from aiobotocore.config import AioConfig
from aiobotocore.credentials import AioContainerProvider
from aiobotocore.session import AioSession, get_session
from aiobotocore.utils import AioContainerMetadataFetcher
from botocore.exceptions import BotoCoreError, UnknownRegionError
from botocore.loaders import Loader, create_loader

from workers.handlers.aws.access import OWN, Access
from workers.handlers.aws.default_chain import failed_link
from workers.handlers.aws.errors import NoAccess, fit, no_answer_of_aws, translated
from workers.handlers.aws.http_session import BoundedMetadataSession, BoundedSession
from workers.handlers.aws.operations import operation_of

CONNECT: Final = timedelta(seconds=5)
READ: Final = timedelta(seconds=20)
WHOLE: Final = timedelta(seconds=30)
"""Of one call: an answer that comes byte by byte never runs into the other two."""

CONNECTIONS: Final = 50
"""Of one client."""

IDLE: Final = timedelta(minutes=15)
MOST: Final = 256
"""A client costs memory: with a key for every tenant those that nobody uses must go."""

GOOD: Final = timedelta(minutes=5)
"""So long after a call that was answered a key is taken for good."""


@dataclass(slots=True)
class _Lent:
    client: Any
    closing: AsyncExitStack
    used: float
    busy: int = 0


@cache
def service_models() -> Loader:
    """The SDK's data files, which it keeps once they are parsed."""
    return create_loader(os.environ.get("AWS_DATA_PATH"))


def new_session() -> AioSession:
    """A session that shares the parsed data files with all others of this process: EC2's alone take 0.3 s."""
    session: AioSession = get_session()
    session.register_component("data_loader", service_models())
    return session


def _bound_container(session: AioSession) -> None:
    """Puts a provider that reads up to a limit in the place of the one for Pod Identity, if that is not done yet."""
    chain = session.get_component("credential_provider")
    if not isinstance(chain.get_provider(AioContainerProvider.METHOD), _BoundedContainer):
        chain.insert_after(AioContainerProvider.METHOD, _BoundedContainer())
        # The first of that name.
        chain.remove(AioContainerProvider.METHOD)


class _BoundedContainer(AioContainerProvider):  # type: ignore[misc]  # the SDK carries no types
    def __init__(self) -> None:
        timeout = AioContainerMetadataFetcher.TIMEOUT_SECONDS
        super().__init__(fetcher=AioContainerMetadataFetcher(session=BoundedMetadataSession(timeout)))


class Sessions:
    """An async context. `endpoint` replaces the addresses of all services: a stand-in's, or that of a VPC endpoint."""

    def __init__(
        self,
        endpoint: str | None = None,
        *,
        most: int = MOST,
        within: timedelta = WHOLE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        # At a lower level they write down what they send and get, session tokens and secret keys included.
        for name in ("botocore", "aiobotocore"):
            logging.getLogger(name).setLevel(logging.WARNING)
        self._endpoint, self._most, self._within, self._clock = endpoint, most, within, clock
        self._session = new_session()
        self._found: Access | None = None
        # When the process's own key was last good, by region.
        self._good: dict[str, float] = {}
        self._making = asyncio.Lock()
        self._clients: dict[tuple[Access, str, str], _Lent] = {}
        self._config = AioConfig(
            connect_timeout=CONNECT.total_seconds(),
            read_timeout=READ.total_seconds(),
            max_pool_connections=CONNECTIONS,
            retries={"total_max_attempts": 1, "mode": "standard"},
            user_agent_extra="knell",
            http_session_cls=BoundedSession,
        )
        self._own = self._of_own()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        async with self._making:
            for lent in self._clients.values():
                await lent.closing.aclose()
            self._clients.clear()

    # ---- whose keys

    async def own(self, region: str) -> Access:
        """By the default chain: environment, files, IRSA, Pod Identity, the machine. Renewed by the SDK in time."""
        try:
            if self._own.get_config_variable("region") is None:
                # The region in which a web identity is exchanged for a key, where the environment names none.
                self._own.set_config_variable("region", region)
            _bound_container(self._own)
            async with asyncio.timeout(self._within.total_seconds()):
                found = await self._own.get_credentials()
                frozen = None if found is None else await found.get_frozen_credentials()
        except Exception as error:
            known = translated(error, failed_link(error))
            if known is None:
                raise
            raise NoAccess(f"the credentials of this process can't be had: {known}") from None
        if frozen is None:
            raise NoAccess(
                "this process has no AWS credentials; give its service account a role (IRSA or Pod Identity), or set "
                "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name an identity in spec.identityRef"
            )
        self._found = Access(frozen.access_key, frozen.secret_key, frozen.token or "", "this process", OWN)
        return self._found

    def forget_own(self, refused: Access) -> None:
        """Look for them anew, files and all; once, however many hear that these are refused."""
        if self._found == refused:
            self._own, self._found = self._of_own(), None
            self._good.clear()

    def good_elsewhere(self, access: Access, region: str) -> str:
        """A region in which the process's own key was good of late, unless it was so in this one, too. Then that key
        is in order: this region is of another partition, or not enabled."""
        since = self._clock() - GOOD.total_seconds()
        good = [one for one, at in self._good.items() if at >= since] if access.origin == OWN else []
        return good[0] if good and region not in good else ""

    def _of_own(self) -> AioSession:
        """The clients that the SDK makes by itself, to exchange a web identity for a key, are made like ours."""
        made = new_session()
        made.set_default_client_config(self._config)
        return made

    # ---- where

    def partition(self, region: str) -> str:
        """`aws`, `aws-cn`, `aws-us-gov`. Raises NoAccess."""
        try:
            return str(self._session.get_partition_for_region(region))
        except UnknownRegionError:
            raise NoAccess(f"{region!r} is no region of AWS that this version knows; correct spec.region") from None
        except BotoCoreError as error:
            # The SDK reads its files before it answers anything.
            raise NoAccess(f"the configuration of AWS that this process has can't be used: {fit(str(error))}") from None

    # ---- calling

    async def call(
        self, access: Access, region: str, service: str, operation: str, arguments: dict[str, Any]
    ) -> dict[str, Any]:
        """Raises AwsError, and NoAccess where AWS does not accept the key."""
        action = operation_of(service, operation).action
        try:
            async with asyncio.timeout(self._within.total_seconds()), self._lend(access, region, service) as client:
                answer: dict[str, Any] = await getattr(client, operation)(**arguments)
        except Exception as error:
            known = translated(error, action)
            if known is None:
                raise
            # Not chained: what the SDK raises may hold the whole request.
            raise known from None
        # A page of a proxy with status 200 decodes to an answer in which nothing is: that would be taken for absence.
        if not answer.get("ResponseMetadata", {}).get("RequestId"):
            raise no_answer_of_aws(action, 200)
        if access.origin == OWN:
            self._good[region] = self._clock()
        return answer

    @property
    def open(self) -> int:
        """How many clients there are."""
        return len(self._clients)

    async def address(self, access: Access, region: str, service: str) -> str:
        """Where calls go."""
        async with self._lend(access, region, service) as client:
            return str(client.meta.endpoint_url)

    @asynccontextmanager
    async def _lend(self, access: Access, region: str, service: str) -> AsyncIterator[Any]:
        key = (access, region, service)
        lent = self._clients.get(key)
        if lent is None:
            async with self._making:
                lent = self._clients.get(key) or await self._make(key)
                # Before anybody else may make room.
                lent.busy += 1
        else:
            lent.busy += 1
        try:
            yield lent.client
        finally:
            lent.busy -= 1
            lent.used = self._clock()

    async def _make(self, key: tuple[Access, str, str]) -> _Lent:
        access, region, service = key
        await self._make_room()
        # Models are megabytes of JSON: the loop must not stand still while they are read.
        loader = self._session.get_component("data_loader")
        await asyncio.to_thread(loader.load_service_model, service, "service-2")
        closing = AsyncExitStack()
        client = await closing.enter_async_context(
            self._session.create_client(
                service,
                region_name=region,
                endpoint_url=self._endpoint,
                aws_access_key_id=access.key,
                aws_secret_access_key=access.secret,
                aws_session_token=access.token or None,
                config=self._config,
            )
        )
        made = self._clients[key] = _Lent(client, closing, self._clock())
        return made

    async def _make_room(self) -> None:
        """Only what nobody uses at this moment is closed; who keeps a key but no client gets a new one."""
        now, surplus = self._clock(), len(self._clients) - self._most + 1
        by_age = sorted(self._clients.items(), key=lambda item: item[1].used)
        for key, lent in by_age:
            # Asked for each: while one is being closed another may have been lent.
            if not lent.busy and (surplus > 0 or now - lent.used > IDLE.total_seconds()):
                surplus -= 1
                del self._clients[key]
                await lent.closing.aclose()
