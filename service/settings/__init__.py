"""Settings of every command: declared as structs, read strictly from a YAML file and the environment.

Begin with `sections.py`, which declares the general sections, and `loading.py`, whose `load` reads them; sections of
single sources are in `service/sources/`. Tests may build the structs directly. `decoding.py` and `values.py` follow the
declared types and collect all problems."""

from service.settings.features import FeatureSettings
from service.settings.loading import load
from service.settings.problems import Problem, SettingsError
from service.settings.protection import ProtectionSettings, WebhookSettings
from service.settings.redis import HostPort, RedisSettings, RedisUrl, Secret, TlsSettings
from service.settings.sections import (
    LimitOverride,
    LogSettings,
    RetentionSettings,
    RetrySettings,
    Settings,
    SurfaceSettings,
    TestingSettings,
    WorkerSettings,
)
from service.settings.sources import (
    ClusterSettings,
    FeedbackSettings,
    GuardSettings,
    PolicySettings,
    SourceSettings,
    WatchSettings,
    check_collectors,
)

__all__ = [
    "ClusterSettings",
    "FeatureSettings",
    "FeedbackSettings",
    "GuardSettings",
    "HostPort",
    "LimitOverride",
    "LogSettings",
    "PolicySettings",
    "Problem",
    "ProtectionSettings",
    "RedisSettings",
    "RedisUrl",
    "RetentionSettings",
    "RetrySettings",
    "Secret",
    "Settings",
    "SettingsError",
    "SourceSettings",
    "SurfaceSettings",
    "TestingSettings",
    "TlsSettings",
    "WatchSettings",
    "WebhookSettings",
    "WorkerSettings",
    "check_collectors",
    "load",
]
