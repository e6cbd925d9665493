"""The 429s of ARM, of the network, of compute and of Resource Graph, each in its own shape.
One of them is no throttle at all: the network's lock, which another operation holds."""

from standins.azure.answers import Answer, failed, seconds
from standins.azure.behaviour import Behaviour
from standins.azure.calls import Call
from standins.clock import Clock

_LOCK_WAITS = 11.0


def by_arm(call: Call, clock: Clock, behaviour: Behaviour) -> Answer:
    span = seconds(clock, behaviour.arm_retry_after)
    words = (
        f"Number of '{call.sort}' requests for subscription '{call.subscription}' and principal '{call.principal}' "
        f"exceeded the limit. Please try again after '{span}' seconds after additional tokens are available. "
        "Refer to https://aka.ms/arm-throttling for additional information."
    )
    return failed(429, "SubscriptionRequestsThrottled", words, retry_after=span)


def by_network(clock: Clock, behaviour: Behaviour) -> Answer:
    after = behaviour.network_retry_after
    words = "The request is being throttled as the limit has been reached for operation type."
    span = seconds(clock, after) if after is not None else ""
    return failed(429, "TooManyRequests", words, details=[], retry_after=span)


def by_compute(clock: Clock, wait: float, bucket: str) -> Answer:
    words = "The server rejected the request because too many requests have been received for this subscription."
    inner = f'{{"operationGroup":"{bucket}","requestCount":1}}'
    details = [{"code": "TooManyRequests", "target": bucket, "message": inner}]
    return failed(429, "OperationNotAllowed", words, details=details, retry_after=seconds(clock, wait))


def by_graph(clock: Clock, wait: float) -> Answer:
    words = "Please provide below info when asking for support: the request was throttled."
    details = [
        {
            "code": "RateLimiting",
            "message": "Client application has been throttled and should not attempt to "
            "repeat the request until an amount of time has elapsed. Please see help for additional information: "
            "https://aka.ms/resourcegraph-throttling",
        }
    ]
    return failed(429, "RateLimiting", words, details=details, retry_after=seconds(clock, wait))


def by_lock(clock: Clock) -> Answer:
    words = "A retryable error occurred."
    details = [
        {
            "code": "RetryableErrorDueToAnotherOperation",
            "message": "Operation on this resource was preempted, or another operation holds its lock.",
        }
    ]
    return failed(429, "RetryableError", words, details=details, retry_after=seconds(clock, _LOCK_WAITS))


def on_demand(call: Call, clock: Clock, behaviour: Behaviour) -> Answer:
    """What a fault throttles is throttled by who comes last: the provider, for what it is asked."""
    if call.provider == "graph":
        return by_graph(clock, behaviour.graph_window)
    if call.provider == "network" and call.sort == "deletes":
        return by_network(clock, behaviour)
    if call.provider == "compute" and call.sort == "deletes":
        return by_compute(clock, 60.0, "DeleteVMSubscriptionMaximum")
    return by_arm(call, clock, behaviour)
