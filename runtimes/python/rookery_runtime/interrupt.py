"""
Raises CallCancelled in user code, and only there.

The runtime enters user code through the `enter...` functions below ("doors"). Each has the call as a
parameter named `call`.

In the main thread a signal interrupts user code. The signal's Python handler walks the interrupted stack
outward. It raises only if it reaches a door whose call is due before it reaches a protected function. So the
exception never hits the runtime's own code or a later call, whenever the signal arrives. The signal also ends
blocking system calls.

Other threads receive no signals in Python. There the interpreter's asynchronous exceptions are used
(threads.py), which wait until a blocking system call ends.
"""
import signal

try:
    import ctypes
except ImportError:  # an interpreter that was built without libffi
    ctypes = None

#: Signal that is ignored by default, so that a stray one is harmless if user code has reset its handler.
SIGNAL = signal.SIGURG


class CallCancelled(BaseException):
    """
    Raised inside a handler whose call timed out or was interrupted, whose caller disconnected, or whose
    instance stops.

    It derives from BaseException, so `except Exception` does not catch it.
    """


REASONS = {
    'timeout': 'the call timed out',
    'caller': 'the caller went away',
    'interrupt': 'the call was interrupted',
    'stop': 'the instance is stopping',
}

_doors = set()
_protected = set()


def _door(function):
    _doors.add(id(function.__code__))
    return function


def protected(function):
    """Marks a function of the runtime that user code calls and that must not be interrupted halfway."""
    _protected.add(id(function.__code__))
    return function


@_door
def enter(call, function, event, context):
    return function(event, context)


@_door
def enter_with(call, function, *arguments):
    return function(*arguments)


@_door
async def enter_await(call, awaitable):
    return await awaitable


def cancelled(call):
    """Returns the exception to raise in the code of a cancelled call."""
    return CallCancelled(REASONS[call.reason])


def install():
    """Installs the signal handler. Called in the main thread, before any user code."""
    signal.signal(SIGNAL, _on_signal)


def interrupt_main(call, main_thread):
    """
    Raises CallCancelled in the main thread if that runs this call's user code now. May be called from any
    thread.
    """
    call.due = True
    signal.pthread_kill(main_thread, SIGNAL)


def interrupt_thread(thread):
    """
    Raises CallCancelled in another thread at its next bytecode. The caller ensures that the thread runs user
    code.
    """
    if ctypes is not None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(CallCancelled))


def withdraw(thread):
    """Withdraws an interrupt that was not raised yet."""
    if ctypes is not None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), None)


def _on_signal(_signal_number, frame):
    while frame is not None:
        code = id(frame.f_code)
        if code in _protected:
            return
        if code in _doors:
            call = frame.f_locals.get('call')
            if call is not None and call.due:
                call.due = False
                call.delivered = True
                raise cancelled(call)
            return
        frame = frame.f_back
