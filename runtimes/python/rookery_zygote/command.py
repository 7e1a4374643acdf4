"""How a child becomes a program: nothing of the process that forked it stays, but the descriptors that it is given."""

import os
import signal

from . import process

_RESET = (signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)


def detach(descriptors):
    """A session of its own, ordinary signals, and no descriptors but these, as 0, 1, 2 …"""
    reset_signals()
    os.setsid()
    os.umask(0o022)
    arrange(descriptors)


def reset_signals():
    signal.set_wakeup_fd(-1)
    for number in _RESET:
        signal.signal(number, signal.SIG_DFL)


def arrange(descriptors):
    """The descriptors become 0, 1, 2 …; all others are closed."""
    # First out of the way, so that none is overwritten before it has moved.
    moved = []
    for descriptor in descriptors:
        high = descriptor
        while high < len(descriptors):
            high = os.dup(high)
        moved.append(high)
    for number, descriptor in enumerate(moved):
        os.dup2(descriptor, number)
    process.close_all_but(range(len(descriptors)))


def run(argv, env, working_dir, asked_dir=""):
    """
    Becomes the program, or ends with 127 and a line that says why not. `asked_dir`: where somebody wants it to run, if anywhere; a relative
    one counts from `working_dir`.
    """
    enter_directory(working_dir)
    what = argv[0]
    try:
        if asked_dir:
            # A command for that directory may do harm in another one.
            what = "%s in %s" % (argv[0], asked_dir)
            os.chdir(asked_dir)
            what = argv[0]
        os.execvpe(argv[0], argv, env)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        os.write(2, ("cannot run %s: %s\n" % (what, reason)).encode("utf-8", "replace"))
    os._exit(127)


def enter_directory(path):
    try:
        os.chdir(path)
    except OSError:
        os.chdir("/")
