"""Describes the end of a process in the terms of the control plane."""

import os
import signal
import time


def exit_of(status, has_killed):
    """
    Returns the description of a process with this wait status.

    `has_killed()` returns True if the kernel has ended a process for lack of memory.
    """
    killed_by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
    return {
        "code": None if killed_by else os.WEXITSTATUS(status),
        "signal": None if killed_by is None else _signal_name(killed_by),
        "oomKilled": _is_killed(status) and has_killed(),
        "atMs": int(time.time() * 1000),
    }


def _is_killed(status):
    """Returns True if SIGKILL ended the process, or its program as reported by a shell's exit code."""
    if os.WIFSIGNALED(status):
        return os.WTERMSIG(status) == signal.SIGKILL
    return os.WEXITSTATUS(status) == 128 + signal.SIGKILL


def _signal_name(number):
    try:
        return signal.Signals(number).name
    except ValueError:
        return "SIGRT%d" % number
