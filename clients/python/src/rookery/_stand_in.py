"""Stands in for the client of Rookery beside uploaded code, so that `import rookery` works in the sandbox.

An installed client has priority. Otherwise decorated functions stay as they are, and every other name of the
client can be imported, but fails when it is called.
"""

import os
import sys
from importlib import machinery, util

_HERE = os.path.dirname(os.path.abspath(__file__))


def function(target=None, **_):
    """Returns the decorated function itself."""
    return target if target is not None else lambda decorated: decorated


def schema_of(_):
    """Returns an empty schema, because nothing is registered from a sandbox."""
    return {}


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)

    def refuse(*_, **__):
        raise ImportError("rookery.%s needs the client in the sandbox: add rookery to its requirements.txt" % name)

    # An exception, so that `except rookery.RookeryError` works too.
    return type(name, (Exception,), {"__init__": refuse})


_SPEC = machinery.PathFinder.find_spec(__name__, [path for path in sys.path if os.path.abspath(path) != _HERE])
if _SPEC is not None and _SPEC.has_location:
    _MODULE = util.module_from_spec(_SPEC)
    sys.modules[__name__] = _MODULE
    _SPEC.loader.exec_module(_MODULE)
