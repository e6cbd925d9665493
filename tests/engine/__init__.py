"""The engine and the worker runtime on real servers, one file for each topic.

Every test runs on each kind of server that can be started here, in a world of its own.
"""
