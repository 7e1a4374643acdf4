"""Turns a child process into a program that keeps nothing of its parent except the given descriptors."""

import os
import signal

from . import process

_RESET = (signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)


def detach(descriptors):
    """Starts a new session with default signals. Keeps only the given descriptors, as 0, 1, 2 …"""
    reset_signals()
    os.setsid()
    os.umask(0o022)
    arrange(descriptors)


def reset_signals():
    signal.set_wakeup_fd(-1)
    for number in _RESET:
        signal.signal(number, signal.SIG_DFL)


def arrange(descriptors):
    """Moves the descriptors to 0, 1, 2 … and closes all others."""
    # Moves low numbers away first, so that no descriptor is overwritten before it has moved.
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
    Executes the program. Writes a line with the reason to standard error and exits with 127 if that fails.

    `asked_dir` is the directory that the caller asked for, or empty. A relative one is relative to
    `working_dir`.
    """
    enter_directory(working_dir)
    what = argv[0]
    try:
        if asked_dir:
            # Fails if the directory does not exist: in another one the command might do harm.
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
