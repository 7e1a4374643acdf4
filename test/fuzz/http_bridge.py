"""Calls the HTTP server at 127.0.0.1:<port> through the bridge, from several threads, until standard input ends.

Each line of input is a mark for the event of one call. Each line of output is the outcome of a call as JSON.
"""

import json
import resource
import sys
import threading
import types

from rookery_runtime import http_bridge, http_program
from rookery_runtime.failures import CallFailure
from rookery_runtime.values import NotJson

THREADS = 4
LIMIT = 64 * 1024
http_program.ADDRESS = ("127.0.0.1", int(sys.argv[1]))
code = http_bridge._Code(types.SimpleNamespace(wait_for_end=lambda: None))
code.load({"maxResultBytes": LIMIT})
told = threading.Lock()


def call(mark, stream):
    body = json.dumps({"mark": mark}).encode()
    context = types.SimpleNamespace(
        _call=types.SimpleNamespace(body=body, stream=lambda: stream),
        headers={},
        instance_id="i",
        trace_id="",
        request_id="",
        traceparent="",
        session_id=None,
    )
    try:
        return {"kind": "value", "text": str(code._invoke(None, context))[:1000]}
    except CallFailure as failure:
        return {"kind": "too large", "text": failure.message}
    except (http_bridge.HttpFailure, NotJson) as failure:
        return {"kind": "failure", "text": str(failure)}
    except BaseException as error:
        return {"kind": "escaped", "text": "%s: %s" % (type(error).__name__, error)}


def work():
    while True:
        line = sys.stdin.readline()
        if not line:
            return
        mark = line.strip()
        stream = types.SimpleNamespace(write=lambda value: None) if mark.endswith("1.") else None
        outcome = call(mark, stream)
        outcome["mark"] = mark
        outcome["peakMb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        with told:
            print(json.dumps(outcome), flush=True)


threads = [threading.Thread(target=work) for _ in range(THREADS)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
held = sum(code._limiter._held.values())
print(json.dumps({"kind": "end", "mark": "", "text": "" if held == 0 else "%d bytes are held" % held, "peakMb": 0}), flush=True)
