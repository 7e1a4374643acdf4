"""
Runs a session of the runtime with itself in one thread, up to the answer of its first call. For zygotes.

The interpreter adapts code and classes to their use. Without a rehearsal each instance would do that in
memory pages of its own.
"""
import signal
import socket
import sys

from . import interrupt, process, protocol
from .calls import InitRequest
from .runtime import Runtime

_SECRET = 'rehearsal'
#: Limit in case the machine stalls. Nothing here waits otherwise.
_SECONDS = 60


def rehearse(init):
    """
    Loads the handler that `init`, the members of an INIT, names, and calls it in the main thread.

    Leaves no descriptor open. The caller removes the loaded modules.
    """
    _take_over()
    client, accepted = socket.socketpair()
    # No client connects to this listener.
    listener, other = socket.socketpair()
    with client, listener, other:
        runtime = Runtime(listener)
        try:
            runtime.control.open(_SECRET, _SECONDS)
            runtime.control.greet(accepted)
            hello = {'version': protocol.VERSION, 'secret': _SECRET, 'client': 'rehearsal', 'role': 'data'}
            client.sendall(protocol.json_frame(protocol.HELLO, 0, hello) + protocol.json_frame(protocol.INIT, 0, init))
            runtime.initialize(InitRequest(None, init))
            runtime.control.lead()
            runtime.program.handler = _last(runtime, runtime.program.handler)
            client.sendall(protocol.frame(protocol.CALL, 1, b'\0\2{}{"a": [1, "b"]}'))
            runtime.executor.run()
            client.close()
            while runtime.connections:
                runtime.control.serve(_SECONDS)
            runtime.reader.wait()
        finally:
            runtime.discard()


def _take_over():
    """
    Runs and reverts the first steps of `Runtime.run`.

    Handlers of the signals that end the process stay as they are, because such a signal may arrive.
    """
    held = {name: getattr(sys, name) for name in ('argv', 'orig_argv') if hasattr(sys, name)}
    main, handler = sys.modules['__main__'], signal.getsignal(interrupt.SIGNAL)
    try:
        process.make_main_module()
        process.read_environment()
        interrupt.install()
    finally:
        sys.modules['__main__'] = main
        for name, value in held.items():
            setattr(sys, name, value)
        signal.signal(interrupt.SIGNAL, handler)


def _last(runtime, handler):
    """Returns the handler, changed so that the runtime reads no more after its call."""
    def handle(event, context):
        runtime.stopping = True
        return handler(event, context)
    return handle
