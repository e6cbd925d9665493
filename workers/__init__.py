"""Consuming side of Knell: plans deletions, attempts their jobs, and stores the results.

Begin with `app.py`, which opens collectors and providers, `runtime/worker.py`, which starts the loops, and
`removal.py`, the one way in which a resource is removed. It uses the contract, the engine, policy, the sources, the
Kubernetes client and settings of `service/`, never its commands or its web server.
"""
