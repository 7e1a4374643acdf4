"""Reads and writes files as seen by this process, with its rights: one request of a connection.

Paths are UTF-8. In requests and answers a lone surrogate (`\\udc80` to `\\udcff`) stands for a byte that is
not UTF-8. A relative path is relative to the working directory of this process.
"""

import errno
import heapq
import os
import select
import stat
import struct
import sys
import time

from . import frames
from .failure import Refusal

#: Time limit for the caller between two parts of a file that it writes.
_STALLED_SECONDS = 120
#: Time that a caller has to read a refusal while it still writes.
_HEARD_SECONDS = 10
_CHUNK = 1048576
_SEND_BUFFER = 1048576
#: Size limit of a list, even if the caller would accept more.
_MOST_LIST_BYTES = 16777216
_ENTRIES_BETWEEN_LOOKS = 500
_TRIES_OF_NAMES = 100
#: Limit of symbolic links in one path, the same as the kernel's.
_MOST_LINKS = 40
#: Mode of a new file when the request has none.
_NEW_MODE = 0o644
_MODE = 0o7777
#: Mode bits that a request may set. Set-user-id and set-group-id are excluded.
_GIVEN_MODE = 0o1777
_TMPFILE = getattr(os, "O_TMPFILE", 0)

_MISSING = (errno.ENOENT, errno.ENOTDIR)
_DENIED = (errno.EACCES, errno.EPERM, errno.EROFS)
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ENOMEM, errno.EMLINK)
_WRONG = (errno.ELOOP, errno.ENAMETOOLONG, errno.EISDIR, errno.EINVAL, errno.ENXIO, errno.ENODEV)


def serve(connection, request):
    """Handles a request and answers it. Raises Refusal only before the first answer."""
    operation, path = _OPERATIONS[request["op"]], _path_of(request["path"])
    try:
        operation(connection, path, request)
    except MemoryError:
        raise Refusal("resource_exhausted", "the memory of the sandbox is not enough for %s" % _show(path))


def _path_of(text):
    if text == "":
        raise Refusal("invalid_request", "the path must not be empty")
    if "\0" in text:
        raise Refusal("invalid_request", "the path must not contain a NUL byte")
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise Refusal("invalid_request", "the path is not text that can be the name of a file")


def _text_of(path):
    return path.decode("utf-8", "surrogateescape")


def _show(path):
    """Returns a path as text for a message."""
    return path.decode("utf-8", "replace")


def _refusal(error, path, doing):
    shown = _show(path)
    number = error.errno
    reason = os.strerror(number)
    if number in _MISSING:
        return Refusal("not_found", "%s does not exist in the sandbox: %s" % (shown, reason))
    if number == errno.EROFS:
        return Refusal("permission_denied", "%s cannot be %s: it is on a read-only file system" % (shown, doing))
    if number in _DENIED:
        return Refusal("permission_denied", "%s cannot be %s by the user of the sandbox: %s" % (shown, doing, reason))
    if number in _FULL:
        return Refusal("resource_exhausted", "%s cannot be %s: %s" % (shown, doing, reason))
    if number in _WRONG:
        return Refusal("invalid_request", "%s cannot be %s: %s" % (shown, doing, reason))
    if number == errno.EBUSY:
        return Refusal("failed_precondition", "%s cannot be %s: something is mounted there" % (shown, doing))
    return Refusal("unavailable", "%s cannot be %s: %s" % (shown, doing, reason))


# Reading


def _open(connection, path, _request):
    """
    Answers with the facts of the file.

    Then waits for the range and sends the raw bytes of it, without frames.
    """
    descriptor = _open_regular(path)
    about = os.fstat(descriptor)
    frames.write_message(
        connection,
        {
            "ok": True,
            "sizeBytes": about.st_size,
            "modifiedAtMs": about.st_mtime_ns // 1000000,
            "mode": about.st_mode & _MODE,
        },
    )
    connection.settimeout(None)
    wanted = frames.read_message(connection)
    if wanted is None:
        return
    try:
        connection.setsockopt(_SOL_SOCKET, _SO_SNDBUF, _SEND_BUFFER)
    except OSError:
        pass
    offset, end = wanted["start"], min(wanted["end"], about.st_size)
    while offset < end:
        sent = os.sendfile(connection.fileno(), descriptor, offset, min(end - offset, _CHUNK))
        if sent == 0:
            # The file has become shorter. The caller counts the bytes.
            return
        offset += sent


def _open_regular(path):
    try:
        # Checked before opening too, because opening a pipe or a device can have effects.
        _demand_regular(os.stat(path), path)
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        _demand_regular(os.fstat(descriptor), path)
    except OSError as error:
        raise _refusal(error, path, "read")
    return descriptor


def _demand_regular(about, path):
    if not stat.S_ISREG(about.st_mode):
        raise Refusal("invalid_request", "%s is %s, not a file" % (_show(path), _kind_in_words(about.st_mode)))


def _kind_in_words(mode):
    for check, words in (
        (stat.S_ISDIR, "a directory"),
        (stat.S_ISFIFO, "a pipe"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISLNK, "a symbolic link"),
    ):
        if check(mode):
            return words
    return "a device"


# Writing


def _write(connection, path, request):
    """
    Writes a file from frames, which end with an empty frame.

    Answers once the caller may send. When all content has arrived, the new file replaces the old one, and a
    second answer has its size.
    """
    with _NewFile(path) as new:
        mode = new.mode if request["mode"] is None else request["mode"] & _GIVEN_MODE
        frames.write_message(connection, {"ok": True})
        connection.settimeout(_STALLED_SECONDS)
        try:
            size = new.receive(connection)
            if size is not None:
                new.take_place(mode)
                frames.write_message(connection, {"ok": True, "sizeBytes": size})
        except Refusal as refusal:
            _refuse_in_the_middle(connection, refusal)


def _refuse_in_the_middle(connection, refusal):
    """
    Sends a refusal to a caller that is still writing.

    Reads on for up to 10 s, because closing the connection at once could hide the answer.
    """
    frames.write_message(connection, {"ok": False, "code": refusal.code, "message": refusal.message})
    deadline = time.monotonic() + _HEARD_SECONDS
    connection.settimeout(_HEARD_SECONDS)
    while connection.recv(_CHUNK) and time.monotonic() < deadline:
        pass


class _NewFile:
    """
    A new file without a name if the file system supports that, otherwise with a temporary name in the
    target's directory.

    Removed unless `take_place` succeeds.
    """

    def __init__(self, path):
        self._path = path
        self._temporary = None
        self._descriptor = None
        self._parent = None
        #: Mode of the file that is replaced, or of a new file.
        self.mode = _NEW_MODE
        try:
            self._find_place()
            self._descriptor = self._open_nameless()
        except BaseException:
            if self._parent is not None:
                os.close(self._parent)
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_ignored):
        os.close(self._descriptor)
        if self._temporary is not None:
            try:
                os.unlink(self._temporary, dir_fd=self._parent)
            except OSError:
                pass
        os.close(self._parent)

    def receive(self, connection):
        """
        Writes everything up to the empty frame and returns the size, or None if the caller disconnects.

        Raises Refusal.
        """
        buffer = bytearray(_CHUNK)
        whole = memoryview(buffer)
        size = 0
        head = b""
        missing = 0
        while True:
            count = connection.recv_into(buffer)
            if count == 0:
                return None
            part = whole[:count]
            while part:
                if missing == 0:
                    taken = 4 - len(head)
                    head += bytes(part[:taken])
                    part = part[taken:]
                    if len(head) < 4:
                        break
                    (missing,) = struct.unpack(">I", head)
                    head = b""
                    if missing == 0:
                        return size
                now = part[:missing]
                self._write(now)
                size += len(now)
                missing -= len(now)
                part = part[len(now) :]

    def take_place(self, mode):
        try:
            os.fchmod(self._descriptor, mode)
            if self._temporary is None:
                self._temporary = self._unused_name(self._link)
            os.rename(self._temporary, self._name, src_dir_fd=self._parent, dst_dir_fd=self._parent)
            self._temporary = None
        except OSError as error:
            raise self._failed(error)

    def _write(self, part):
        try:
            while part:
                part = part[os.write(self._descriptor, part) :]
        except OSError as error:
            raise self._failed(error)

    def _find_place(self):
        """Follows the symbolic links at the path. Takes the mode of an existing file there."""
        self._enter_parent(self._path)
        for count in range(_MOST_LINKS + 1):
            try:
                about = os.stat(self._name, dir_fd=self._parent, follow_symlinks=False)
                target = os.readlink(self._name, dir_fd=self._parent) if stat.S_ISLNK(about.st_mode) else None
            except OSError as error:
                if error.errno == errno.ENOENT:
                    return
                if error.errno == errno.EINVAL:
                    # A file has replaced the link between the two calls. Try again.
                    continue
                raise self._failed(error)
            if target is None:
                _demand_regular(about, self._path)
                self.mode = about.st_mode & _GIVEN_MODE
                return
            if count < _MOST_LINKS:
                self._enter_parent(target)
        raise self._failed(OSError(errno.ELOOP, os.strerror(errno.ELOOP)))

    def _enter_parent(self, path):
        """
        Opens the directory of `path` as the parent, and keeps the last part of the path as the name.

        A relative path is relative to the previous parent.
        """
        base = self._parent
        directory, self._name = os.path.split(path)
        if self._name in (b"", b".", b".."):
            raise Refusal("invalid_request", "%s names a directory, not a file" % _show(self._path))
        self._parent = self._open_parent(directory or b".", base)
        if base is not None:
            os.close(base)

    def _open_parent(self, directory, base):
        try:
            return os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=base)
        except OSError as error:
            if error.errno in _MISSING:
                by = "" if base is None else ", where a symbolic link leads,"
                raise Refusal("not_found", "the directory %s%s does not exist in the sandbox" % (_show(directory), by))
            if error.errno not in _DENIED:
                raise self._failed(error)
        try:
            # The directory may be entered and written to, but not read.
            return os.open(directory, _O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=base)
        except OSError as error:
            raise self._failed(error)

    def _open_nameless(self):
        # A file without a name gets its name through /proc.
        if _TMPFILE and os.path.isdir("/proc/self/fd"):
            try:
                return os.open(b".", _TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600, dir_fd=self._parent)
            except OSError as error:
                if error.errno in _FULL:
                    raise self._failed(error)
                # This file system lacks such files, or reports a wrong error for a read-only one. The next
                # attempt tells which.
        try:
            self._temporary = self._unused_name(self._create)
        except OSError as error:
            raise self._failed(error)
        return self._created

    def _create(self, name):
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._created = os.open(name, flags, 0o600, dir_fd=self._parent)

    def _link(self, name):
        os.link(b"/proc/self/fd/%d" % self._descriptor, name, dst_dir_fd=self._parent, follow_symlinks=True)

    @staticmethod
    def _unused_name(make):
        for _ in range(_TRIES_OF_NAMES):
            name = b".rookery-" + os.urandom(8).hex().encode() + b".part"
            try:
                make(name)
                return name
            except FileExistsError:
                pass
        raise OSError(errno.EEXIST, "no name is free")

    def _failed(self, error):
        return _refusal(error, self._path, "written")


# Directories


def _list(connection, path, request):
    top = _top_of(path)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        if error.errno == errno.ENOTDIR and os.path.exists(path):
            raise Refusal("invalid_request", "%s is not a directory" % _show(path))
        raise _refusal(error, path, "listed")
    found, most = [], request["maxEntries"]
    # Keeps only the smallest entries: as many as the list may still take, and one more to detect that the
    # list is cut.
    waiting, is_cut = _children(descriptor, top, 1, most + 1)
    heapq.heapify(waiting)
    size = 0
    while waiting and len(found) < most and size < _MOST_LIST_BYTES:
        inside, depth, about = heapq.heappop(waiting)
        found.append(_entry(inside, about))
        size += len(inside) + 64
        if len(found) % _ENTRIES_BETWEEN_LOOKS == 0 and _has_left(connection):
            return
        if stat.S_ISDIR(about.st_mode) and depth < request["maxDepth"]:
            missing = most - len(found) + 1
            children, were_cut = _children_of(inside, depth + 1, missing)
            is_cut = is_cut or were_cut
            for child in children:
                heapq.heappush(waiting, child)
            if len(waiting) > 2 * missing:
                is_cut = True
                waiting = heapq.nsmallest(missing, waiting)
    frames.write_message(connection, {"ok": True, "entries": found, "truncated": bool(waiting) or is_cut})


def _top_of(path):
    """Returns the absolute path that names of entries begin with."""
    path = os.path.join(os.getcwdb(), path)
    # After a symbolic link, `..` differs from the text of the path.
    return os.path.realpath(path) if b".." in path.split(b"/") else os.path.normpath(path).replace(b"//", b"/", 1)


def _children_of(directory, depth, most):
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        # The directory was removed, or the user may not read it. Its own entry is reported.
        return [], False
    return _children(descriptor, directory, depth, most)


def _children(descriptor, directory, depth, most):
    """
    Returns `(path, depth, stat)` of the first `most` entries, and whether there are more.

    Closes the descriptor.
    """
    found = []
    is_cut = False
    try:
        names = heapq.nsmallest(most + 1, (os.fsencode(name) for name in _names_in(descriptor)))
        is_cut = len(names) > most
        for name in names[:most]:
            try:
                about = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            except OSError:
                # The entry was removed meanwhile.
                continue
            found.append((os.path.join(directory, name), depth, about))
    except OSError:
        pass
    finally:
        os.close(descriptor)
    return found, is_cut


def _names_in(descriptor):
    """Yields names one by one if this Python supports that, because a directory may have millions."""
    if sys.version_info < (3, 7):
        for name in os.listdir(descriptor):
            yield name
        return
    with os.scandir(descriptor) as entries:  # novm
        for entry in entries:
            yield entry.name


def _entry(path, about):
    kind = "other"
    for check, name in ((stat.S_ISREG, "file"), (stat.S_ISDIR, "directory"), (stat.S_ISLNK, "symlink")):
        if check(about.st_mode):
            kind = name
    return [_text_of(path), kind, about.st_size, about.st_mode & _MODE, about.st_mtime_ns // 1000000]


def _has_left(connection):
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def _make_directory(connection, path, request):
    mode = 0o755 if request["mode"] is None else request["mode"] & _GIVEN_MODE
    # The new directory gets exactly the requested mode.
    os.umask(0)
    path = path.rstrip(b"/") or b"/"
    try:
        os.mkdir(path, mode)
    except FileExistsError:
        if not (request["recursive"] and os.path.isdir(path)):
            raise Refusal("already_exists", "%s is there already" % _show(path))
    except OSError as error:
        if error.errno not in _MISSING or not request["recursive"]:
            raise _refusal(error, path, "made")
        _make_parents(path, mode)
    frames.write_message(connection, {"ok": True})


def _make_parents(path, mode):
    """Creates all missing directories from the top. Another process may create one of them meanwhile."""
    parts = path.split(b"/")
    for count in range(1, len(parts) + 1):
        part = b"/".join(parts[:count])
        if part == b"":
            continue
        try:
            os.mkdir(part, mode if count == len(parts) else 0o755)
        except FileExistsError:
            if not os.path.isdir(part):
                raise Refusal("already_exists", "%s is there already and is no directory" % _show(part))
        except OSError as error:
            # An existing directory is no obstacle, whatever the error was.
            if not os.path.isdir(part):
                raise _refusal(error, part, "made")


_OPERATIONS = {"open": _open, "write": _write, "list": _list, "mkdir": _make_directory}
_O_PATH = 0o10000000
_SOL_SOCKET = 1
_SO_SNDBUF = 7
