"""Scenarios of the whole service: watch side and workers on a real control plane, Valkey and a simulated provider.

Afterwards the cluster, Redis and the provider's own log are checked."""

import pytest

# What a story's end looked like is in the assertions there.
pytest.register_assert_rewrite("tests.scenarios.watch.evidence")
