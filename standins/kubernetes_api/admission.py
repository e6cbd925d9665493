"""Admission of deletions: the validating webhooks of stored configurations are asked before an object is deleted.
An object that changed while they were asked is judged again, as on the real server. ValidatingAdmissionPolicies are
stored but not evaluated."""

import asyncio
import base64
import binascii
import ssl
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
import msgspec

from standins.kubernetes_api import statuses
from standins.kubernetes_api.api_resources import NAMESPACES, WEBHOOKS, ApiResource
from standins.kubernetes_api.authorization import User
from standins.kubernetes_api.deletion import DeleteOptions, refuse
from standins.kubernetes_api.documents import Document, decode, encode
from standins.kubernetes_api.state import ClusterState
from standins.kubernetes_api.statuses import StatusError
from standins.kubernetes_api.webhook_matching import ValidatingWebhook, matching_webhooks

_API_VERSION: Final = "admission.k8s.io/v1"
_HARMLESS_IN_DRY_RUN: Final = ("None", "NoneOnDryRun")


@dataclass(frozen=True, slots=True)
class Deletion:
    """A deletion that is asked for. Each object of a collection is a deletion that names no object, as on the real
    server."""

    resource: ApiResource
    version: str
    namespace: str
    name: str
    options: DeleteOptions
    user: User
    collection: bool = False


class CallFailed(Exception):
    """A webhook gave no answer that counts; the message is that of the real server."""


class _ReviewStatus(msgspec.Struct):
    message: str = ""
    reason: str = ""
    code: int = 0


class _ReviewResponse(msgspec.Struct):
    uid: str = ""
    allowed: bool = False
    status: _ReviewStatus | None = None


class _Answered(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    response: _ReviewResponse | None = None


class Admission:
    """Every deletion but those of the CRD controller is admitted here. Connections last while `serving`."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._session: aiohttp.ClientSession | None = None
        self._contexts: dict[str, ssl.SSLContext] = {}

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        async with aiohttp.ClientSession(headers={"User-Agent": "kube-apiserver-admission"}) as session:
            self._session = session
            try:
                yield
            finally:
                self._session = None

    async def admit(self, asked: Deletion) -> None:
        """Returns once the object as it is stored now may be deleted; the caller deletes it without awaiting anything.
        Raises StatusError, also if it does not exist."""
        resource, place = asked.resource, (asked.namespace, asked.name)
        while self._state.store.table(WEBHOOKS.stored_in).objects:
            raw = self._state.get(resource, *place)
            document = decode(raw)
            refuse(resource, document, asked.options)
            # A Namespace that is being deleted already is not judged again; any other object is.
            if resource == NAMESPACES and "deletionTimestamp" in document["metadata"]:
                return
            await self._judge(asked, document)
            if self._state.find(resource, *place) == raw:
                return

    async def _judge(self, asked: Deletion, document: Document) -> None:
        async with asyncio.TaskGroup() as calls:
            running = [
                calls.create_task(self._ask(webhook, asked, document, version))
                for webhook, version in matching_webhooks(self._state, asked.resource, asked.version, document)
            ]
        for refusal in filter(None, (one.result() for one in running)):
            raise refusal

    async def _ask(
        self, webhook: ValidatingWebhook, asked: Deletion, document: Document, version: str
    ) -> StatusError | None:
        """Returns the refusal."""
        if asked.options.dry_run and webhook.side_effects not in _HARMLESS_IN_DRY_RUN:
            return statuses.bad_request(f'admission webhook "{webhook.name}" does not support dry run')
        review = _review(asked, document, version)
        try:
            async with asyncio.timeout(webhook.timeout_seconds):
                response = await self._call(webhook, review)
        except (CallFailed, TimeoutError) as error:
            if webhook.failure_policy == "Ignore":
                return None
            why = str(error) or f"failed to call webhook: {_posted(webhook)}: context deadline exceeded"
            return statuses.internal_error(f'failed calling webhook "{webhook.name}": {why}')
        return None if response.allowed else _denial(webhook, response.status)

    async def _call(self, webhook: ValidatingWebhook, review: Document) -> _ReviewResponse:
        """Raises CallFailed."""
        side = webhook.client_config
        if self._session is None or not side.url:
            name = (side.service or {}).get("name", "")
            raise CallFailed(f'failed to call webhook: {_posted(webhook)}: service "{name}" not found')
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        address = f"{side.url}?timeout={webhook.timeout_seconds}s"
        context = self._context(side.ca_bundle)
        try:
            async with self._session.post(address, data=encode(review), headers=headers, ssl=context) as answer:
                body, status = await answer.read(), answer.status
        except (aiohttp.ClientError, OSError) as error:
            raise CallFailed(f"failed to call webhook: {_posted(webhook)}: {_in_words_of_go(error)}") from None
        if status != 200:
            text = body.decode(errors="replace").strip()
            why = f'an error on the server ("{text}") has prevented the request from succeeding'
            raise CallFailed(f"failed to call webhook: {why}")
        return _response(body, review["request"]["uid"])

    def _context(self, bundle: str) -> ssl.SSLContext:
        found = self._contexts.get(bundle)
        if found is None:
            try:
                text = base64.b64decode(bundle).decode() or None
                found = ssl.create_default_context(cadata=text)
            except (binascii.Error, UnicodeDecodeError, ssl.SSLError) as error:
                raise CallFailed(f"failed to call webhook: unable to load root certificates: {error}") from None
            self._contexts[bundle] = found
        return found


def _review(asked: Deletion, document: Document, version: str) -> Document:
    """The AdmissionReview that a webhook gets."""
    resource, meta = asked.resource, document["metadata"]
    group = resource.group
    request: dict[str, Any] = {
        "uid": str(uuid.uuid4()),
        "kind": {"group": group, "version": version, "kind": resource.kind},
        "resource": {"group": group, "version": version, "resource": resource.plural},
        "requestKind": {"group": group, "version": asked.version, "kind": resource.kind},
        "requestResource": {"group": group, "version": asked.version, "resource": resource.plural},
    }
    if not asked.collection:
        request["name"] = meta["name"]
    if resource.namespaced or (resource == NAMESPACES and not asked.collection):
        request["namespace"] = meta.get("namespace") or meta["name"]
    request |= {
        "operation": "DELETE",
        "userInfo": {"username": asked.user.name, "groups": list(asked.user.groups)},
        "object": None,
        "oldObject": {"apiVersion": resource.api_version(version), "kind": resource.kind, **document},
        "dryRun": bool(asked.options.dry_run),
        "options": {
            "kind": "DeleteOptions",
            "apiVersion": "meta.k8s.io/v1",
            **{key: value for key, value in msgspec.to_builtins(asked.options).items() if value is not None},
        },
    }
    return {"kind": "AdmissionReview", "apiVersion": _API_VERSION, "request": request}


def _response(body: bytes, uid: str) -> _ReviewResponse:
    """Raises CallFailed."""
    try:
        found = msgspec.json.decode(body, type=_Answered)
    except msgspec.DecodeError as error:
        raise CallFailed(f"failed to call webhook: couldn't read the response: {error}") from None
    invalid = "received invalid webhook response: "
    if found.response is None:
        raise CallFailed(f"{invalid}webhook response was absent")
    if found.response.uid != uid:
        raise CallFailed(f'{invalid}expected response.uid="{uid}", got "{found.response.uid}"')
    if (found.api_version, found.kind) != (_API_VERSION, "AdmissionReview"):
        raise CallFailed(
            f"{invalid}expected webhook response of {_API_VERSION}, Kind=AdmissionReview, "
            f"got {found.api_version}, Kind={found.kind}"
        )
    return found.response


def _denial(webhook: ValidatingWebhook, status: _ReviewStatus | None) -> StatusError:
    denied = f'admission webhook "{webhook.name}" denied the request'
    said = status or _ReviewStatus()
    why = said.message or said.reason
    message = f"{denied}: {why}" if why else f"{denied} without explanation"
    return StatusError(max(said.code, 400), said.reason, message)


def _posted(webhook: ValidatingWebhook) -> str:
    side = webhook.client_config
    service = side.service or {}
    address = side.url or (
        f"https://{service.get('name')}.{service.get('namespace')}.svc:{service.get('port', 443)}"
        f"{service.get('path', '/')}"
    )
    return f'Post "{address}?timeout={webhook.timeout_seconds}s"'


def _in_words_of_go(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"tls: failed to verify certificate: x509: {error.certificate_error}"
    if isinstance(error, aiohttp.ClientConnectorSSLError):
        return f"remote error: tls: {error.os_error}"
    if isinstance(error, aiohttp.ClientConnectorError) and isinstance(error.os_error, ConnectionRefusedError):
        return f"dial tcp {error.host}:{error.port}: connect: connection refused"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "EOF"
    return str(error) or type(error).__name__
