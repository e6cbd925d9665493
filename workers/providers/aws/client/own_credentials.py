"""The process's own credentials, by the SDK's default chain, cached for a few seconds. They are shared by all scopes
without an identity, and by identities that build on them."""

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from workers.providers.aws.client.credentials import OWN_ORIGIN, AwsCredentials
from workers.providers.aws.client.sessions import SdkSessions
from workers.providers.aws.client.ttl_cache import TtlCache

CACHE_TTL: Final = timedelta(seconds=5)


class OwnCredentials:
    def __init__(self, sessions: SdkSessions, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._sessions = sessions
        self._cache = TtlCache[str, AwsCredentials](clock=clock)

    async def get(self, region: str) -> AwsCredentials:
        """`region` is that of the STS call for a web identity, if the environment names none. Raises NoAccess."""

        async def find() -> tuple[AwsCredentials, timedelta]:
            return await self._sessions.own_credentials(region), CACHE_TTL

        return await self._cache.get("", find)

    def forget(self, credentials: AwsCredentials, region: str) -> None:
        """Drops them if AWS refused them in the region. They are shared, and kept if only a region of another
        partition, or one that is not enabled, refused them."""
        if credentials.origin == OWN_ORIGIN and not self._sessions.valid_elsewhere(credentials, region):
            self._sessions.forget_own(credentials)
            self._cache.forget("")
