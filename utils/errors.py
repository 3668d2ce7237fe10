"""Errors that a user can act on. Imports nothing."""


class CourseError(Exception):
    """A mistake that the user can mend.

    The message is one line that names what was wrong and what to do about it.
    `distlab` prints it without a traceback and ends with exit status 2.
    """
