"""Stories of clusters on AWS: the whole service on an API server, a real Valkey and the honest stand-in for AWS.

After each of them the objects, the records and the account itself are asked what came of it.
"""

import pytest

# What an account looks like afterwards is in the assertions there.
pytest.register_assert_rewrite("tests.scenarios.aws.account_contents")
