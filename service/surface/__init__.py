"""What a running process shows of itself over HTTP: liveness, readiness and metrics.

It reads the state of others and changes none of it.
"""
