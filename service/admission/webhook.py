"""Admission webhook of one process: connects to the cluster, keeps the cache of Namespaces and the certificate, and
answers reviews. What fails is shown and retried, and never ends the process."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import structlog
from prometheus_client.core import Metric

from service.admission.contents import Contents
from service.admission.denial_events import DenialEvents
from service.admission.metrics import AdmissionMetrics, state_families
from service.admission.namespace_cache import NamespaceCache
from service.admission.protected_resources import ProtectedResources
from service.admission.review_endpoint import ReviewEndpoint
from service.admission.reviewer import Reviewer
from service.kubernetes import ClusterError
from service.masking import mask_text
from service.policy.cluster_names import identity_fault
from service.settings import Settings
from service.watching.cluster_identity import ConfirmedClient, WrongCluster, connect_to
from service.web import Hindrance

if TYPE_CHECKING:
    from service.admission.certificate_store import CertificateStore

log = structlog.get_logger(__name__)

DRAIN: Final = timedelta(seconds=5)
"""How long a stopping replica still answers: API servers learn only after a moment that it is no longer ready."""
IDENTITY_CHECK: Final = timedelta(seconds=10)
_FIRST_WAIT: Final = 1.0
_LONGEST_WAIT: Final = 10.0
# Of the time that the API server waits: for a search in a Namespace, and for the whole answer.
_SEARCH_SHARE: Final = 0.8
_ANSWER_SHARE: Final = 0.9


class WebhookStopped(Exception):
    """Raised inside the task group of a webhook to end its loops."""


class Webhook:
    """Does nothing unless protection.webhook.enabled. It needs no Redis."""

    def __init__(self, settings: Settings, *, drain: timedelta = DRAIN) -> None:
        self._settings, self._drain = settings, drain
        self._webhook = settings.protection.webhook
        self.cluster = settings.protection.cluster or next(iter(settings.clusters), "")
        self.port = 0
        """Where it listens; 0 while it does not."""
        self._uid = ""
        self._stop = asyncio.Event()
        self._metrics = AdmissionMetrics()
        self._serving: _ServingParts | None = None
        self._problem = "it has not reached its cluster yet"
        self._since = datetime.now(UTC)
        self._loop_problems: dict[str, str] = {}

    @property
    def stopping(self) -> bool:
        return self._stop.is_set()

    def stop(self) -> None:
        """Reviews are answered for a moment longer, then `run` ends."""
        self._stop.set()

    async def run(self) -> None:
        """Until stopped."""
        if not self._webhook.enabled:
            return
        with contextlib.suppress(WebhookStopped):
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._keep_serving())
                    group.create_task(self._wait_for_stop())
            except* WebhookStopped:
                pass
        log.info("webhook stopped")

    # ---- health and metrics

    def hindrances(self) -> list[Hindrance]:
        """Why it is not ready."""
        if not self._webhook.enabled:
            return []
        why = self._problem
        if not why and self._serving is not None and not self._serving.namespaces.synced:
            why = self._serving.namespaces.problem
        return [Hindrance(what="webhook", why=why, since=self._since)] if why else []

    def problems(self) -> list[Hindrance]:
        """While it goes on answering."""
        if self._serving is None:
            return []
        known = {
            "webhook certificate": self._serving.certificates.problem,
            "webhook Namespaces": self._serving.namespaces.problem,
            **self._loop_problems,
        }
        return [Hindrance(what=what, why=why, since=self._since) for what, why in known.items() if why]

    def metrics(self) -> Iterator[Metric]:
        if not self._webhook.enabled:
            return
        yield from self._metrics.families()
        if (parts := self._serving) is not None:
            yield from state_families(
                parts.certificates.expires, parts.namespaces.live, parts.namespaces.reads, parts.events.dropped
            )

    # ---- serving

    async def _wait_for_stop(self) -> None:
        await self._stop.wait()
        if self._serving is not None:
            log.info("webhook stopping", still_answering=self._drain.total_seconds())
            self._serving.endpoint.draining = True
            await asyncio.sleep(self._drain.total_seconds())
        raise WebhookStopped

    async def _keep_serving(self) -> None:
        wait = _FIRST_WAIT
        while True:
            began = datetime.now(UTC)
            try:
                await self._serve()
            except* (ClusterError, OSError) as errors:
                self._set_problem(mask_text(str(_first(errors))))
            except* Exception as errors:
                log.exception("webhook failed, starting again")
                self._set_problem(mask_text(f"{type(_first(errors)).__name__}: {_first(errors)}"))
            wait = _FIRST_WAIT if datetime.now(UTC) - began > timedelta(minutes=1) else min(wait * 2, _LONGEST_WAIT)
            await asyncio.sleep(wait)

    async def _serve(self) -> None:
        # Imported only here: other processes need no cryptography library.
        from service.admission.certificate_store import CertificateProblem, CertificateStore

        settings = self._settings
        async with connect_to(settings, self.cluster) as client:
            cluster = ConfirmedClient(client, await self._confirmed_uid(client.identity))
            certificates = CertificateStore(settings, cluster)
            try:
                await certificates.prepare()
            except CertificateProblem as error:
                self._set_problem(str(error))
                return
            parts = _ServingParts(settings, self.cluster, cluster, certificates, self._metrics)
            try:
                async with contextlib.aclosing(cluster), asyncio.TaskGroup() as group:
                    group.create_task(self._keep("certificate", certificates.run))
                    group.create_task(self._keep("Namespaces", parts.namespaces.run))
                    group.create_task(self._keep("Events", parts.events.run))
                    group.create_task(self._check_identity(cluster))
                    group.create_task(self._listen(parts))
            finally:
                self._serving, self.port = None, 0

    async def _confirmed_uid(self, identity: Callable[[], Awaitable[str]]) -> str:
        """By the settings, and by what answered first: Redis, which knows more, may be down."""
        uid = await identity()
        known = {self.cluster: self._uid} if self._uid else {}
        if (fault := identity_fault(self._settings.clusters, self.cluster, uid, known)) is not None:
            raise WrongCluster(fault)
        self._uid = uid
        return uid

    async def _listen(self, parts: "_ServingParts") -> None:
        endpoint, webhook = parts.endpoint, self._webhook
        try:
            self.port = await endpoint.start(webhook.host, webhook.port, parts.certificates.context)
        except OSError as error:
            raise OSError(
                f"can't listen on {webhook.host}:{webhook.port} ({error.strerror or error}); set "
                "protection.webhook.host and protection.webhook.port"
            ) from None
        try:
            log.info("webhook listening", host=webhook.host, port=self.port, cluster=self.cluster)
            self._serving, self._problem, self._since = parts, "", datetime.now(UTC)
            await asyncio.Event().wait()
        finally:
            await endpoint.stop()

    async def _check_identity(self, cluster: ConfirmedClient) -> None:
        """Periodically, and at once when a request was answered by another cluster. Raises WrongCluster."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(IDENTITY_CHECK.total_seconds()):
                    await cluster.wrong.wait()
            try:
                await cluster.confirm()
            except WrongCluster:
                raise
            except ClusterError as error:
                self._loop_problems["webhook cluster"] = str(error)
            else:
                cluster.wrong.clear()
                self._loop_problems.pop("webhook cluster", None)

    async def _keep(self, what: str, run: Callable[[], Awaitable[None]]) -> None:
        """A loop that fails is shown and started again, and reviews are answered meanwhile."""
        while True:
            try:
                await run()
            except Exception as error:
                log.exception("a loop of the webhook failed, starting it again", what=what)
                self._loop_problems[f"webhook {what} loop"] = mask_text(f"{type(error).__name__}: {error}")
            await asyncio.sleep(_LONGEST_WAIT)
            self._loop_problems.pop(f"webhook {what} loop", None)

    def _set_problem(self, why: str) -> None:
        if why != self._problem:
            log.error("webhook does not answer, retrying", cluster=self.cluster, why=why)
            self._problem, self._since = why, datetime.now(UTC)


class _ServingParts:
    """What answers reviews, on one connection to the cluster."""

    def __init__(
        self,
        settings: Settings,
        name: str,
        cluster: ConfirmedClient,
        certificates: "CertificateStore",
        metrics: AdmissionMetrics,
    ) -> None:
        timeout = settings.protection.webhook.timeout
        protected = ProtectedResources(settings, name)
        self.certificates = certificates
        self.namespaces = NamespaceCache(cluster, settings.watch)
        self.events = DenialEvents(cluster, settings.feedback)
        contents = Contents(cluster, protected, self.namespaces, timeout * _SEARCH_SHARE)
        reviewer = Reviewer(protected, self.namespaces, contents, settings.watch.namespace)
        self.endpoint = ReviewEndpoint(reviewer, self.events, metrics, timeout * _ANSWER_SHARE)


def _first(errors: BaseExceptionGroup[Exception]) -> BaseException:
    found: BaseException = errors
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found
