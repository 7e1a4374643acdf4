"""Failures that the control plane must be able to tell apart."""

import errno

#: What the machine lacks now and may have again: room on the disk, memory, descriptors, processes.
_SHORTAGES = (errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EAGAIN)


def code_of(error):
    """The code of a failure that nobody foresaw: `unavailable` where the same may go well later."""
    return "unavailable" if getattr(error, "errno", None) in _SHORTAGES else "internal"


class StartFailure(Exception):
    """The start cannot be done as it was asked: a sentence for the caller, and the code of `src/core/error.ts`."""

    def __init__(self, message, code="failed_precondition"):
        super(StartFailure, self).__init__(message)
        self.message = message
        self.code = code


class LayerFailure(Exception):
    """One layer of isolation does not work on this machine."""

    def __init__(self, layer, error):
        reason = getattr(error, "strerror", None) or str(error)
        super(LayerFailure, self).__init__("%s: %s" % (layer, reason))
        self.layer = layer
        self.reason = reason


class Refusal(Exception):
    """A running sandbox does not do what it was asked: a sentence for the caller, and the code of `src/core/error.ts`."""

    def __init__(self, code, message):
        super(Refusal, self).__init__(message)
        self.code = code
        self.message = message
