"""Every setting that is not about reaching the server: its name, type, default and bounds.
The decoder reads these declarations: a new field here is at once a YAML key and an environment variable."""

import os
import secrets
import socket
from datetime import timedelta
from typing import Annotated, Literal

import msgspec

from service.settings.aws import AwsSettings, FeatureSettings
from service.settings.azure import AzureSettings
from service.settings.durations import NotNegative, Positive, write
from service.settings.redis import RedisSettings
from service.settings.sources import (
    ClusterSettings,
    FeedbackSettings,
    PolicySettings,
    SourceSettings,
    WatchSettings,
    faults,
)

Count = Annotated[int, msgspec.Meta(ge=1)]


def own_name() -> str:
    """Readable in lists of workers, and never used twice: a restarted container may keep host and pid."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"


class WorkerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    name: Annotated[str, msgspec.Meta(pattern=r"\A\S+\Z", description="a text without white space")] = msgspec.field(
        default_factory=own_name
    )
    # Jobs in flight in this process.
    concurrency: Count = 256
    # Plans being made at the same time.
    planners: Count = 64
    lease: Positive = timedelta(seconds=60)
    # A worker without a heartbeat for so long, while others send theirs, is dead: its jobs go to others at once.
    silence: Positive = timedelta(seconds=8)
    # Shorter than the lease, so that an attempt has ended before anybody else may start it again.
    attempt_timeout: Positive = timedelta(seconds=45)
    # How long a stopping worker may take to finish or hand back its jobs.
    grace: NotNegative = timedelta(seconds=25)
    # Jobs of one lane per take.
    batch: Count = 100
    # Concurrency of a lane over all workers, where no pattern of lane_caps says otherwise.
    lane_cap: Count = 64
    lane_caps: dict[str, Count] = msgspec.field(default_factory=dict)
    # The part of a lane that background work keeps while urgent work waits.
    background_share: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.1
    # How many times the declared rate is used, at most, of a limit whose state the provider does not report (AWS), as
    # long as nothing is refused. 1: never more than is declared.
    learn_up_to: Annotated[float, msgspec.Meta(ge=1, le=100)] = 4.0
    # An event whose planner has been silent for so long is given to another.
    plan_claim: Positive = timedelta(seconds=60)
    # A plan that takes longer is given up and made again later.
    plan_timeout: Positive = timedelta(minutes=5)
    # A job that ends its worker this often while running alone is set aside; an event waits for an hour and longer.
    deaths: Count = 3


class RetrySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    base: Positive = timedelta(seconds=1)
    cap: Positive = timedelta(minutes=5)
    # Attempts after which a required job is shown as held; it goes on being tried.
    held_after: Count = 10
    best_effort_deadline: Positive = timedelta(hours=24)
    refused_recheck: Positive = timedelta(minutes=15)
    blocked_base: Positive = timedelta(seconds=5)
    blocked_cap: Positive = timedelta(minutes=5)
    # The longest wait for a dependency that no read shows, while something of the same deletion ended less than ten
    # minutes ago.
    unseen_cap: Positive = timedelta(seconds=10)


class LimitOverride(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Replaces what a handler declares for limits whose name fits the pattern; what is absent stays."""

    capacity: Count | None = None
    # Tokens per second of a bucket.
    rate: Annotated[float, msgspec.Meta(gt=0)] | None = None
    # Length of a fixed window.
    window: Positive | None = None
    # Whether its rate may be raised while nothing is refused (worker.learn_up_to).
    learns: bool | None = None


class RetentionSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    finished: Positive = timedelta(hours=24)
    audit: Positive = timedelta(days=7)
    audit_entries: Count = 1_000_000
    # Empty lanes.
    lanes: Positive = timedelta(hours=1)


class SurfaceSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    # Probes and metrics are asked for from outside the pod.
    host: Annotated[str, msgspec.Meta(min_length=1)] = "0.0.0.0"  # noqa: S104
    # 0 takes any free port.
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 8080


class LogSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    level: Literal["debug", "info", "warning", "error"] = "info"
    # auto: readable on a terminal, JSON everywhere else.
    format: Literal["auto", "json", "console"] = "auto"


class TestingSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """For tests only. A production configuration leaves this section out."""

    # Shifts the server's clock as scripts see it. Workers that share a server must share the offset.
    clock_offset: timedelta = timedelta(0)

    __test__ = False  # or pytest takes the class for a test case


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
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
    features: FeatureSettings = FeatureSettings()
    aws: AwsSettings = AwsSettings()
    azure: AzureSettings = AzureSettings()
    testing: TestingSettings = TestingSettings()

    def contradictions(self) -> list[tuple[str, str]]:
        """What no single value shows: pairs of path and reason."""
        found = self.redis.contradictions() + faults(self.clusters, self.sources) + self.aws.contradictions()
        found += self.azure.contradictions(self.sources)
        _ordered(found, "worker.attempt_timeout", self.worker.attempt_timeout, "worker.lease", self.worker.lease)
        _ordered(found, "redis.call_timeout", self.redis.call_timeout, "worker.lease", self.worker.lease)
        if self.retry.base > self.retry.cap:
            found.append(("retry.base", f"{write(self.retry.base)} is longer than retry.cap, {write(self.retry.cap)}"))
        if self.retry.blocked_base > self.retry.blocked_cap:
            longer = f"{write(self.retry.blocked_base)} is longer than retry.blocked_cap"
            found.append(("retry.blocked_base", f"{longer}, {write(self.retry.blocked_cap)}"))
        for name, limit in self.limits.items():
            if limit.rate is not None and limit.window is not None:
                found.append((f"limits.{name}", "rate makes a bucket, window a fixed window; give one of the two"))
            if limit == LimitOverride():
                found.append((f"limits.{name}", "overrides nothing; give capacity, rate, window or learns"))
        return found


def _ordered(found: list[tuple[str, str]], path: str, value: timedelta, than: str, bound: timedelta) -> None:
    if value >= bound:
        found.append((path, f"{write(value)} given; must be shorter than {than}, which is {write(bound)}"))
