"""Does the first steps of every instance once in each worker, before anybody waits for it.

A forked process pays for the first write to each page, and the interpreter writes wherever it runs. Loading a handler costs
twice as much without this.
"""

import importlib
import json
import os
import sys

import rookery_runtime
from rookery_runtime import entry, values

_CODE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "rehearsed")
_NAME = "rookery_rehearsed.handler"
#: After eight runs an interpreter has adapted the code that it runs.
_SESSIONS = 9
_INIT = {
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


def prepare(times=_SESSIONS):
    """In the parent of all that rehearse: whole sessions, so many times. The modules that an agent needs are there before any fork."""
    for _ in range(times):
        _forgetting(rookery_runtime.rehearse, _INIT)
    # Once for all, since it writes to each finder: what is mounted later is looked at, whatever its directory's time is.
    importlib.invalidate_caches()


def _load_agent():
    entry.prepare_path(_CODE)
    handler = entry.adapt_handler(entry.load(_NAME, _CODE, "handler"), _NAME)
    event = values.decode(b'{"a": [1, "b"]}')
    values.encode(handler(event, None))


def _forgetting(run, *arguments):
    """Runs what loads the agent, and forgets it."""
    path, writes = list(sys.path), sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    try:
        run(*arguments)
    finally:
        sys.dont_write_bytecode = writes
        sys.path[:] = path
        sys.path_importer_cache.pop(_CODE, None)
        sys.modules.pop(_NAME.split(".")[0], None)


def rehearse():
    """The same in a worker, and what else an instance does. Leaves nothing behind but pages that are this process's own."""
    try:
        _forgetting(_load_agent)
    except Exception:
        # A mount of an instance that did not wait for this may be above its files. They save time and are not needed.
        pass
    json.loads('{"env": {"A": "b"}, "limits": [1, null]}')
