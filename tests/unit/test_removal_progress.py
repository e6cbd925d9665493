"""Progress of a removal between attempts, as text in the job's record."""

import pytest

from workers.removal import RemovalProgress


@pytest.mark.parametrize(
    "progress",
    [
        RemovalProgress("g"),
        RemovalProgress("g", 3, 4),
        RemovalProgress("0aa-1", 12, 0),
        RemovalProgress("", 1, 2),
        RemovalProgress("g", state="m"),
        RemovalProgress("g", 2, 1, '{"idle_rounds":3, "rule":"sgr-1"}'),
        RemovalProgress("", 1, 0, "two lines\nof state"),
    ],
)
def test_progress_is_read_as_it_was_written(progress: RemovalProgress) -> None:
    assert RemovalProgress.read(str(progress), "other") == progress


@pytest.mark.parametrize("state", ["", "1", "snap-1", '{"rule":"sgr-1","written":"a b"}', "g 1", "g one 2", "g 1 -2"])
def test_before_the_first_delete_the_text_is_the_state_of_the_kind_alone(state: str) -> None:
    """The incarnation to remove is then the one that was planned, if any."""
    assert str(RemovalProgress(state=state)) == state
    assert RemovalProgress.read(state, "planned") == RemovalProgress("planned", state=state)
