"""
A session of the runtime with itself, in one thread: what every instance does until it has answered its first call. For zygotes: the
interpreter adapts code and classes to what they are used for, and each instance would else do that in pages of its own.
"""
import socket

from . import protocol
from .calls import InitRequest
from .runtime import Runtime

_SECRET = 'rehearsal'
#: A bound for a machine that stands still; nothing here waits.
_SECONDS = 60


def rehearse(init):
    """Loads what `init` names, the members of an INIT, and calls it. Leaves no descriptor; whoever asks forgets the modules."""
    client, accepted = socket.socketpair()
    # Nobody connects to it.
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


def _last(runtime, handler):
    """The handler, for a call after which the runtime reads no more."""
    def handle(event, context):
        runtime.stopping = True
        return handler(event, context)
    return handle
