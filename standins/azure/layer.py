"""What becomes of a request: it passes faults and quotas, then the resources answer it.
One request at a time goes through here, so that nothing happens between a check and what it allowed."""

from standins.azure import listing, refusals, throttles
from standins.azure.answers import Answer, answered, failed, page_of_a_proxy, seconds
from standins.azure.behaviour import Behaviour, Fault
from standins.azure.calls import Call
from standins.azure.deleting import Deleting
from standins.azure.faults import Faults
from standins.azure.graph import Graph
from standins.azure.journal import Journal
from standins.azure.making import Making
from standins.azure.operations import Operations
from standins.azure.quotas import Quotas
from standins.azure.shapes import document
from standins.azure.store import Store
from standins.azure.thing import Thing
from standins.clock import Clock


class Layer:
    def __init__(self, behaviour: Behaviour, rate: float = 1.0) -> None:
        self.behaviour = behaviour
        self.clock, self.journal, self.faults = Clock(rate), Journal(), Faults()
        self.store = Store(self.clock, self._changed)
        self._graph, self._quotas, self._operations = Graph(self.clock), Quotas(self.clock), Operations()
        self._deleting = Deleting(self.store, self._operations, self.clock)
        self._making = Making(self.store, self.clock)

    def troubles(self, call: Call) -> list[Fault]:
        return [] if call.setup else self.faults.of(call, self.behaviour.faults)

    def answer(self, call: Call, address: str, trouble: Fault | None, delayed: float = 0.0) -> Answer | None:
        """None: the connection ends without one. The journal has it in either case, with how long it was delayed."""
        self.clock.catch_up()
        answer = self._judged(call, address, trouble)
        cut = trouble is not None and trouble.what in ("close", "lost")
        at = self.clock.now()
        self.journal.request(call, at, self.clock.real(at), 0 if cut else answer.status, answer.code, delayed)
        return None if cut else answer

    def _judged(self, call: Call, address: str, trouble: Fault | None) -> Answer:
        match trouble:
            # What never reaches Azure draws on no bucket.
            case Fault(what="html", status=status):
                return page_of_a_proxy(status)
            case Fault(what="close"):
                return Answer(0, b"", code="closed")
        if not call.operation:
            return refusals.not_served(call)
        if not call.principal and not call.setup:
            return refusals.unauthenticated()
        region = self._region(call)
        answer = self._quotas.check(call, region, self.behaviour)
        if answer is None:
            answer = self._troubled(call, trouble)
        if answer is None:
            answer = self._done(call, address, trouble)
        headers = {**answer.headers, **self._quotas.headers(call, region, self.behaviour)}
        return Answer(answer.status, answer.body, headers, answer.code)

    def _troubled(self, call: Call, trouble: Fault | None) -> Answer | None:
        match trouble:
            case Fault(what="deny"):
                return refusals.denied(call)
            case Fault(what="deny-assignment"):
                return refusals.denied_by_assignment(call)
            case Fault(what="throttle"):
                return throttles.on_demand(call, self.clock, self.behaviour)
            case Fault(what="locked"):
                return throttles.by_lock(self.clock)
            case Fault(what="error", code=code, message=message, status=status, seconds=span):
                return failed(status, code, message, retry_after=seconds(self.clock, span) if span else "")
        return None

    def _done(self, call: Call, address: str, trouble: Fault | None) -> Answer:
        if call.operation == "graph.query":
            return self._graph.answer(call.body, self.behaviour)
        if not self.store.knows(call.subscription):
            return refusals.no_subscription(call.subscription)
        if call.operation == "operation.get":
            return self._operations.answer(call, address)
        if call.group and self.store.group(call.subscription, call.group) is None:
            return refusals.no_group(call.group)
        match call.operation.partition(".")[2]:
            case "list":
                return listing.listed(call, self.store, self.behaviour, address)
            case "get":
                return self._one(call)
            case "put":
                return self._put(call)
            case "update":
                return self._making.update(call)
            case "tag":
                return self._making.tag(call)
        fails = trouble is not None and trouble.what == "fails"
        failure = (trouble.code, trouble.message) if trouble is not None and fails else None
        return self._deleting.delete(call, self.behaviour, address, failure)

    def _put(self, call: Call) -> Answer:
        answer = self._making.put(call)
        if answer.status == 201 and (made := self.store.get(call.key)) is not None:
            at = self.clock.now()
            self.journal.happened("made", made, at, self.clock.real(at))
        return answer

    def _one(self, call: Call) -> Answer:
        thing = self.store.get(call.key)
        if thing is not None:
            return answered(document(thing))
        assert call.kind is not None  # noqa: S101 - what is read is of a kind
        return refusals.not_found(call.kind, call.group, call.name)

    def _region(self, call: Call) -> str:
        """Whose buckets are drawn on: a resource's own region, else its group's."""
        if call.region:
            return call.region.lower()
        thing = self.store.get(call.key) if call.key else None
        if thing is not None:
            return thing.made.region.lower()
        group = self.store.group(call.subscription, call.group) if call.group else None
        return group.region.lower() if group is not None else ""

    def _changed(self, thing: Thing, gone: float | None) -> None:
        self._graph.changed(thing, gone is not None, self.behaviour.graph_lag)
        if gone is not None:
            self.journal.happened("gone", thing, gone, self.clock.real(gone))
