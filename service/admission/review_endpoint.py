"""HTTPS endpoint for admission reviews. Each gets an answer within the time that the API server waits; whatever goes
wrong denies, because an error would let the deletion pass where the failure policy is Ignore."""

import asyncio
import ssl
import time
from datetime import timedelta
from typing import Final

import structlog
from aiohttp import web

from service.admission.denial_events import DenialEvents
from service.admission.judgement import Denial
from service.admission.metrics import AdmissionMetrics
from service.admission.names import PATH
from service.admission.reviewer import Reviewer
from service.admission.reviews import (
    ReviewRequest,
    UndecodableReview,
    decode_old_object,
    decode_review,
    encode_answer,
)
from service.web.listener import API_SERVER_LIMITS, HttpListener

log = structlog.get_logger(__name__)

LIMITS: Final = API_SERVER_LIMITS._replace(stop=timedelta(seconds=5))


class ReviewEndpoint:
    """`within` is the time for one answer. While `draining` each connection is closed behind its next answer, so that
    API servers turn to other replicas without one failed call."""

    def __init__(self, reviewer: Reviewer, events: DenialEvents, metrics: AdmissionMetrics, within: timedelta) -> None:
        self._reviewer, self._events, self._metrics = reviewer, events, metrics
        self._within = within
        self._listener = HttpListener([web.post(PATH, self._review)], LIMITS)
        self.draining = False

    async def start(self, host: str, port: int, tls: ssl.SSLContext) -> int:
        """Returns the port. Raises OSError if it can't listen there."""
        return await self._listener.start(host, port, ssl=tls)

    async def stop(self) -> None:
        """Reviews in progress are answered."""
        await self._listener.stop()

    async def _review(self, request: web.Request) -> web.Response:
        began = time.perf_counter()
        try:
            review = decode_review(await request.read())
        except UndecodableReview as error:
            self._metrics.malformed()
            return web.Response(status=400, text=f"{error}\n")
        denial = await self._judge(review)
        self._note(review, denial)
        self._metrics.answered(review.about, denial, time.perf_counter() - began)
        response = web.Response(body=encode_answer(review.uid, denial), content_type="application/json")
        if self.draining:
            response.force_close()
        return response

    async def _judge(self, review: ReviewRequest) -> Denial | None:
        which = f"{review.kind.kind.lower()}/{review.name}"
        try:
            async with asyncio.timeout(self._within.total_seconds()):
                return await self._reviewer.review(review)
        except TimeoutError:
            seconds = f"{self._within.total_seconds():g}"
            why = f"whether it is protected could not be found out within {seconds} s"
            return Denial("unknown", f"{which} is not deleted now: {why}; try again")
        except Exception as error:
            log.exception("a review failed", resource=review.resource.plural_and_group, name=review.name)
            why = f"Knell failed to judge it ({type(error).__name__}); its log says more"
            return Denial("unknown", f"{which} is not deleted: {why}")

    def _note(self, review: ReviewRequest, denial: Denial | None) -> None:
        try:
            old = decode_old_object(review)
        except UndecodableReview:
            return
        if denial is None:
            self._events.allowed(review, old)
            return
        log.info(
            "deletion denied",
            resource=review.resource.plural_and_group,
            namespace=old.namespace,
            name=old.name,
            reason=denial.why,
            user=review.user_info.username,
            dry_run=bool(review.dry_run),
        )
        self._events.denied(review, old, denial)
