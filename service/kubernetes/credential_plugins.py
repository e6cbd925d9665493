"""Credential plugins of kubeconfig users: exec programs, OIDC, gcloud. kubernetes_asyncio runs them; no key is written
to a file."""

import asyncio
import re
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from service.kubernetes.errors import Unauthorized
from service.kubernetes.kubeconfig import KubeconfigContext, KubeconfigUser
from service.masking import mask_text

# A token without an expiry is requested again after this time, and after every 401.
_WITHOUT_EXPIRY: Final = timedelta(minutes=10)
# Requested again this long before its expiry, or after half its lifetime if that is shorter.
_MARGIN: Final = timedelta(minutes=2)
_TIMEOUT: Final = timedelta(seconds=60)
_EXIT_MESSAGE: Final = re.compile(r"exec: process returned -?\d+")


class IssuedCredential(msgspec.Struct, frozen=True, kw_only=True):
    """The value of the Authorization header or a client certificate in PEM, and how long they are used."""

    authorization: str = ""
    certificate: str = ""
    key: str = ""
    lifetime: timedelta = _WITHOUT_EXPIRY

    def __repr__(self) -> str:
        return "IssuedCredential(***)"


class _ExecStatus(msgspec.Struct):
    token: str | None = None
    certificate: str | None = msgspec.field(default=None, name="clientCertificateData")
    key: str | None = msgspec.field(default=None, name="clientKeyData")
    expires: datetime | None = msgspec.field(default=None, name="expirationTimestamp")


def needs_plugin(user: KubeconfigUser) -> bool:
    return user.exec is not None or user.auth_provider is not None


async def issue_credential(entry: KubeconfigContext) -> IssuedCredential:
    """Raises Unauthorized if the plugin fails."""
    failure = ""
    try:
        async with asyncio.timeout(_TIMEOUT.total_seconds()):
            if entry.user.auth_provider is None:
                return await _from_program(entry.user.exec)
            return await _from_provider(entry)
    except msgspec.ValidationError:
        failure = "its output is not an ExecCredential"
    except Exception as error:  # noqa: BLE001 - the plugin may fail in any way
        failure = _safe_message(str(error)) or type(error).__name__
    raise Unauthorized(f"the credential plugin of the kubeconfig's user failed: {failure}")


def _safe_message(words: str) -> str:
    """The message of the library without the standard error of the program, which may contain the credential."""
    ended = _EXIT_MESSAGE.match(words)
    return f"{ended[0]} (run it by hand to see what it writes)" if ended else mask_text(words)[:300]


async def _from_program(exec_config: dict[str, Any] | None) -> IssuedCredential:
    """With ExecProvider, not with the loader around it, which writes the key of a certificate to a file that stays."""
    from kubernetes_asyncio.config.exec_provider import ExecProvider
    from kubernetes_asyncio.config.kube_config import ConfigNode

    status = msgspec.convert(await ExecProvider(ConfigNode("exec", exec_config)).run(), _ExecStatus)
    if not status.token and not (status.certificate and status.key):
        raise ValueError("it gave neither a token nor a client certificate with its key")
    return IssuedCredential(
        authorization=f"Bearer {status.token}" if status.token else "",
        certificate=status.certificate or "",
        key=status.key or "",
        lifetime=_WITHOUT_EXPIRY if status.expires is None else _remaining(status.expires),
    )


async def _from_provider(entry: KubeconfigContext) -> IssuedCredential:
    """Without certificates: the loader would write them to files that stay."""
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
    return IssuedCredential(authorization=configuration.api_key.get("BearerToken", ""))


def _remaining(expiry: datetime) -> timedelta:
    if expiry.tzinfo is None:
        raise ValueError(f"its expirationTimestamp has no time zone: {expiry.isoformat()}")
    left = expiry - datetime.now(UTC)
    return max(left - _MARGIN, left / 2, timedelta(seconds=1))
