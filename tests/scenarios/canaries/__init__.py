"""Scenario with a canary in every credential. `credentials` lists them, `test_canaries` runs the scenario."""
