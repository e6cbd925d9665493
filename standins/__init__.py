"""Stand-ins for the systems outside of Knell, for tests, benchmarks and the demo; in the clone, not in the wheel.

Begin with `__main__`: `python -m standins` starts one alone. `aws` and `azure` are child processes with an HTTP API
(`stand_in_process`, `http_server`); `kubernetes_api` is an API server in a thread, `controlplane` the real one;
`redis_servers` are real servers. Each has its own state and journal, against which tests check what Knell did. `demo`
is what `make demo` runs.
"""
