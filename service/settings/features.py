"""Feature flags: which of those that sources need are on."""

import msgspec


class FeatureSettings(msgspec.Struct, frozen=True):
    """The flags that are on; all are off by default. When one is switched off again, objects with our finalizer wait
    until it is on."""

    enabled: frozenset[str] = frozenset()

    def on(self, feature: str) -> bool:
        """An empty name is always on, an unknown one is off."""
        return not feature or feature in self.enabled
