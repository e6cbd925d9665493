"""Sections of the settings, with the name, type, default and bounds of every key.
The decoder follows these declarations: a new field is a YAML key and an environment variable. Sources declare sections
of their own (`service/sources/`), which stand beside these in the file."""

import os
import secrets
import socket
from datetime import timedelta
from typing import Annotated, Literal

import msgspec

from service.durations import NotNegative, Positive, format_duration
from service.settings.features import FeatureSettings
from service.settings.protection import ProtectionSettings
from service.settings.redis import RedisSettings
from service.settings.sources import (
    ClusterSettings,
    FeedbackSettings,
    PolicySettings,
    SourceSettings,
    WatchSettings,
    find_contradictions,
)
from service.sources.declaration import S, SectionSettings
from service.sources.registry import known_sections

Count = Annotated[int, msgspec.Meta(ge=1)]


def default_worker_name() -> str:
    """Host, pid and a random suffix, because a restarted container may have the same host and pid."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"


class WorkerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    name: Annotated[str, msgspec.Meta(pattern=r"\A\S+\Z", description="a text without white space")] = msgspec.field(
        default_factory=default_worker_name
    )
    # Concurrent jobs of this process.
    concurrency: Count = 256
    # Concurrent plans of this process.
    planners: Count = 64
    lease: Positive = timedelta(seconds=60)
    # A worker without a heartbeat for this time, while others send theirs, is dead: its jobs are given to others.
    silence: Positive = timedelta(seconds=8)
    # Shorter than the lease, so that an attempt has ended before another worker may repeat it.
    attempt_timeout: Positive = timedelta(seconds=45)
    # How long a stopping worker may take to finish or return its jobs.
    grace: NotNegative = timedelta(seconds=25)
    # Jobs of one lane per take.
    batch: Count = 100
    # Concurrency of a lane over all workers, where no pattern of lane_caps matches.
    lane_cap: Count = 64
    lane_caps: dict[str, Count] = msgspec.field(default_factory=dict)
    # The part of a lane that background work keeps while urgent work waits.
    background_share: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.1
    # The maximum learned rate, as a multiple of the declared one, of limits whose state the provider does not report
    # (AWS). The rate is raised while no call is throttled. 1: never more than declared.
    learn_up_to: Annotated[float, msgspec.Meta(ge=1, le=100)] = 4.0
    # An event whose planner has been silent for this time is given to another one.
    plan_claim: Positive = timedelta(seconds=60)
    # A plan that takes longer is cancelled and repeated later.
    plan_timeout: Positive = timedelta(minutes=5)
    # A job whose worker dies this often while it runs alone is set aside; an event then waits for an hour and longer.
    deaths: Count = 3


class RetrySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    base: Positive = timedelta(seconds=1)
    cap: Positive = timedelta(minutes=5)
    # Attempts after which a required job is shown as held; it is still retried.
    held_after: Count = 10
    best_effort_deadline: Positive = timedelta(hours=24)
    refused_recheck: Positive = timedelta(minutes=15)
    blocked_base: Positive = timedelta(seconds=5)
    blocked_cap: Positive = timedelta(minutes=5)
    # The longest wait for a dependency that no read shows, while a job of the same deletion ended in the last ten
    # minutes.
    unseen_cap: Positive = timedelta(seconds=10)


class LimitOverride(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Overrides the declaration of limits whose name matches the pattern; absent values do not change it."""

    capacity: Count | None = None
    # Tokens per second of a bucket.
    rate: Annotated[float, msgspec.Meta(gt=0)] | None = None
    # Length of a fixed window.
    window: Positive | None = None
    # Whether its rate may be raised while no call is throttled (worker.learn_up_to).
    learns: bool | None = None


class RetentionSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    finished: Positive = timedelta(hours=24)
    audit: Positive = timedelta(days=7)
    audit_entries: Count = 1_000_000
    # Empty lanes.
    lanes: Positive = timedelta(hours=1)


class SurfaceSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    # Probes and metrics are requested from outside the pod.
    host: Annotated[str, msgspec.Meta(min_length=1)] = "0.0.0.0"  # noqa: S104
    # 0: any free port.
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 8080


class LogSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    level: Literal["debug", "info", "warning", "error"] = "info"
    # auto: readable on a terminal, JSON everywhere else.
    format: Literal["auto", "json", "console"] = "auto"


class TestingSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """For tests only."""

    # Offset of the server's clock in scripts. All workers of one server must have the same offset.
    clock_offset: timedelta = timedelta(0)

    __test__ = False  # or pytest takes the class for a test case


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings. `sections` are those that sources declare, by their YAML keys; `document.py` says what the file and
    the environment look like."""

    redis: RedisSettings = RedisSettings()
    worker: WorkerSettings = msgspec.field(default_factory=WorkerSettings)
    retry: RetrySettings = RetrySettings()
    limits: dict[str, LimitOverride] = msgspec.field(default_factory=dict)
    retention: RetentionSettings = RetentionSettings()
    surface: SurfaceSettings = SurfaceSettings()
    log: LogSettings = LogSettings()
    clusters: dict[str, ClusterSettings] = msgspec.field(default_factory=dict)
    sources: dict[str, SourceSettings] = msgspec.field(default_factory=dict)
    policy: PolicySettings = PolicySettings()
    watch: WatchSettings = WatchSettings()
    feedback: FeedbackSettings = FeedbackSettings()
    protection: ProtectionSettings = ProtectionSettings()
    features: FeatureSettings = FeatureSettings()
    sections: dict[str, msgspec.Struct] = msgspec.field(default_factory=dict)
    testing: TestingSettings = TestingSettings()

    def section(self, kind: type[S]) -> S:
        """The section of this type, or its defaults."""
        return next((one for one in self.sections.values() if isinstance(one, kind)), None) or kind()

    def contradictions(self) -> list[tuple[str, str]]:
        """Contradictions between values, as pairs of path and reason."""
        found = self.redis.contradictions() + find_contradictions(self.clusters, self.sources)
        found += self.protection.contradictions(self.clusters)
        for declared in known_sections():
            section = self.section(declared.type)
            if isinstance(section, SectionSettings):
                found += section.contradictions(self.sources)
        _ordered(found, "worker.attempt_timeout", self.worker.attempt_timeout, "worker.lease", self.worker.lease)
        _ordered(found, "redis.call_timeout", self.redis.call_timeout, "worker.lease", self.worker.lease)
        if self.retry.base > self.retry.cap:
            found.append(
                (
                    "retry.base",
                    f"{format_duration(self.retry.base)} is longer than retry.cap, {format_duration(self.retry.cap)}",
                )
            )
        if self.retry.blocked_base > self.retry.blocked_cap:
            longer = f"{format_duration(self.retry.blocked_base)} is longer than retry.blocked_cap"
            found.append(("retry.blocked_base", f"{longer}, {format_duration(self.retry.blocked_cap)}"))
        for name, limit in self.limits.items():
            if limit.rate is not None and limit.window is not None:
                found.append((f"limits.{name}", "rate makes a bucket, window a fixed window; give one of the two"))
            if limit == LimitOverride():
                found.append((f"limits.{name}", "overrides nothing; give capacity, rate, window or learns"))
        return found


def _ordered(found: list[tuple[str, str]], path: str, value: timedelta, than: str, bound: timedelta) -> None:
    if value >= bound:
        found.append(
            (path, f"{format_duration(value)} given; must be shorter than {than}, which is {format_duration(bound)}")
        )
