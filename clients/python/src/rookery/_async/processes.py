"""Processes of an agent that outlive their connections."""

from __future__ import annotations

from typing import List, Mapping, Optional, Sequence, Union

from .. import types as wire
from .._wire import Request, given
from .connection import AsyncConnection
from .terminal import AsyncTerminal


class AsyncProcesses:
    """Processes of an agent that outlive their connections.

    `process` is the pid inside the sandbox, or the tag of the start. Methods fail with `RookeryError`.
    """

    def __init__(self, connection: AsyncConnection, params: Mapping[str, str]) -> None:
        self._connection = connection
        self._params = params

    async def start(
        self,
        command: Union[str, Sequence[str]],
        *,
        working_dir: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
        user: Optional[str] = None,
        tag: Optional[str] = None,
        stdin: Optional[bool] = None,
        tty: Optional[bool] = None,
        cols: Optional[int] = None,
        rows: Optional[int] = None,
        process_seconds: Optional[float] = None,
    ) -> int:
        """Starts a process and returns its pid.

        `/bin/sh -c` runs a string; a list is an argument vector. The process continues until it ends, is killed,
        or the sandbox ends. The service kills the process after `process_seconds` seconds.
        """
        words = command if isinstance(command, str) else list(command)
        body = {
            "command": words,
            **given(
                working_dir=working_dir,
                env=env,
                user=user,
                tag=tag,
                stdin=stdin,
                tty=tty,
                cols=cols,
                rows=rows,
                timeout=process_seconds,
            ),
        }
        pid: int = (await self._connection.call(Request("startProcess", self._params, body=body)))["pid"]
        return pid

    async def list(self) -> List[wire.ListProcessesResponseProcessesItem]:
        """Returns the running processes in order of their start."""
        answer: wire.ListProcessesResponse = await self._connection.call(Request("listProcesses", self._params))
        return answer["processes"]

    async def signal(self, process: Union[int, str], signal: str = "SIGTERM") -> None:
        """Signals a process, but not its children."""
        await self._connection.call(Request("signalProcess", self._params_of(process), body={"signal": signal}))

    async def attach(self, process: Union[int, str]) -> AsyncTerminal:
        """Listens to a process: its output from now on, and its exit code.

        Closing the connection leaves the process running.
        """
        socket = await self._connection.web_socket(Request("attachProcess", self._params_of(process)))
        # The first byte of each message names its stream, also with a terminal.
        return AsyncTerminal(socket, False)

    def _params_of(self, process: Union[int, str]) -> Mapping[str, str]:
        return {**self._params, "process": str(process)}
