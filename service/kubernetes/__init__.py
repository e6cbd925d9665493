"""Kubernetes client on kubernetes_asyncio: lists, watches, patches, finalizers, Leases, Events and conditions.

Begin with client.py (`connect` and `KubernetesClient`) and objects.py (what is kept of an object). Below them are
api_calls.py, which adds credentials, limits and errors to the HTTP transport in transport.py, and watch_stream.py for
watches. Errors are typed in errors.py; an expired watch (410) is Expired."""

from service.kubernetes.client import KubernetesClient, connect, preload
from service.kubernetes.conditions import ConditionStatus, set_condition
from service.kubernetes.discovery import CrdState
from service.kubernetes.errors import (
    ClusterError,
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    NotFound,
    NotServed,
    TooMany,
    Unauthorized,
    Unavailable,
    Unreadable,
    WatchStalled,
)
from service.kubernetes.events import EventType, post_event
from service.kubernetes.finalizers import (
    RemovalOutcome,
    add_finalizer,
    finalizer_addition,
    finalizer_removal,
    has_finalizer,
    remove_finalizer,
)
from service.kubernetes.leases import Lease, LeaseWriteCounter
from service.kubernetes.objects import (
    CONFIGMAPS,
    CRDS,
    EVENTS,
    LEASES,
    NAMESPACES,
    SECRETS,
    KubeObject,
    ListPage,
    ServedResource,
    WatchEvent,
)
from service.kubernetes.recent_objects import RecentObjects

__all__ = [
    "CONFIGMAPS",
    "CRDS",
    "EVENTS",
    "LEASES",
    "NAMESPACES",
    "SECRETS",
    "ClusterError",
    "ConditionStatus",
    "Conflict",
    "CrdState",
    "EventType",
    "Expired",
    "Forbidden",
    "Invalid",
    "KubeObject",
    "KubernetesClient",
    "Lease",
    "LeaseWriteCounter",
    "ListPage",
    "NotFound",
    "NotServed",
    "RecentObjects",
    "RemovalOutcome",
    "ServedResource",
    "TooMany",
    "Unauthorized",
    "Unavailable",
    "Unreadable",
    "WatchEvent",
    "WatchStalled",
    "add_finalizer",
    "connect",
    "finalizer_addition",
    "finalizer_removal",
    "has_finalizer",
    "post_event",
    "preload",
    "remove_finalizer",
    "set_condition",
]
