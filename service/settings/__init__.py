"""Settings of every command: declared as structs, read strictly from a YAML file and the environment.

Begin with `sections.py`, which declares all sections, and `loading.py`, whose `load` reads them; tests may build the
structs directly. `decoding.py` and `values.py` follow the declared types and collect all problems."""

from service.settings.aws import AwsSettings, FeatureSettings
from service.settings.azure import AzureNodes, AzureSettings, SweepSettings
from service.settings.loading import load
from service.settings.problems import Problem, SettingsError
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
)

__all__ = [
    "AwsSettings",
    "AzureNodes",
    "AzureSettings",
    "ClusterSettings",
    "FeatureSettings",
    "FeedbackSettings",
    "GuardSettings",
    "HostPort",
    "LimitOverride",
    "LogSettings",
    "PolicySettings",
    "Problem",
    "RedisSettings",
    "RedisUrl",
    "RetentionSettings",
    "RetrySettings",
    "Secret",
    "Settings",
    "SettingsError",
    "SourceSettings",
    "SurfaceSettings",
    "SweepSettings",
    "TestingSettings",
    "TlsSettings",
    "WatchSettings",
    "WorkerSettings",
    "load",
]
