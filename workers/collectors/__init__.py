"""Collectors: whose resources are. Each finds what an object owns, judges ownership, and objects to deletions.
Begin with `capa/collector.py`. Collectors know neither Redis nor one another."""
