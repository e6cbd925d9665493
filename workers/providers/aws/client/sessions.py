"""Pool of SDK clients, one per credentials, region and service, and the process's own credentials. One call is one
request: the SDK does not retry, because budgets come before a call and durable retries after it."""

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
from typing import Any, Final, Protocol, Self

from aiobotocore.config import AioConfig
from aiobotocore.credentials import AioContainerProvider
from aiobotocore.session import AioSession, get_session
from aiobotocore.utils import AioContainerMetadataFetcher
from botocore.exceptions import BotoCoreError, UnknownRegionError
from botocore.loaders import Loader, create_loader

from workers.providers.aws.client.credentials import OWN_ORIGIN, AwsCredentials, failed_provider
from workers.providers.aws.client.http_session import BoundedMetadataSession, BoundedSession
from workers.providers.aws.client.operations import operation_names
from workers.providers.aws.errors import NoAccess, not_from_aws, sanitize, translate

CONNECT_TIMEOUT: Final = timedelta(seconds=5)
READ_TIMEOUT: Final = timedelta(seconds=20)
CALL_TIMEOUT: Final = timedelta(seconds=30)
"""For a whole call: a body that arrives byte by byte never exceeds the other two."""

MAX_CONNECTIONS: Final = 50
"""Per client."""

IDLE_TIMEOUT: Final = timedelta(minutes=15)
MAX_CLIENTS: Final = 256
"""Clients take memory: with credentials per tenant, unused ones are closed."""

VALID_FOR: Final = timedelta(minutes=5)
"""How long after a successful call credentials count as valid."""


@dataclass(slots=True)
class _PooledClient:
    client: Any
    closing: AsyncExitStack
    used: float
    busy: int = 0


@cache
def service_models() -> Loader:
    """The SDK's data files, cached once they are parsed."""
    return create_loader(os.environ.get("AWS_DATA_PATH"))


def new_session() -> AioSession:
    """A session that shares the parsed data files of the process: EC2's alone take 0.3 s to parse."""
    session: AioSession = get_session()
    session.register_component("data_loader", service_models())
    return session


def _limit_container_provider(session: AioSession) -> None:
    """Replaces the provider for Pod Identity, once, by one that limits the size of responses."""
    chain = session.get_component("credential_provider")
    if not isinstance(chain.get_provider(AioContainerProvider.METHOD), _BoundedContainerProvider):
        chain.insert_after(AioContainerProvider.METHOD, _BoundedContainerProvider())
        # Removes the first provider of that name.
        chain.remove(AioContainerProvider.METHOD)


class _BoundedContainerProvider(AioContainerProvider):  # type: ignore[misc]  # the SDK carries no types
    def __init__(self) -> None:
        timeout = AioContainerMetadataFetcher.TIMEOUT_SECONDS
        super().__init__(fetcher=AioContainerMetadataFetcher(session=BoundedMetadataSession(timeout)))


class RoleSessions(Protocol):
    """What a collector may call: only calls of services without a limit."""

    def partition(self, region: str) -> str: ...
    async def assume_role(
        self, credentials: AwsCredentials, region: str, arguments: dict[str, Any]
    ) -> dict[str, Any]: ...


class SdkSessions:
    """An async context. `endpoint` overrides the endpoints of all services: a stand-in's, or a VPC endpoint."""

    def __init__(
        self,
        endpoint: str | None = None,
        *,
        max_clients: int = MAX_CLIENTS,
        timeout: timedelta = CALL_TIMEOUT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        # At lower levels the SDK logs requests and responses, including session tokens and secret keys.
        for name in ("botocore", "aiobotocore"):
            logging.getLogger(name).setLevel(logging.WARNING)
        self._endpoint, self._max_clients, self._timeout, self._clock = endpoint, max_clients, timeout, clock
        self._session = new_session()
        self._found: AwsCredentials | None = None
        # When the process's own credentials were last valid, by region.
        self._valid: dict[str, float] = {}
        self._making = asyncio.Lock()
        self._clients: dict[tuple[AwsCredentials, str, str], _PooledClient] = {}
        self._config = AioConfig(
            connect_timeout=CONNECT_TIMEOUT.total_seconds(),
            read_timeout=READ_TIMEOUT.total_seconds(),
            max_pool_connections=MAX_CONNECTIONS,
            retries={"total_max_attempts": 1, "mode": "standard"},
            user_agent_extra="knell",
            # Else the bucket would be a part of the host's name, which only the hosts of AWS have.
            s3={"addressing_style": "path"} if endpoint else None,
            http_session_cls=BoundedSession,
        )
        self._own = self._of_own()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        async with self._making:
            for pooled in self._clients.values():
                await pooled.closing.aclose()
            self._clients.clear()

    # ---- the process's own credentials

    async def own_credentials(self, region: str) -> AwsCredentials:
        """By the SDK's default chain: environment, files, IRSA, Pod Identity, instance metadata. The SDK renews
        them."""
        try:
            if self._own.get_config_variable("region") is None:
                # The region of the STS call for a web identity, if the environment names none.
                self._own.set_config_variable("region", region)
            _limit_container_provider(self._own)
            async with asyncio.timeout(self._timeout.total_seconds()):
                found = await self._own.get_credentials()
                frozen = None if found is None else await found.get_frozen_credentials()
        except Exception as error:
            known = translate(error, failed_provider(error))
            if known is None:
                raise
            raise NoAccess(f"the credentials of this process can't be had: {known}") from None
        if frozen is None:
            raise NoAccess(
                "this process has no AWS credentials; give its service account a role (IRSA or Pod Identity), or set "
                "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name an identity in the object"
            )
        self._found = AwsCredentials(
            frozen.access_key, frozen.secret_key, frozen.token or "", "this process", OWN_ORIGIN
        )
        return self._found

    def forget_own(self, refused: AwsCredentials) -> None:
        """Runs the default chain again, once, however many callers report that these are refused."""
        if self._found == refused:
            self._own, self._found = self._of_own(), None
            self._valid.clear()

    def valid_elsewhere(self, credentials: AwsCredentials, region: str) -> str:
        """A region in which the process's own credentials were valid lately, unless they were in this one. Then the
        credentials are fine, and this region is of another partition or not enabled."""
        since = self._clock() - VALID_FOR.total_seconds()
        valid = [one for one, at in self._valid.items() if at >= since] if credentials.origin == OWN_ORIGIN else []
        return valid[0] if valid and region not in valid else ""

    def _of_own(self) -> AioSession:
        """The SDK's own STS clients, for web identities, get the same configuration."""
        made = new_session()
        made.set_default_client_config(self._config)
        return made

    # ---- partitions

    def partition(self, region: str) -> str:
        """`aws`, `aws-cn`, `aws-us-gov`. Raises NoAccess."""
        try:
            return str(self._session.get_partition_for_region(region))
        except UnknownRegionError:
            raise NoAccess(
                f"{region!r} is no region of AWS that this version knows; correct the object's region"
            ) from None
        except BotoCoreError as error:
            # The SDK parses its configuration files first.
            raise NoAccess(
                f"the configuration of AWS that this process has can't be used: {sanitize(str(error))}"
            ) from None

    # ---- calls

    async def assume_role(self, credentials: AwsCredentials, region: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return await self.call(credentials, region, "sts", "assume_role", arguments)

    async def call(
        self, credentials: AwsCredentials, region: str, service: str, operation: str, arguments: dict[str, Any]
    ) -> dict[str, Any]:
        """Knows no limits: `SdkClient` draws tokens first. Raises AwsError, and NoAccess if AWS does not accept the
        credentials."""
        action = operation_names(service, operation).action
        try:
            async with (
                asyncio.timeout(self._timeout.total_seconds()),
                self._borrow(credentials, region, service) as client,
            ):
                answer: dict[str, Any] = await getattr(client, operation)(**arguments)
        except Exception as error:
            known = translate(error, action)
            if known is None:
                raise
            # Not chained: the SDK's exception may hold the whole request.
            raise known from None
        # A proxy's page with status 200 parses as an empty response, which would count as absence.
        if not answer.get("ResponseMetadata", {}).get("RequestId"):
            raise not_from_aws(action, 200)
        if credentials.origin == OWN_ORIGIN:
            self._valid[region] = self._clock()
        return answer

    @property
    def open(self) -> int:
        """Number of open clients."""
        return len(self._clients)

    async def address(self, credentials: AwsCredentials, region: str, service: str) -> str:
        """The endpoint URL of a service."""
        async with self._borrow(credentials, region, service) as client:
            return str(client.meta.endpoint_url)

    @asynccontextmanager
    async def _borrow(self, credentials: AwsCredentials, region: str, service: str) -> AsyncIterator[Any]:
        key = (credentials, region, service)
        pooled = self._clients.get(key)
        if pooled is None:
            async with self._making:
                pooled = self._clients.get(key) or await self._make(key)
                # Before another task can evict it.
                pooled.busy += 1
        else:
            pooled.busy += 1
        try:
            yield pooled.client
        finally:
            pooled.busy -= 1
            pooled.used = self._clock()

    async def _make(self, key: tuple[AwsCredentials, str, str]) -> _PooledClient:
        credentials, region, service = key
        await self._make_room()
        # Models are megabytes of JSON: parsed in a thread so that the event loop keeps running.
        loader = self._session.get_component("data_loader")
        await asyncio.to_thread(loader.load_service_model, service, "service-2")
        closing = AsyncExitStack()
        client = await closing.enter_async_context(
            self._session.create_client(
                service,
                region_name=region,
                endpoint_url=self._endpoint,
                aws_access_key_id=credentials.key,
                aws_secret_access_key=credentials.secret,
                aws_session_token=credentials.token or None,
                config=self._config,
            )
        )
        made = self._clients[key] = _PooledClient(client, closing, self._clock())
        return made

    async def _make_room(self) -> None:
        """Closes idle clients only; credentials without a client get a new one."""
        now, surplus = self._clock(), len(self._clients) - self._max_clients + 1
        by_age = sorted(self._clients.items(), key=lambda item: item[1].used)
        for key, pooled in by_age:
            # Checked each time: another client may be borrowed while one is being closed.
            if not pooled.busy and (surplus > 0 or now - pooled.used > IDLE_TIMEOUT.total_seconds()):
                surplus -= 1
                del self._clients[key]
                await pooled.closing.aclose()
