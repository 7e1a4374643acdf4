# Made by `npm run generate` from _async/terminal.py.
"""A command in a sandbox with open input and output streams."""

from __future__ import annotations

import json
from typing import Any, Iterator, Mapping, Optional, Sequence, Union

from websockets.sync.client import ClientConnection
from websockets.exceptions import ConnectionClosed, ConnectionClosedError

from .._error import RookeryError
from .._wire import Output, Request
from .connection import Connection

STDERR = b"\x02"


class Terminal:
    """A command in a sandbox with open streams.

    Read the output to its end or call `wait`: unread output blocks the command.
    """

    returncode: Optional[int] = None
    """Exit code of the command after all output was read; None if the command ended without one."""

    def __init__(self, socket: ClientConnection, has_terminal: bool) -> None:
        self._socket = socket
        self._has_terminal = has_terminal

    def __iter__(self) -> Iterator[Output]:
        """Yields the output until the command ends.

        Fails with `RookeryError` if the connection breaks before the command has ended.
        """
        try:
            for message in self._socket:
                if isinstance(message, str):
                    told = json.loads(message)
                    if told.get("type") == "exit":
                        self.returncode = told["returncode"]
                elif self._has_terminal:
                    yield Output("stdout", message)
                else:
                    yield Output("stderr" if message[:1] == STDERR else "stdout", message[1:])
        except ConnectionClosedError as error:
            if self.returncode is None:
                raise RookeryError("the terminal was interrupted: %s" % error) from error

    def wait(self) -> Optional[int]:
        """Discards the remaining output and returns the exit code.

        Returns None if the command ended without an exit code.
        """
        for _ in self:
            pass
        return self.returncode

    def write(self, data: Union[str, bytes]) -> None:
        """Writes to the input of the command. Fails with `RookeryError` when the terminal is closed."""
        self._send(data.encode() if isinstance(data, str) else data)

    def resize(self, cols: int, rows: int) -> None:
        """Changes the size of the terminal, in columns and rows. Has no effect without a terminal."""
        self._send(json.dumps({"type": "resize", "cols": cols, "rows": rows}))

    def end_input(self) -> None:
        """Closes the input of the command."""
        self._send(json.dumps({"type": "stdin-end"}))

    def _send(self, message: Union[str, bytes]) -> None:
        try:
            self._socket.send(message)
        except ConnectionClosed as error:
            raise RookeryError("the terminal is closed: %s" % error) from error

    def close(self) -> None:
        """Closes the connection, which also ends the command, but not a process of `processes`."""
        self._socket.close()

    def __enter__(self) -> Terminal:
        """Returns the terminal itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Closes the connection."""
        self.close()


def open_terminal(
    connection: Connection,
    params: Mapping[str, str],
    command: Optional[Union[str, Sequence[str]]],
    env: Mapping[str, str],
    size: Mapping[str, Any],
) -> Terminal:
    """Opens the connection of a command in the sandbox that `params` names."""
    words = command if command is None or isinstance(command, str) else json.dumps(list(command))
    query = {**size, "command": words, "env": ["%s=%s" % pair for pair in env.items()]}
    return Terminal(connection.web_socket(Request("openExec", params, query)), bool(size["tty"]))
