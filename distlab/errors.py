"""The course's own error. Imports nothing but the library's."""

from utils.errors import DistributedError


class CourseError(DistributedError):
    """A mistake that the user can fix.

    The message is one line that names what was wrong and what to do about it.
    `distlab` prints it, and any `DistributedError`, without a traceback and ends
    with exit status 2.
    """
