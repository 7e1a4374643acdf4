"""What every instance does at its beginning, done once in each worker, before anybody waits for it.

A forked process pays for the first write to each page, and the interpreter writes wherever it runs. Loading a handler costs
twice as much without this.
"""

import importlib
import json
import os
import sys
import threading

from rookery_runtime import entry, process, values

from . import waiting

_CODE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "rehearsed")
_NAME = "rookery_rehearsed.handler"
_THREAD_SECONDS = 2
_STEP_SECONDS = 0.0005


def load_agent():
    """Loads and calls an agent, and forgets it: in the zygote, so that modules that this needs are there before any fork."""
    path, writes = list(sys.path), sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    try:
        entry.prepare_path(_CODE)
        handler = entry.adapt_handler(entry.load(_NAME, _CODE, "handler"), _NAME)
        event = values.decode(b'{"a": [1, "b"]}')
        values.encode(handler(event, None))
    finally:
        sys.dont_write_bytecode = writes
        sys.path[:] = path
        sys.path_importer_cache.pop(_CODE, None)
        sys.modules.pop(_NAME.split(".")[0], None)
        importlib.invalidate_caches()


def rehearse():
    """The same in a worker, and what else an instance does. Leaves nothing behind but pages that are this process's own."""
    try:
        load_agent()
    except Exception:
        # A mount of an instance that did not wait for this may be above its files. They save time and are not needed.
        pass
    json.loads(json.dumps({"env": dict(os.environ), "limits": [1, None]}))
    thread = threading.Thread(target=os.getpid)
    thread.start()
    thread.join()
    _wait_for_threads()
    for flush in process.make_standard_streams():
        flush()


def _wait_for_threads():
    """A thread that was joined is the kernel's for another moment, and a process of two threads may not enter a user namespace."""
    waiting.until(lambda: len(os.listdir("/proc/self/task")) == 1, _THREAD_SECONDS, _STEP_SECONDS)
