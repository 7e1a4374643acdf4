"""Texts for failures of user code: one line for the answer, the whole traceback for the log."""
import os
import sys
import traceback

_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep


class CallFailure(Exception):
    """A failure with an error code of the protocol."""

    def __init__(self, code, message):
        Exception.__init__(self, message)
        self.code = code
        self.message = message


#: Returns the name of a class without running code of its metaclass.
name_of_class = type.__dict__['__name__'].__get__


def text_of(error):
    """Returns a text such as `ValueError: boom`. Never raises, even if the exception's own code does."""
    name = name_of_class(type(error))
    try:
        text = str.__str__(str(error))  # converts an instance of a user's subclass of str
    except BaseException as broken:  # __str__ is user code
        text = '<its text cannot be had: %s>' % name_of_class(type(broken))
    return '%s: %s' % (name, text) if text else name


def is_foreign(filename):
    """Returns True if a traceback's frame belongs neither to the runtime nor to the import system."""
    return not filename.startswith(_OURS) and not filename.startswith('<frozen importlib')


def log_exception(title, error):
    """Writes the exception's traceback to stderr in one piece, without frames of the runtime."""
    log(title + '\n' + trace_of(error))


def trace_of(error):
    """Returns the exception's traceback without frames of the runtime."""
    try:
        trace = traceback.TracebackException(type(error), error, error.__traceback__)
        _trim(trace, set())
        text = ''.join(trace.format())
    except BaseException as broken:
        text = '%s\n(no traceback: %s)\n' % (text_of(error), text_of(broken))
    return text.rstrip('\n')


def log(text):
    """Writes one message of the runtime to the instance's log. Never raises."""
    try:
        sys.stderr.write(text + '\n')
        sys.stderr.flush()
    except BaseException:  # the user's code has closed or replaced stderr
        pass


def _trim(trace, seen):
    if trace is None or id(trace) in seen:
        return
    seen.add(id(trace))
    trace.stack[:] = [frame for frame in trace.stack if is_foreign(frame.filename)]
    _trim(trace.__cause__, seen)
    _trim(trace.__context__, seen)
