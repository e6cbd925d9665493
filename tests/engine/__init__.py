"""Tests of the engine and the worker runtime on real Redis servers, one file per topic.

Every test runs on each kind of server that can be started here, with an installation of its own."""
