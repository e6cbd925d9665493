"""Kubernetes as the rest of Knell sees it: clusters, objects, Leases, Events and conditions.
Everything outside imports from here, so that the files behind it may change their shape."""

from service.kubernetes.client import Cluster, connect, preload
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
    Silent,
    TooMany,
    Unauthorized,
    Unavailable,
    Unreadable,
)
from service.kubernetes.events import EventType, post
from service.kubernetes.finalizers import Unmarked, mark, marked, marking, unmark, unmarking
from service.kubernetes.leases import Counter, Lease
from service.kubernetes.objects import (
    CONFIGMAPS,
    CRDS,
    EVENTS,
    LEASES,
    NAMESPACES,
    SECRETS,
    Change,
    Live,
    Page,
    Seen,
    Served,
)
from service.kubernetes.sightings import Sightings

__all__ = [
    "CONFIGMAPS",
    "CRDS",
    "EVENTS",
    "LEASES",
    "NAMESPACES",
    "SECRETS",
    "Change",
    "Cluster",
    "ClusterError",
    "ConditionStatus",
    "Conflict",
    "Counter",
    "CrdState",
    "EventType",
    "Expired",
    "Forbidden",
    "Invalid",
    "Lease",
    "Live",
    "NotFound",
    "NotServed",
    "Page",
    "Seen",
    "Served",
    "Sightings",
    "Silent",
    "TooMany",
    "Unauthorized",
    "Unavailable",
    "Unmarked",
    "Unreadable",
    "connect",
    "mark",
    "marked",
    "marking",
    "post",
    "preload",
    "set_condition",
    "unmark",
    "unmarking",
]
