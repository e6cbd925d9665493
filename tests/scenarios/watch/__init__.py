"""Stories of the whole service: watch side and workers on a real control plane, a real Valkey and a simulated provider.

After each of them the cluster, Redis and the provider's own log are asked what came of it.
"""

import pytest

# What a story's end looked like is in the assertions there.
pytest.register_assert_rewrite("tests.scenarios.watch.evidence")
