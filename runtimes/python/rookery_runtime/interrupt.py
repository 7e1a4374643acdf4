"""
Raising CallCancelled in user code, and only there.

User code is entered through the `enter...` functions below ("doors"), each with the call as a parameter named `call`.
In the main thread a signal does it: its Python handler walks the interrupted stack outward and raises only when it meets a
door whose call is due, and nothing protected before it. So it cannot hit the runtime's own code, nor a call that came after,
whenever the signal happens to arrive; and it cuts blocking system calls short. Other threads have no signals in Python: there
the interpreter's asynchronous exceptions do it (threads.py), which wait for a blocking system call to end.
"""
import signal

try:
    import ctypes
except ImportError:  # an interpreter that was built without libffi
    ctypes = None

#: Ignored by default, so a stray one is harmless where somebody has reset its handler.
SIGNAL = signal.SIGURG


class CallCancelled(BaseException):
    """Raised inside a handler whose call timed out, was interrupted, or whose caller went away."""


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
    """Marks a function of the runtime that user code calls and that must not be cut in the middle."""
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
    """The exception that a cancelled call's code gets."""
    return CallCancelled(REASONS[call.reason])


def install():
    """In the main thread, before any user code."""
    signal.signal(SIGNAL, _on_signal)


def interrupt_main(call, main_thread):
    """Raises CallCancelled in the main thread if it is in this call's user code now; from any thread."""
    call.due = True
    signal.pthread_kill(main_thread, SIGNAL)


def interrupt_thread(thread):
    """Raises CallCancelled in another thread at its next step. The caller makes sure that it is in user code."""
    if ctypes is not None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(CallCancelled))


def withdraw(thread):
    """Takes an interrupt back that was not raised yet."""
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
