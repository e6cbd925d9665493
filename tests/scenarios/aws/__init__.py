"""Scenarios of clusters on AWS: the whole service on an API server, a real Valkey and the stand-in for AWS.

Afterwards the objects, the records and the account itself are checked."""

import pytest

# What an account looks like afterwards is in the assertions there.
pytest.register_assert_rewrite("tests.scenarios.aws.account_contents")
