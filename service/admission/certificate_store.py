"""Certificate of the webhook, kept in a Secret that all replicas share: made and rotated by Knell, or given.

Each pass reads the webhook configuration and the Secret, and makes at most one change to one of them, which stands even
if the process ends behind it; the next pass, of any replica, goes on from there. Concurrent changes are conflicts."""

import asyncio
import random
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, NamedTuple

import structlog

from service.admission import certificate_rotation as rotation
from service.admission.ca_bundle import CONFIGURATIONS, RegisteredBundles, read_bundles, write_bundle
from service.admission.certificate_rotation import EMPTY, MADE, RotationTimes, StoredCertificates, due_step
from service.admission.certificates import (
    BadCertificate,
    KeyedCertificate,
    called_name,
    certificate_names,
    find_defect,
    require_key,
    valid_authorities,
)
from service.admission.names import CONFIGURATION
from service.admission.served_certificate import ServedCertificate
from service.kubernetes import SECRETS, ClusterError, Conflict, Forbidden, KubeObject, KubernetesClient, NotFound
from service.settings import Settings

log = structlog.get_logger(__name__)

DEFAULT_TIMES: Final = RotationTimes()
# A whole rotation takes nine passes if nothing has to be waited for.
_MOST_PASSES: Final = 30
_TYPE: Final = "kubernetes.io/tls"


class CertificateProblem(Exception):
    """There is no certificate to be served; the message says why, and what to do."""


class _ReadBundles(NamedTuple):
    """The webhook configuration: `bundles` is None if there is none, or if it can't be read. `problem` says so."""

    bundles: RegisteredBundles | None
    readable: bool
    problem: str


def utc_now() -> datetime:
    return datetime.now(UTC)


class CertificateStore:
    """`prepare` before the listener starts, then `run`. `context` serves the certificate that was read last, `expires`
    is its end, and `problem` says why the API server may not be able to call the webhook; empty if all is well."""

    def __init__(
        self,
        settings: Settings,
        cluster: KubernetesClient,
        *,
        clock: Callable[[], datetime] = utc_now,
        times: RotationTimes = DEFAULT_TIMES,
    ) -> None:
        webhook = settings.protection.webhook
        self._webhook, self._cluster, self._clock, self._times = webhook, cluster, clock, times
        self._namespace, self._secret = settings.watch.namespace, webhook.secret
        self._called = called_name(webhook, self._namespace)
        self._names = certificate_names(webhook, self._namespace)
        self._served = ServedCertificate()
        self.context = self._served.context
        self.problem = ""
        self._where = f"Secret {self._namespace}/{self._secret}"
        self._log = log.bind(cluster=cluster.name, secret=f"{self._namespace}/{self._secret}")

    @property
    def expires(self) -> datetime | None:
        return self._served.expires

    async def prepare(self) -> None:
        """Reads or makes the first certificate. Raises CertificateProblem."""
        try:
            await self.refresh()
        except ClusterError as error:
            raise CertificateProblem(f"the certificate of the webhook can't be read or made: {error}") from None
        if self._served.keyed is None:
            raise CertificateProblem(self.problem)

    async def run(self) -> None:
        """Until it is cancelled: serves what is in the Secret, and takes the steps that are due."""
        while True:
            await asyncio.sleep(self._times.look.total_seconds() * random.uniform(0.8, 1.0))
            before = self.problem
            try:
                await self.refresh()
            except ClusterError as error:
                self.problem = f"the certificate of the webhook can't be kept up to date: {error}"
            if self.problem and self.problem != before:
                self._log.warning("certificate of the webhook", problem=self.problem)

    async def refresh(self) -> None:
        """All steps that are due now. Raises ClusterError."""
        for _ in range(_MOST_PASSES):
            try:
                if not await self.advance():
                    return
            except Conflict:
                # Changed or deleted since it was read.
                continue
        raise Conflict(f"{self._where} or {CONFIGURATIONS.kind} {CONFIGURATION} is changed by others all the time")

    async def advance(self) -> bool:
        """One pass. Whether it has made a change, so that another step may be due at once. Raises ClusterError."""
        # First the configuration, then the Secret: see ca_bundle.py.
        registered = await self._registered()
        secret = await self._cluster.get(SECRETS, self._namespace, self._secret)
        self.problem = registered.problem
        if self._webhook.certificate == "self-made":
            return await self._advance_self_made(registered, secret)
        return await self._advance_given(registered, secret)

    async def rotate(self) -> None:
        """Makes the next certificate now, whatever the age of the current one; the other steps follow in their time."""
        for _ in range(_MOST_PASSES):
            secret = await self._cluster.get(SECRETS, self._namespace, self._secret)
            if secret is None:
                raise NotFound(f"cluster {self._cluster.name}: there is no {self._where}", name=self._secret)
            stored = rotation.decode_secret(secret.raw)
            if stored.next is not None:
                return
            try:
                await self._write(secret, rotation.prepared(stored, self._names, self._clock(), self._times))
            except Conflict:
                continue
            return
        raise Conflict(f"{self._where} is changed by others all the time")

    async def _advance_self_made(self, registered: _ReadBundles, secret: KubeObject | None) -> bool:
        stored = EMPTY if secret is None else rotation.decode_secret(secret.raw)
        if secret is not None and MADE not in secret.annotations and (stored.current.certificate or stored.current.key):
            self.problem = (
                f"{self._where} has a certificate that Knell did not make, and is not overwritten: name another one in "
                "protection.webhook.secret, delete it, or set protection.webhook.certificate to `secret`"
            )
            return False
        now = self._clock()
        step = due_step(stored, self._called, now, self._times)
        if step == "replace":
            trusted = registered.bundles.together if registered.bundles is not None else b""
            self._log.info("certificate of the webhook is made", reason=find_defect(stored.current, self._called, now))
            await self._write(secret, self._replacement(stored, trusted, now))
            return True
        if registered.bundles is not None:
            following = stored.next if stored.next_trusted else None
            if following is not None and not registered.bundles.all_have(following.authority):
                # Another program has replaced the bundle: API servers need time again to see ours.
                await self._write(secret, rotation.trusted_since(stored, None))
                return True
            if await self._bundle_written(registered, rotation.bundle(stored, now)):
                return True
        # Only now, so that a certificate is never served before the bundle has its CA.
        try:
            self._load(stored.current)
        except BadCertificate as error:
            self.problem = f"the certificate of {self._where} {error}; delete the Secret, and Knell makes another one"
            return False
        changed = self._after(step, stored, now)
        if changed is None or (step != "prepare" and not registered.readable):
            return False
        self._log.info("certificate of the webhook is rotated", step=step)
        await self._write(secret, changed)
        return True

    def _after(self, step: rotation.Step, stored: StoredCertificates, now: datetime) -> StoredCertificates | None:
        match step:
            case "prepare":
                return rotation.prepared(stored, self._names, now, self._times)
            case "trust":
                # The bundle was read with the CA of the next one in it, or there is none that could lack it.
                return rotation.trusted_since(stored, now)
            case "switch":
                return rotation.switched(stored, now, self._times)
            case "forget":
                return rotation.forgotten(stored)
            case _:
                return None

    def _replacement(self, stored: StoredCertificates, trusted: bytes, now: datetime) -> StoredCertificates:
        made = rotation.replaced(stored, trusted, self._names, now, self._times)
        served = self._served.keyed
        if served is None or find_defect(served, self._called, now):
            return made
        # The API server trusts what this replica serves: it goes back into the Secret, and is rotated as usual.
        return StoredCertificates(
            current=served, next=made.current, previous=made.previous, previous_until=made.previous_until
        )

    async def _advance_given(self, registered: _ReadBundles, secret: KubeObject | None) -> bool:
        if secret is None:
            self.problem = f"there is no {self._where}; {self._remedy()}"
            return False
        given, now = rotation.decode_secret(secret.raw).current, self._clock()
        authorities = valid_authorities(given.authority, now)
        try:
            require_key(given)
            if self._webhook.certificate == "secret" and await self._bundle_written(registered, authorities):
                return True
            self._load(given)
        except BadCertificate as error:
            self.problem = f"the certificate of {self._where} {error}; {self._remedy()}"
            return False
        defect = find_defect(given, self._called, now)
        if defect:
            self.problem = f"the certificate of {self._where} {defect}; {self._remedy()}"
        elif given.authority and not authorities:
            self.problem = f"ca.crt of {self._where} can't be read, or has expired; {self._remedy()}"
        elif registered.bundles is not None and not registered.bundles.together.strip() and not self._webhook.url:
            self.problem = f"{CONFIGURATIONS.kind} {CONFIGURATION} has no caBundle; {self._bundle_remedy()}"
        return False

    async def _bundle_written(self, registered: _ReadBundles, bundle: bytes) -> bool:
        if registered.bundles is None or not bundle:
            return False
        changed = await write_bundle(self._cluster, registered.bundles, bundle)
        if changed:
            self._log.info("bundle of CAs is written to the webhook configuration")
        return changed

    def _load(self, keyed: KeyedCertificate) -> None:
        if self._served.load(keyed):
            self._log.info("certificate of the webhook is loaded", expires=str(self._served.expires))

    def _remedy(self) -> str:
        if self._webhook.certificate == "cert-manager":
            return "cert-manager has to issue it: apply the output of `knell protection manifests`"
        return f"fill in tls.crt and tls.key of a certificate for {self._called}, and ca.crt of its CA"

    def _bundle_remedy(self) -> str:
        if self._webhook.certificate == "cert-manager":
            return "cert-manager's cainjector has to add it: see whether it runs"
        return f"put the CA of the certificate into ca.crt of {self._where}"

    async def _registered(self) -> _ReadBundles:
        try:
            bundles = await read_bundles(self._cluster)
        except Forbidden as error:
            return _ReadBundles(
                None, False, f"the bundle of CAs can't be kept: {error}; apply the output of `knell role`"
            )
        if bundles is None:
            missing = f"there is no {CONFIGURATIONS.kind} {CONFIGURATION} with our webhooks"
            remedy = "apply the output of `knell protection manifests`"
            return _ReadBundles(None, True, f"{missing}, so that the API server does not ask Knell; {remedy}")
        return _ReadBundles(bundles, True, "")

    async def _write(self, secret: KubeObject | None, stored: StoredCertificates) -> None:
        """Raises Conflict if the Secret has changed since it was read, or exists by now."""
        patch = rotation.encode_secret(stored)
        if secret is None:
            body = rotation.without_nulls(patch)
            body["metadata"]["name"] = self._secret
            await self._cluster.create(SECRETS, self._namespace, {**body, "type": _TYPE})
            return
        patch["metadata"] |= {"uid": secret.uid, "resourceVersion": secret.resource_version}
        try:
            await self._cluster.patch(SECRETS, self._namespace, self._secret, patch, metadata_only=True)
        except NotFound as error:
            raise Conflict(str(error)) from None
