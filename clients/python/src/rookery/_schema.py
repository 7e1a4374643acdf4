"""JSON Schemas from type hints, made as `rookery function register --input-schema hints` makes them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, Dict, Optional

from . import _hints
from ._error import RookeryError

#: Word that takes the place of a schema and asks for the one that the type hints of the handler give.
HINTS = "hints"
#: Runs a file without its directory in `sys.path`: modules there have names of the standard library.
PROGRAM = "import sys; sys.path[:] = filter(None, sys.path); import runpy; runpy.run_path(%r, run_name='__main__')"
#: Seconds; longer than the import of large packages on a busy machine.
IMPORT_TIMEOUT = 120


def schema_of(handler: Callable[..., Any]) -> Dict[str, Any]:
    """Returns the JSON Schema of the event of a handler, from the type hint of its first parameter.

    Fails with `RookeryError` if the hint is missing or has no form in JSON.
    """
    read: Callable[[Any], Dict[str, Any]] = _hints.schema_of
    try:
        return read(handler)
    except _hints.Unknown as problem:
        name = getattr(handler, "__qualname__", repr(handler))
        raise RookeryError("input_schema: %s: %s" % (name, problem)) from None


def schema_of_code(code: Any, handler: Optional[str], runtime: Optional[str]) -> Dict[str, Any]:
    """Imports the handler in a process of its own and returns the JSON Schema of its event.

    The packages that the code imports must be installed beside this client. Fails with `RookeryError`.
    """
    if runtime is not None and not runtime.startswith(("python", "lambda")):
        raise _refusal("only handlers in Python have type hints, and the runtime is %s. Pass the JSON Schema" % runtime)
    if code is None or not Path(code).is_dir():
        raise _refusal("needs the directory of the code on this machine, got %r" % (code,))
    name = handler or "handler.handle"
    what = "%s in %s" % (name, Path(code).resolve())
    # -B: leaves no compiled files in the code.
    command = [sys.executable, "-B", "-c", PROGRAM % _hints.__file__, str(Path(code).resolve()), name]
    try:
        ran = subprocess.run(command, cwd=code, capture_output=True, timeout=IMPORT_TIMEOUT)
    except subprocess.TimeoutExpired:
        raise _refusal("%s was not imported within %d s" % (what, IMPORT_TIMEOUT)) from None
    if ran.returncode != 0:
        last = (ran.stderr.decode(errors="replace").strip().splitlines() or ["no output"])[-1]
        raise _refusal("%s cannot be imported: %s" % (what, last))
    answer = json.loads(ran.stdout)
    if "problem" in answer:
        raise _refusal("%s: %s" % (what, answer["problem"]))
    schema: Dict[str, Any] = answer["schema"]
    return schema


def _refusal(text: str) -> RookeryError:
    return RookeryError("input_schema %s: %s" % (HINTS, text))
