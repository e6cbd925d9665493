"""Collector of objects of AWS Controllers for Kubernetes (ACK): what such an object names outside, and whether that is
its own. Begin with `types.py`, the table of kinds, and `collector.py`."""
