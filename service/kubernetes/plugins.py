"""Credentials that a program or a service issues for a kubeconfig's user: exec plugins, OIDC, gcloud.
kubernetes_asyncio obtains them; nothing here writes a key into a file."""

import asyncio
import re
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from service.kubernetes.errors import Unauthorized
from service.kubernetes.kubeconfig import Entry, User
from service.masking import mask_text

# A token that does not say when it ends is asked for again after this time, and after every 401.
_UNDATED: Final = timedelta(minutes=10)
# Renewed so long before its end, or after half its time where it is short.
_MARGIN: Final = timedelta(minutes=2)
_PATIENCE: Final = timedelta(seconds=60)
_ENDED: Final = re.compile(r"exec: process returned -?\d+")


class Issued(msgspec.Struct, frozen=True, kw_only=True):
    """The value of the Authorization header or a client certificate in PEM, and for how long they are used."""

    authorization: str = ""
    certificate: str = ""
    key: str = ""
    lasts: timedelta = _UNDATED

    def __repr__(self) -> str:
        return "Issued(***)"


class _ExecStatus(msgspec.Struct):
    token: str | None = None
    certificate: str | None = msgspec.field(default=None, name="clientCertificateData")
    key: str | None = msgspec.field(default=None, name="clientKeyData")
    expires: datetime | None = msgspec.field(default=None, name="expirationTimestamp")


def needed(user: User) -> bool:
    return user.exec is not None or user.auth_provider is not None


async def ask(entry: Entry) -> Issued:
    """Raises Unauthorized where the plugin fails."""
    failure = ""
    try:
        async with asyncio.timeout(_PATIENCE.total_seconds()):
            if entry.user.auth_provider is None:
                return await _from_program(entry.user.exec)
            return await _from_provider(entry)
    except msgspec.ValidationError:
        failure = "its output is not an ExecCredential"
    except Exception as error:  # noqa: BLE001 - a foreign program may fail in any way
        failure = _fit(str(error)) or type(error).__name__
    raise Unauthorized(f"the credential plugin of the kubeconfig's user failed: {failure}")


def _fit(words: str) -> str:
    """What the library says, to be shown. It repeats the standard error of a program that fails, which may hold the
    credential itself: that is left out."""
    ended = _ENDED.match(words)
    return f"{ended[0]} (run it by hand to see what it writes)" if ended else mask_text(words)[:300]


async def _from_program(exec_config: dict[str, Any] | None) -> Issued:
    """By ExecProvider and not by the loader around it: that puts the key of a certificate into a file that stays."""
    from kubernetes_asyncio.config.exec_provider import ExecProvider
    from kubernetes_asyncio.config.kube_config import ConfigNode

    status = msgspec.convert(await ExecProvider(ConfigNode("exec", exec_config)).run(), _ExecStatus)
    if not status.token and not (status.certificate and status.key):
        raise ValueError("it gave neither a token nor a client certificate with its key")
    return Issued(
        authorization=f"Bearer {status.token}" if status.token else "",
        certificate=status.certificate or "",
        key=status.key or "",
        lasts=_UNDATED if status.expires is None else _until(status.expires),
    )


async def _from_provider(entry: Entry) -> Issued:
    """The loader is given no certificates: it would put them into files that stay."""
    from kubernetes_asyncio.client import Configuration
    from kubernetes_asyncio.config import load_kube_config_from_dict

    user = {key: value for key, value in msgspec.to_builtins(entry.user).items() if value}
    configuration = Configuration()
    await load_kube_config_from_dict(
        {
            "current-context": "only",
            "contexts": [{"name": "only", "context": {"cluster": "only", "user": "only"}}],
            "clusters": [{"name": "only", "cluster": {"server": entry.server.server}}],
            "users": [{"name": "only", "user": {k: v for k, v in user.items() if not k.startswith("client-")}}],
        },
        client_configuration=configuration,
    )
    return Issued(authorization=configuration.api_key.get("BearerToken", ""))


def _until(expiry: datetime) -> timedelta:
    if expiry.tzinfo is None:
        raise ValueError(f"its expirationTimestamp has no time zone: {expiry.isoformat()}")
    left = expiry - datetime.now(UTC)
    return max(left - _MARGIN, left / 2, timedelta(seconds=1))
