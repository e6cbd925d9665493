"""Tests of Knell on real servers and on stand-ins with state of their own, without mocks of its own parts.
`tests/README.md` says which fixture to use and where a new test belongs."""
