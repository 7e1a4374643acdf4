"""Failures that the control plane distinguishes."""

import errno

#: Errors for lack of disk space, memory, descriptors or processes, which may be available again later.
_SHORTAGES = (errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EAGAIN)


def code_of(error):
    """Returns the code of an unexpected failure: `unavailable` if a later attempt may succeed."""
    return "unavailable" if getattr(error, "errno", None) in _SHORTAGES else "internal"


class StartFailure(Exception):
    """
    A start that cannot be done as requested: a sentence for the caller, and a code of `src/core/error.ts`.
    """

    def __init__(self, message, code="failed_precondition"):
        super(StartFailure, self).__init__(message)
        self.message = message
        self.code = code


class LayerFailure(Exception):
    """A layer of isolation that does not work on this machine."""

    def __init__(self, layer, error):
        reason = getattr(error, "strerror", None) or str(error)
        super(LayerFailure, self).__init__("%s: %s" % (layer, reason))
        self.layer = layer
        self.reason = reason


class Refusal(Exception):
    """
    A request that a running sandbox refuses: a sentence for the caller, and a code of `src/core/error.ts`.
    """

    def __init__(self, code, message):
        super(Refusal, self).__init__(message)
        self.code = code
        self.message = message
