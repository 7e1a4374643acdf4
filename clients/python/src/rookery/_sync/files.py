# Made by `npm run generate` from _async/files.py.
"""Files in the sandbox of an agent, and the changes in its directories."""

from __future__ import annotations

import json
from typing import Iterator, List, Mapping, Optional, Union

from .. import types as wire
from .._error import RookeryError, Unreachable
from .._wire import EventReader, FileChange, Request, multipart
from .connection import Answer, Connection


class Files:
    """Files in the sandbox of an agent. Relative paths start at the sandbox's working directory."""

    def __init__(self, connection: Connection, params: Mapping[str, str]) -> None:
        self._connection = connection
        self._params = params

    def read(self, path: str) -> bytes:
        """Returns the content of a file.

        Keeps all bytes in memory: use `read_chunks` for large files. Fails with `RookeryError` if `path` is not a
        readable file.
        """
        return self._connection.read(Request("downloadFile", self._params, {"path": path}))

    def read_chunks(self, path: str) -> Iterator[bytes]:
        """Yields the content of a file in chunks, for large files."""
        return self._connection.chunks(Request("downloadFile", self._params, {"path": path}))

    def write(self, path: str, data: Union[str, bytes], *, mode: Optional[str] = None) -> None:
        """Writes a file. The service replaces an existing file atomically after all data has arrived.

        `mode` has the permission bits in octal (`755`). Default: the bits of the existing file, otherwise
        `644`.
        """
        content_type, content = multipart(path, data.encode() if isinstance(data, str) else data, mode)
        self._connection.call(
            Request(
                "uploadFile",
                self._params,
                content=content,
                content_type=content_type,
                may_repeat=True,
                is_unbounded=True,
            )
        )

    def list(
        self, path: str, *, recursive: bool = False, max_depth: Optional[int] = None
    ) -> List[wire.FileEntry]:
        """Returns the entries of a directory, ordered by path.

        With `recursive` it also returns the entries of inner directories, down to `max_depth` levels: 1 to 64, by
        default 64. It does not follow symbolic links.
        """
        query = {"path": path, "recursive": recursive, "max_depth": max_depth}
        files: List[wire.FileEntry] = (self._connection.call(Request("listFiles", self._params, query)))["files"]
        return files

    def make_directory(self, path: str, *, mode: Optional[str] = None) -> None:
        """Creates a directory and its parents. Succeeds if the directory exists.

        `mode` has the permission bits of a new directory in octal, by default `755`.
        """
        query = {"path": path, "recursive": True, "mode": mode}
        self._connection.call(Request("makeDirectory", self._params, query, may_repeat=True))

    def stat(self, path: str, *, user: Optional[str] = None) -> wire.FileFacts:
        """Returns the type, size, mode, times and owner of a file or directory.

        Does not follow a symbolic link at the end of `path`. Fails with status 404 if nothing exists there.

        `user`: an account of the sandbox. Relative paths then start at its home, and the rights are those of root
        inside. Default: the user and the working directory of the agent's code.
        """
        answer: wire.StatFileResponse = self._connection.call(
            Request("statFile", self._params, {"path": path, "user": user})
        )
        return answer["file"]

    def exists(self, path: str, *, user: Optional[str] = None) -> bool:
        """Returns True if a file, directory or symbolic link exists at `path`. `user` as for `stat`."""
        try:
            self.stat(path, user=user)
            return True
        except RookeryError as error:
            if error.status != 404:
                raise
        # The status is 404 without the agent, too.
        self._connection.call(Request("getAgent", self._params))
        return False

    def rename(self, old: str, new: str, *, user: Optional[str] = None) -> wire.FileFacts:
        """Renames a file or directory and returns its new facts. `user` as for `stat`.

        Makes missing directories of the new path, and replaces a file there.
        """
        query = {"from": old, "to": new, "user": user}
        answer: wire.StatFileResponse = self._connection.call(Request("renameFile", self._params, query))
        return answer["file"]

    def remove(self, path: str, *, user: Optional[str] = None) -> None:
        """Removes a file, or a directory with all that is in it. `user` as for `stat`.

        Succeeds if nothing exists at `path`.
        """
        self._connection.call(Request("removeFile", self._params, {"path": path, "user": user}))

    def watch(
        self, path: str, *, recursive: bool = False, facts: bool = False, user: Optional[str] = None
    ) -> FileWatch:
        """Starts to watch a directory, and returns when every further change is noticed.

        - `recursive`: also changes in its directories, also in those that are made later.
        - `facts`: changes have `file` where the file exists, as `stat` returns it.
        - `user`: as for `stat`.
        """
        query = {"path": path, "recursive": recursive, "facts": facts, "user": user}
        return FileWatch(self._connection.open(Request("watchFiles", self._params, query, is_unbounded=True)))


class FileWatch:
    """The changes in a directory. Close it, or use it as a context manager, to end the watch."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._changes = self._read()
        self._is_closed = False

    def __iter__(self) -> Iterator[FileChange]:
        """Yields the changes until the service ends the watch or it is closed.

        A second iteration continues the first one. Fails with `RookeryError` if the connection breaks, or with the
        reason if the sandbox ends the watch.
        """
        return self._changes

    def _read(self) -> Iterator[FileChange]:
        reader = EventReader()
        try:
            for line in self._answer.lines():
                for _, kind, data in reader.take(line.rstrip("\r")):
                    if self._is_closed:
                        return
                    change = json.loads(data)
                    if kind == "error":
                        raise RookeryError("the watch ended: %s" % change["message"])
                    yield FileChange(change["type"], change["name"], change.get("file"))
        except Unreachable:
            if not self._is_closed:
                raise

    def close(self) -> None:
        """Ends the watch."""
        self._is_closed = True
        self._answer.close()

    def __enter__(self) -> FileWatch:
        """Returns the watch itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Ends the watch."""
        self.close()
