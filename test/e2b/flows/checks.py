"""Runs the checks of a flow and prints a line of JSON for each result.

A flow marks functions with `@check(TITLE)`, which `test/e2b/flow.ts` reads to register a test for each, and
ends with `run_checks()`. A check may be a coroutine function.
"""

import asyncio
import contextlib
import glob
import inspect
import json
import os
import sys
import threading
import time
import traceback

LIMIT_SECONDS = 100
#: Characters of a variable in a failure.
MOST_CHARS = 500
MARK = "\x1e"

_checks = []
_output = threading.Lock()


def check(title, aside=False):
    """Registers a check. One that mostly waits runs `aside`: beside the others, from the start."""

    def register(function):
        _checks.append((title, function, aside))
        return function

    return register


def run_checks():
    """Runs all checks, and exits without waiting for threads of checks that took too long."""
    asides = [threading.Thread(target=_run, args=(title, body)) for title, body, aside in _checks if aside]
    for thread in asides:
        thread.start()
    for title, function, aside in _checks:
        if not aside:
            _run(title, function)
    for thread in asides:
        thread.join()
    sys.stdout.flush()
    os._exit(0)


def _run(title, function):
    ended = []
    thread = threading.Thread(target=lambda: ended.append(_attempt(function)), daemon=True)
    started_at = time.monotonic()
    thread.start()
    thread.join(LIMIT_SECONDS)
    if thread.is_alive():
        frames = traceback.format_stack(sys._current_frames()[thread.ident])
        ended.append("the check took longer than %d s:\n%s" % (LIMIT_SECONDS, "".join(frames)))
    error = ended[0] if ended else "the check ended without a result"
    _print({"title": title, "error": error, "seconds": round(time.monotonic() - started_at, 2)})


def _attempt(function):
    """Runs a check. Returns `''`, or the traceback of its failure with the variables of the flow."""
    try:
        result = function()
        if inspect.iscoroutine(result):
            asyncio.run(result)
    except BaseException as error:
        return "".join(traceback.format_exception(error)) + "".join(_variables(error.__traceback__))
    return ""


def _variables(trace):
    for frame, line in traceback.walk_tb(trace):
        if os.path.dirname(frame.f_code.co_filename) != os.path.dirname(os.path.abspath(__file__)):
            continue
        for name, value in frame.f_locals.items():
            with contextlib.suppress(Exception):
                yield "  line %d: %s = %s\n" % (line, name, repr(value)[:MOST_CHARS])


def _print(line):
    with _output:
        print(MARK + json.dumps(line), flush=True)


def ask(request):
    """Asks the test for an action on the service and waits until it is done. Returns the answer."""
    _print({"ask": request})
    return json.loads(sys.stdin.readline())


@contextlib.contextmanager
def raises(*kinds, text=""):
    """Expects an exception of one of these classes, whose message contains `text`."""
    seen = []
    try:
        yield seen
    except Exception as error:
        if not isinstance(error, kinds) or text not in str(error):
            raise
        seen.append(error)
    else:
        raise AssertionError("nothing was raised, expected %s" % ", ".join(kind.__name__ for kind in kinds))


def eventually(condition, seconds=30, every=0.05):
    """Waits until a condition is true, and returns its value. Fails after `seconds`."""
    until = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > until:
            raise AssertionError("the condition did not become true within %s s: %r" % (seconds, value))
        time.sleep(every)


def processes_with(word):
    """Returns the pids of this machine whose environment contains a word."""
    found = []
    for path in glob.glob("/proc/[0-9]*/environ"):
        try:
            with open(path, "rb") as file:
                if word.encode() in file.read():
                    found.append(int(path.split("/")[2]))
        except OSError:
            pass
    return found
