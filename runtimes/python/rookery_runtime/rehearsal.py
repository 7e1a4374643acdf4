"""
A session of the runtime with itself, in one thread: what every instance does until it has answered its first call. For zygotes: the
interpreter adapts code and classes to what they are used for, and each instance would else do that in pages of its own.
"""
import signal
import socket
import sys

from . import interrupt, process, protocol
from .calls import InitRequest
from .runtime import Runtime

_SECRET = 'rehearsal'
#: A bound for a machine that stands still; nothing here waits.
_SECONDS = 60


def rehearse(init):
    """
    Loads what `init` names, the members of an INIT, and calls it; in the main thread. Leaves no descriptor; whoever asks forgets the modules.
    """
    _take_over()
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


def _take_over():
    """What `Runtime.run` begins with, and back: but for the signals that end the process, which may come."""
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
    """The handler, for a call after which the runtime reads no more."""
    def handle(event, context):
        runtime.stopping = True
        return handler(event, context)
    return handle
