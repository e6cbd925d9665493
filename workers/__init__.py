"""Consuming side of Knell: plans deletions, attempts their jobs, and stores the results.

Begin with `app.py`, which opens collectors and providers, `runtime/worker.py`, which starts the loops, and
`handlers/protocol.py`, which says what a handler is. It uses the contract, the engine, policy, the sources, the
Kubernetes client and settings of `service/`, never its commands or its web server.
"""
