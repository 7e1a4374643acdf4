"""The files of wherever this process is, with the rights that it has: one request of one connection.

Paths are UTF-8; a byte that is not is a lone surrogate (`\\udc80` to `\\udcff`), in requests and in answers. A relative path is
relative to the directory of this process.
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

#: How long the caller may take between two parts of a file that it writes.
_STALLED_SECONDS = 120
#: How long a caller may take to hear that there is no use in what it writes.
_HEARD_SECONDS = 10
_CHUNK = 1048576
_SEND_BUFFER = 1048576
#: Above it a list is cut although the caller would take more.
_MOST_LIST_BYTES = 16777216
_ENTRIES_BETWEEN_LOOKS = 500
_TRIES_OF_NAMES = 100
_MODE = 0o7777
#: What may be asked for. Bits that give a program the rights of its owner are nobody's to give away here.
_GIVEN_MODE = 0o1777
_TMPFILE = getattr(os, "O_TMPFILE", 0)

_MISSING = (errno.ENOENT, errno.ENOTDIR)
_DENIED = (errno.EACCES, errno.EPERM, errno.EROFS)
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ENOMEM, errno.EMLINK)
_WRONG = (errno.ELOOP, errno.ENAMETOOLONG, errno.EISDIR, errno.EINVAL, errno.ENXIO, errno.ENODEV)


def serve(connection, request):
    """Does what is asked and answers. Fails with Refusal before it has answered anything."""
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
    """For a sentence."""
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
    """Answers with what the file is, then waits for the range and sends its bytes, as they are, and nothing else."""
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
            # It has become shorter: the caller counts.
            return
        offset += sent


def _open_regular(path):
    try:
        # A pipe or a device must not even be opened: that alone can do something.
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
    Answers once it can begin. Then frames with the content come, and an empty one when it is complete; only then the file takes its place,
    and the answer tells its size.
    """
    mode = 0o644 if request["mode"] is None else request["mode"] & _GIVEN_MODE
    parent, name = os.path.split(path)
    if name in (b"", b".", b".."):
        raise Refusal("invalid_request", "%s names a directory, not a file" % _show(path))
    with _NewFile(parent or b".", name, path) as new:
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
    """Reads on until the caller has read the answer: writing to a closed connection would hide it."""
    frames.write_message(connection, {"ok": False, "code": refusal.code, "message": refusal.message})
    deadline = time.monotonic() + _HEARD_SECONDS
    connection.settimeout(_HEARD_SECONDS)
    while connection.recv(_CHUNK) and time.monotonic() < deadline:
        pass


class _NewFile:
    """A file without a name where the file system has such files; else one beside its place. Gone unless it took its place."""

    def __init__(self, parent, name, path):
        self._name = name
        self._path = path
        self._temporary = None
        self._descriptor = None
        try:
            self._parent = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            if error.errno in _MISSING:
                raise Refusal("not_found", "the directory %s does not exist in the sandbox" % _show(parent))
            if error.errno not in _DENIED:
                raise _refusal(error, path, "written")
            # One that may be entered and written to, and not be read.
            self._parent = self._open_unlisted(parent)
        try:
            self._refuse_directory()
            self._descriptor = self._open_nameless()
        except BaseException:
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
        """Everything up to the empty frame; its size. None when the caller left before. Fails with Refusal."""
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

    def _open_unlisted(self, parent):
        try:
            return os.open(parent, _O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise self._failed(error)

    def _refuse_directory(self):
        try:
            about = os.stat(self._name, dir_fd=self._parent, follow_symlinks=False)
        except OSError as error:
            if error.errno == errno.ENOENT:
                return
            raise self._failed(error)
        if stat.S_ISDIR(about.st_mode):
            raise Refusal("invalid_request", "%s is a directory, not a file" % _show(self._path))

    def _open_nameless(self):
        # It gets its name through /proc.
        if _TMPFILE and os.path.isdir("/proc/self/fd"):
            try:
                return os.open(b".", _TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600, dir_fd=self._parent)
            except OSError as error:
                if error.errno in _FULL:
                    raise self._failed(error)
                # This file system has none, or says with the wrong number that it may not be written to: then the next try tells.
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
    # The queue keeps the smallest of what is there: no more than the list may still take, and one to know that it was cut.
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
    """The absolute path by which what is inside is named."""
    path = os.path.join(os.getcwdb(), path)
    # Behind a link `..` is not where the text says.
    return os.path.realpath(path) if b".." in path.split(b"/") else os.path.normpath(path).replace(b"//", b"/", 1)


def _children_of(directory, depth, most):
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        # It is gone, or closed to the user: it has been reported itself.
        return [], False
    return _children(descriptor, directory, depth, most)


def _children(descriptor, directory, depth, most):
    """`(path, depth, what it is)` of the first `most`, and whether there are more. Closes the descriptor."""
    found = []
    is_cut = False
    try:
        names = heapq.nsmallest(most + 1, (os.fsencode(name) for name in _names_in(descriptor)))
        is_cut = len(names) > most
        for name in names[:most]:
            try:
                about = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            except OSError:
                # It has gone meanwhile.
                continue
            found.append((os.path.join(directory, name), depth, about))
    except OSError:
        pass
    finally:
        os.close(descriptor)
    return found, is_cut


def _names_in(descriptor):
    """One after the other where this Python can: a directory may have millions."""
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
    # Exactly the mode that was asked for.
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
    """Each that is missing, from the top. One that somebody else makes meanwhile is as good."""
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
            # A file that must not be written to is no obstacle.
            if not os.path.isdir(part):
                raise _refusal(error, part, "made")


_OPERATIONS = {"open": _open, "write": _write, "list": _list, "mkdir": _make_directory}
_O_PATH = 0o10000000
_SOL_SOCKET = 1
_SO_SNDBUF = 7
