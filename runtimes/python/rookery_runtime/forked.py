"""Handles children that user code forks: each ends as a Python program ends, and answers no call."""
import atexit
import os
import sys
import threading

from .failures import CallFailure, log, trace_of
from .values import NotJson

_instance = [None]


def remember_instance():
    """Records this process as the instance. Every process with another id is a child of the user's code."""
    _instance[0] = os.getpid()


def leave_child(error=None):
    """
    Ends the process if it is a child of the user's code, whose call returned or raised `error`.

    Returns without effect in the instance.
    """
    if os.getpid() == _instance[0]:
        return
    code = _exit_code(error)
    for step in (threading._shutdown, atexit._run_exitfuncs, sys.stdout.flush, sys.stderr.flush):
        try:
            step()
        except BaseException as failure:
            log(trace_of(failure))
    os._exit(code)


def _exit_code(error):
    # CallFailure and NotJson concern the value that the child returned, and no caller reads that value.
    if error is None or isinstance(error, (CallFailure, NotJson)):
        return 0
    if not isinstance(error, SystemExit):
        log(trace_of(error))
        return 1
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code & 0xff
    log(str(error.code))
    return 1
