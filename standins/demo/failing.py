"""What the demo says where it can't be shown at all.
What goes wrong while it is shown is judged at the end instead."""


class DemoFailed(Exception):
    """It did not come as far as deleting everything; the message says why."""
