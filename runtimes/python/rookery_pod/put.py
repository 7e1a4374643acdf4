"""
Receives the code of an instance as a tar stream into a directory of the pod, before the instance starts.
"""

import base64
import io
import os
import shutil
import stat
import tarfile

from rookery_zygote import frames
from rookery_zygote.failure import Refusal

#: Size limit of a frame of the stream.
_LARGEST = 1 << 20
_STALLED_SECONDS = 60
_WRITE_BITS = 0o222
_MODES = 0o777


def serve(connection, request):
    """
    Receives an archive in frames, which end with an empty frame. Raises Refusal.

    Answers first when the client may send, and again when everything is unpacked.
    """
    _make_room(request["target"])
    frames.write_message(connection, {"ok": True})
    connection.settimeout(_STALLED_SECONDS)
    count = _put(_Stream(connection), request)
    frames.write_message(connection, {"ok": True, "entries": count})


def unpack(code):
    """Unpacks an archive that is part of an order, as the user of this process. Raises Refusal."""
    mask = os.umask(0o022)
    try:
        _make_room(code["target"])
        _put(_Bytes(base64.b64decode(code["archive"])), code)
    finally:
        os.umask(mask)


def _make_room(target):
    try:
        os.makedirs(target, exist_ok=True)
        _empty(target)
    except OSError as error:
        raise Refusal("failed_precondition", "mount target %s cannot be written to in this pod: %s" % (target, error.strerror))


def _put(stream, request):
    target = request["target"]
    try:
        return _extract(stream, os.path.realpath(target), request["readonly"])
    except OSError as error:
        code = "resource_exhausted" if error.errno in (12, 28, 122) else "failed_precondition"
        raise Refusal(code, "the code cannot be put into %s: %s" % (target, error.strerror or error))
    except tarfile.TarError as error:
        raise Refusal("invalid_request", "the code for %s is no archive: %s" % (target, error))


class _Bytes(io.BytesIO):
    def finish(self):
        """Does nothing, because all bytes are in memory."""


class _Stream:
    """The frames of a connection as a file to read from."""

    def __init__(self, connection):
        self._connection = connection
        self._left = memoryview(b"")
        self._has_ended = False

    def read(self, size):
        parts = []
        while size > 0 and not self._has_ended:
            if not self._left:
                frame = frames.read(self._connection, _LARGEST)
                if frame is None:
                    raise frames.FrameError("the archive was interrupted")
                self._left, self._has_ended = memoryview(frame), not frame
            parts.append(self._left[:size])
            self._left = self._left[size:]
            size -= len(parts[-1])
        return b"".join(parts)

    def finish(self):
        """Reads the rest of the frames: an archive may have blocks after its end."""
        while not self._has_ended:
            self.read(_LARGEST)


def _extract(stream, top, is_readonly):
    directories = []
    count = 0
    with tarfile.open(fileobj=stream, mode="r|", bufsize=262144) as archive:
        for entry in archive:
            path = _place(top, entry.name)
            if path is None or not (entry.isdir() or entry.issym() or entry.isreg()):
                continue
            count += 1
            if entry.isdir():
                _make_directory(path)
                directories.append((path, entry.mode))
                continue
            _make_directory(os.path.dirname(path))
            if entry.issym():
                os.symlink(entry.linkname, path)
            elif entry.isreg():
                _write(archive.extractfile(entry), path, _mode(entry.mode, is_readonly), entry.mtime)
    stream.finish()
    # Inner directories first, because a directory without a write bit accepts no changes.
    for path, mode in sorted(directories, reverse=True):
        os.chmod(path, _mode(mode, is_readonly) | stat.S_IRUSR | stat.S_IXUSR)
    if is_readonly:
        os.chmod(top, 0o555)
    return count


def _mode(mode, is_readonly):
    return mode & _MODES & (~_WRITE_BITS if is_readonly else _MODES)


def _place(top, name):
    """
    Returns the path of an entry; None for the directory itself.

    Raises TarError if the path leads out or through a link.
    """
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise tarfile.TarError("%s leads out of it" % name)
    if not parts:
        return None
    path = top
    for part in parts[:-1]:
        path = os.path.join(path, part)
        if os.path.islink(path):
            raise tarfile.TarError("%s is below a link" % name)
    return os.path.join(path, parts[-1])


def _make_directory(path):
    os.makedirs(path, mode=0o755, exist_ok=True)


def _write(source, path, mode, modified_at):
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as out:
        shutil.copyfileobj(source, out, 262144)
        out.flush()
        os.fchmod(descriptor, mode)
        os.utime(descriptor, (modified_at, modified_at))


def _empty(target):
    for name in os.listdir(target):
        path = os.path.join(target, name)
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)
