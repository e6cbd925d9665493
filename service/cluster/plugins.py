"""Credentials that somebody else's program or service hands out: exec plugins, OIDC, gcloud.
kubernetes_asyncio knows how; it is imported only when such a user is met, for it brings 40 MB of models with it."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from service.cluster.errors import Unauthorized
from service.cluster.kubeconfig import Entry, User
from service.masking import mask_text

# A token that does not say when it ends is asked for again after this time, and after every 401.
_UNDATED: Final = timedelta(minutes=10)
# Renewed so long before its end, or after half its time where it is short.
_MARGIN: Final = timedelta(minutes=2)
_PATIENCE: Final = timedelta(seconds=60)


class Issued(msgspec.Struct, frozen=True):
    """What a plugin gave: the value of the Authorization header, or a client certificate, and for how long."""

    authorization: str
    certificate: str
    key: str
    lasts: timedelta


def needed(user: User) -> bool:
    return user.exec is not None or user.auth_provider is not None


async def ask(entry: Entry) -> Issued:
    """Raises Unauthorized where the plugin fails; its own words may hold anything, so they are masked and cut."""
    from kubernetes_asyncio.config.kube_config import KubeConfigLoader

    user = {key: value for key, value in msgspec.to_builtins(entry.user).items() if value}
    loader = KubeConfigLoader(
        {
            "current-context": "only",
            "contexts": [{"name": "only", "context": {"cluster": "only", "user": "only"}}],
            "clusters": [{"name": "only", "cluster": {"server": entry.server.server}}],
            "users": [{"name": "only", "user": user}],
        }
    )
    failure = ""
    try:
        async with asyncio.timeout(_PATIENCE.total_seconds()):
            await loader._load_authentication()  # the public way also writes our keys into files that stay
    except Exception as error:  # noqa: BLE001 - a foreign program may fail in any way
        failure = mask_text(str(error))[:300] or type(error).__name__
    if failure:
        raise Unauthorized(f"the credential plugin of the kubeconfig's user failed: {failure}")
    expiry = getattr(loader, "exec_plugin_expiry", None)
    lasts = _UNDATED if expiry is None else _until(expiry)
    return Issued(
        authorization=getattr(loader, "token", ""),
        certificate=getattr(loader, "cert_file", "") or "",
        key=getattr(loader, "key_file", "") or "",
        lasts=lasts,
    )


def _until(expiry: datetime) -> timedelta:
    left = expiry - datetime.now(UTC)
    return max(left - _MARGIN, left / 2, timedelta(seconds=1))
