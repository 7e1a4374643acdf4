"""Does in the zygote, before it forks, what every instance does: as far as that can be done and taken back.

A forked process pays for the first write to each page. The interpreter writes when code runs for the first times, when an attribute is
looked up for the first time, and when a module is first asked for: all of that is then there already.
"""

import importlib
import os
import socket
import sys

import rookery_runtime

from . import frames, user_process

_CODE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "rehearsed")
_NAME = "rookery_rehearsed.handler"
#: After eight runs an interpreter has adapted the code that it runs.
_SESSIONS = 9
#: Of the code that comes with the zygote.
INIT = {
    "codePath": _CODE,
    "handler": _NAME,
    "initializer": "",
    "preStop": "",
    "initTimeoutMs": 60000,
    "concurrency": 1,
    "maxResultBytes": 1024,
    "instanceId": "rehearsal",
    "tenant": "default",
    "namespace": "default",
    "name": "rehearsal",
    "functionName": "",
    "version": "",
    "memoryMb": 512,
    "cpuMillis": 1000,
}

#: What an instance is told, in the shape of what the native program writes.
ORDERS = {
    "instanceId": "rehearsal",
    "identity": {"uid": 0, "gid": 0, "groups": [0], "set": True, "map": False},
    "limits": {"memoryMb": 512, "maxOpenFiles": 1024, "maxProcesses": 64},
    "env": {"A": "b"},
    "workingDir": "/",
    "secret": "rehearsal",
    "init": INIT,
}


def prepare(times=_SESSIONS):
    """Whole sessions, so many times. Leaves nothing behind; the modules that an agent needs are there before any fork."""
    for _ in range(times):
        _read_orders()
        user_process.set_environment(dict(os.environ))
        _load_and_call()
    # Once for all, since it writes to each finder: what is mounted later is looked at, whatever its directory's time is.
    importlib.invalidate_caches()


def _read_orders():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        frames.write_message(ours, ORDERS)
        frames.read_message(theirs)


def _load_and_call():
    path, writes = list(sys.path), sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    try:
        rookery_runtime.rehearse(INIT)
    finally:
        sys.dont_write_bytecode = writes
        sys.path[:] = path
        sys.path_importer_cache.pop(_CODE, None)
        sys.modules.pop(_NAME.split(".")[0], None)
