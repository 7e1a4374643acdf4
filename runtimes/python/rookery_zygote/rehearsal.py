"""Runs the steps of every instance in the zygote before it forks, as far as they can be undone.

A forked process pays for the first write to each page. The interpreter writes when code runs for the first
time, when an attribute is looked up for the first time, and when a module is first imported. After the
rehearsal all of that has happened.
"""

import importlib
import os
import socket
import sys

import rookery_runtime

from . import frames, user_process

_CODE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "rehearsed")
_NAME = "rookery_rehearsed.handler"
#: Number of sessions. After eight runs an interpreter has adapted the code that it runs.
_SESSIONS = 9
#: The INIT for the code that is part of the zygote.
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

#: Orders of an instance, in the format of the native program.
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
    """
    Runs complete sessions, `times` in number.

    Leaves only imported modules, which agents need before any fork.
    """
    for _ in range(times):
        _read_orders()
        user_process.set_environment(dict(os.environ))
        _load_and_call()
    # Called once, because it writes to each finder. Later mounts are then found whatever the times of their
    # directories are.
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
