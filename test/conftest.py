"""Settings shared by all tests."""

from hypothesis import settings

# The same examples every time, and no deadline: a test must not fail because a machine is busy.
settings.register_profile("repeatable", max_examples=25, deadline=None, derandomize=True)
settings.load_profile("repeatable")
