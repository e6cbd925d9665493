"""Recovery window of what is scheduled for deletion: KMS keys and secrets."""

import math
from datetime import timedelta

from service.sources.aws import AwsAccess


def recovery_days(settings: AwsAccess) -> int:
    """7 to 30, as the settings allow no others."""
    return math.ceil(settings.recovery_window / timedelta(days=1))
