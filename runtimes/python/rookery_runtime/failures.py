"""What went wrong in user code, as texts: one line for the answer, the whole traceback for the log."""
import os
import sys
import traceback

_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep


class CallFailure(Exception):
    """A failure with a code of the protocol."""

    def __init__(self, code, message):
        Exception.__init__(self, message)
        self.code = code
        self.message = message


#: The name of a class, past what its metaclass makes of it.
name_of_class = type.__dict__['__name__'].__get__


def text_of(error):
    """`ValueError: boom`, whatever the exception's own code does."""
    name = name_of_class(type(error))
    try:
        text = str.__str__(str(error))  # itself, where that is of a class of the user's
    except BaseException as broken:  # its __str__ is the user's code
        text = '<its text cannot be had: %s>' % name_of_class(type(broken))
    return '%s: %s' % (name, text) if text else name


def is_foreign(filename):
    """Whether a frame of a traceback is neither ours nor the import system's."""
    return not filename.startswith(_OURS) and not filename.startswith('<frozen importlib')


def log_exception(title, error):
    """Writes the exception's traceback to stderr, in one piece and without frames of ours."""
    try:
        trace = traceback.TracebackException(type(error), error, error.__traceback__)
        _trim(trace, set())
        text = ''.join(trace.format())
    except BaseException as broken:
        text = '%s\n(no traceback: %s)\n' % (text_of(error), text_of(broken))
    log(title + '\n' + text.rstrip('\n'))


def log(text):
    """One message of the runtime's own in the instance's log; never fails."""
    try:
        sys.stderr.write(text + '\n')
        sys.stderr.flush()
    except BaseException:  # the user's code has closed or replaced it
        pass


def _trim(trace, seen):
    if trace is None or id(trace) in seen:
        return
    seen.add(id(trace))
    trace.stack[:] = [frame for frame in trace.stack if is_foreign(frame.filename)]
    _trim(trace.__cause__, seen)
    _trim(trace.__context__, seen)
