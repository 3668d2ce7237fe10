"""Watching processes from a test: wait for something, and who is left of a group."""

import os
import time

import psutil


def wait_for(look, seconds: float = 20.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := look():
            return found
        time.sleep(0.05)
    raise AssertionError("waited in vain")


def group_members(group: int) -> list[psutil.Process]:
    members = []
    for process in psutil.process_iter():
        try:
            same = os.getpgid(process.pid) == group
            if same and process.status() != psutil.STATUS_ZOMBIE:
                members.append(process)
        except (ProcessLookupError, psutil.Error):
            pass
    return members
