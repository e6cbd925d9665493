"""Tests of the engine on real servers: embedded, Debian's Redis, Cluster and Sentinel.

Each one waits for a state with a deadline, never for a span of time.
"""
