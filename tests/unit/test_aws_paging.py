"""A response without the requested list is not an empty list."""

import pytest

from workers.providers.aws.client.paging import require_list
from workers.providers.aws.errors import AwsError


def test_a_list_that_is_empty_is_one_and_a_list_that_is_not_there_is_none() -> None:
    assert require_list({"Volumes": []}, "Volumes", "ec2", "describe_volumes") == []
    with pytest.raises(AwsError, match="ec2:DescribeVolumes: NoList") as raised:
        require_list({"ResponseMetadata": {}}, "Volumes", "ec2", "describe_volumes")
    assert raised.value.what == "unreadable"
