"""The lock of each zygote, one per name, and the removal of the residue of earlier zygotes."""

import fcntl
import json
import os
import shutil
import time

#: Beginning of the name of the directory that the sandboxes of a zygote have as their /etc.
ETC = "etc-"
#: Beginnings of the names of zygotes: those of interpreters, and of programs that wait (`zygotes.ts`).
_ZYGOTES = ("py", "program")
_LOCK = ".lock"
_LOG = ".log"
_SOCKETS = (".control.sock", ".start.sock", ".start-later.sock", ".start-own.sock", ".start-none.sock")
#: Time for which the log of an ended zygote is kept, so that an operator can read it.
_KEEP_WORDS_SECONDS = 24 * 60 * 60
#: Age below which a log may belong to a starting zygote, which has its log before its lock.
_BEGINNING_SECONDS = 60
#: Attempts to lock, because a sweep holds a lock for a moment.
_TRIES = 5
_TRY_SECONDS = 0.02


class LockFile:
    """The file `<name>.lock` in the directory `run`."""

    def __init__(self, run, name):
        self._log = os.path.join(run, name + _LOG)
        self._path = os.path.join(run, name + _LOCK)
        self._descriptor = None

    def take(self):
        """Takes the lock. Returns False when a living process holds it. Raises OSError."""
        for _attempt in range(_TRIES):
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            if not _try_lock(descriptor):
                os.close(descriptor)
                time.sleep(_TRY_SECONDS)
            elif _is_at(descriptor, self._path):
                self._descriptor = descriptor
                return True
            else:
                # The file was removed between the opening and the lock.
                os.close(descriptor)
        return False

    def remove(self):
        """
        Removes the lock at the very end of its holder: a successor may start from now on.

        Keeps a log that is not empty.
        """
        if _size(self._log) == 0:
            _unlink(self._log)
        _unlink(self._path)


def sweep(run, sandboxes=()):
    """
    Removes locks, logs, sockets and templates of /etc of ended zygotes. Keeps a log with content for a day.

    `sandboxes` lists the directories of sandboxes, in the order in which a sandbox moves from one to the
    next.
    """
    # First, because this may create a lock file where there was none.
    _sweep_templates(run, sandboxes)
    entries = [entry for entry in os.listdir(run) if entry.startswith(_ZYGOTES)]
    for name in {os.path.splitext(entry)[0] for entry in entries if entry.endswith((_LOCK, _LOG))}:
        path = os.path.join(run, name)
        if _is_wanted(path + _LOG):
            continue
        try:
            descriptor = os.open(path + _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            # The holder has removed its lock.
            _unlink(path + _LOG)
            continue
        try:
            if _try_lock(descriptor) and _is_at(descriptor, path + _LOCK):
                # The lock file is removed last, while it is locked: until then no zygote starts under this
                # name.
                for ending in (_LOG,) + _SOCKETS + (_LOCK,):
                    _unlink(path + ending)
        finally:
            os.close(descriptor)


def _sweep_templates(run, sandboxes):
    """Removes the templates that no sandbox has as its /etc."""
    names = [entry[len(ETC) :] for entry in os.listdir(run) if entry.startswith(tuple(ETC + beginning for beginning in _ZYGOTES))]
    held = _launchers(sandboxes) if names else None
    if held is None:
        return
    for name in names:
        path = os.path.join(run, name)
        if name in held or _age(path + _LOG) < _BEGINNING_SECONDS:
            continue
        try:
            descriptor = os.open(path + _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError:
            continue
        try:
            if _try_lock(descriptor) and _is_at(descriptor, path + _LOCK):
                shutil.rmtree(os.path.join(run, ETC + name), ignore_errors=True)
        finally:
            os.close(descriptor)


def _launchers(sandboxes):
    """
    Returns the names of the zygotes that made the sandboxes in these directories, or None if that is unknown
    now.
    """
    found = set()
    for directory in sandboxes:
        for name in os.listdir(directory):
            try:
                with open(os.path.join(directory, name, "state.json")) as source:
                    found.add(json.load(source)["launcher"])
            except (FileNotFoundError, NotADirectoryError):
                # The file does not exist yet, or was removed: there is no sandbox.
                pass
            except (OSError, ValueError, LookupError, TypeError):
                return None
    return found


def is_removed(directory):
    """Returns True if this open directory was removed. A directory that was moved still has a name."""
    return os.fstat(directory).st_nlink == 0


def _is_wanted(log):
    return _age(log) < (_KEEP_WORDS_SECONDS if _size(log) else _BEGINNING_SECONDS)


def _age(path):
    """Returns the age of a file in seconds, or infinity if the file does not exist."""
    try:
        return time.time() - os.lstat(path).st_mtime
    except OSError:
        return float("inf")


def _size(path):
    try:
        return os.lstat(path).st_size
    except OSError:
        return None


def _try_lock(descriptor):
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except OSError:
        return False


def _is_at(descriptor, path):
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except OSError:
        return False


def _unlink(path):
    try:
        os.unlink(path)
    except OSError:
        pass
