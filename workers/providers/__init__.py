"""Providers: how resources are read and removed. AWS and Azure have clients, errors, limits, permissions, kinds.
Begin with `aws/kinds/volumes.py` for a simple kind. Providers know no collector."""
