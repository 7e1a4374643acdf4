# Made by `npm run generate` from _async/agents.py.
from __future__ import annotations

import os
import uuid
from typing import Any, Iterator, Dict, List, Mapping, Optional, Sequence, Union
from urllib.parse import urlencode

from .. import types as wire
from .._error import RookeryError
from .._runs import CODE_PATH, Environment, is_id, made_up_name, run_fields
from .._wire import Request, given, multipart
from .code import Code
from .connection import Connection
from .terminal import Terminal, open_terminal


class Agents:
    def __init__(self, connection: Connection, code: Code) -> None:
        self._connection = connection
        self._code = code

    def create(
        self,
        code: Optional[Union[str, os.PathLike[str]]] = None,
        *,
        name: Optional[str] = None,
        namespace: str = "default",
        runtime: Optional[str] = None,
        handler: Optional[str] = None,
        initializer: Optional[str] = None,
        pre_stop: Optional[str] = None,
        dependencies: Optional[str] = None,
        env: Optional[Environment] = None,
        cpu: int = 1000,
        memory: int = 2048,
        sandbox: Optional[str] = None,
        image: str = "host",
        user: Optional[str] = None,
        ports: Optional[List[str]] = None,
        expose: Optional[wire.AgentExpose] = None,
        restart: Optional[Union[str, wire.RestartPolicy]] = None,
        mounts: Sequence[wire.Mount] = (),
        workspace: Optional[str] = None,
        urn: Optional[str] = None,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
    ) -> Agent:
        """Creates an agent, and answers when it takes calls.

        `code` is a directory, which is packed and uploaded, or `code://<sha256>`. Without a runtime it is this Python's version, without a
        handler `handler.handle` (of Node.js `index.handle`). Code that cannot be loaded does not fail it: `record["load_error"]` says why. The
        same idempotency key and options answer with the same agent; without one, each create has its own for its retries.
        `with` and `with` delete the agent at the end of the block.
        """
        key = idempotency_key or str(uuid.uuid4())
        body: Dict[str, Any] = {
            "namespace": namespace,
            "name": name or made_up_name(code, key),
            "mounts": list(mounts),
            **given(env_vars=env, workspace=workspace, expose=expose, restart_policy=restart),
        }
        if code is not None:
            source = self._code.upload(code)
            body["mounts"].insert(0, {"source": source, "target": CODE_PATH, "readonly": True})
        if urn is None:
            fields = run_fields(
                code,
                runtime=runtime,
                handler=handler,
                initializer=initializer,
                pre_stop=pre_stop,
                dependencies=dependencies,
                cpu=cpu,
                memory=memory,
                image=image,
                user=user,
                ports=ports,
            )
            place = given(codePath=None if code is None else CODE_PATH, sandbox_type=sandbox)
            body["runtime_spec"] = {**fields, **place}
        else:
            body["urn"] = urn
        request = Request(
            "createAgent",
            body=body,
            headers={"idempotency-key": key},
            may_repeat=True,
            timeout=timeout,
            is_unbounded=True,
        )
        return self._read((self._connection.call(request))["instance_id"])

    def get(self, id_or_name: str, namespace: str = "default") -> Agent:
        if is_id(id_or_name):
            return self._read(id_or_name)
        for agent in self.list(namespace=namespace, name=id_or_name):
            return agent
        raise RookeryError("there is no agent %s/%s" % (namespace, id_or_name), status=404)

    def list(
        self,
        *,
        namespace: Optional[str] = None,
        name: Optional[str] = None,
        status: Optional[str] = None,
        page_size: Optional[int] = None,
    ) -> Iterator[Agent]:
        """All that fit, page by page as they are asked for."""
        query = {"namespace": namespace, "name": name, "status": status, "limit": page_size}
        while True:
            page = self._connection.call(Request("listAgents", query=query))
            for record in page["instances"]:
                yield Agent(self._connection, record)
            if page["next_cursor"] is None:
                return
            query = {**query, "cursor": page["next_cursor"]}

    def _read(self, instance_id: str) -> Agent:
        answer = self._connection.call(Request("getAgent", {"instanceId": instance_id}))
        return Agent(self._connection, answer["instance"])


class Agent:
    """One agent instance."""

    record: wire.Agent
    """As it was when it was read last: see `refresh`."""

    def __init__(self, connection: Connection, record: wire.Agent) -> None:
        self._connection = connection
        self.record = record
        self._params = {"instanceId": self.id}
        self.files = Files(connection, self._params)

    @property
    def id(self) -> str:
        return self.record["instance_id"]

    @property
    def name(self) -> str:
        return self.record["name"]

    @property
    def address(self) -> Optional[str]:
        """Where its exposed port is: by its own host name, else by path; None when none is exposed."""
        expose = self.record.get("expose")
        return expose and (expose["address"] or self._connection.url + expose["path"])

    def refresh(self) -> wire.Agent:
        self.record = (self._connection.call(Request("getAgent", self._params)))["instance"]
        return self.record

    def invoke(
        self,
        event: Any = None,
        *,
        run_ms: Optional[int] = None,
        trace_id: Optional[str] = None,
        timeout: Optional[float] = None,
    ) -> Any:
        """Calls the handler and answers what it returns. It is sent again only when it has certainly not begun."""
        headers = {"x-invoke-timeout-ms": None if run_ms is None else str(run_ms), "x-trace-id": trace_id}
        body = {} if event is None else event
        request = Request("invokeAgent", self._params, headers=headers, body=body, timeout=timeout, is_unbounded=True)
        return (self._connection.call(request))["data"]

    def exec(
        self,
        command: Union[str, Sequence[str]],
        *,
        working_dir: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
        stdin: Optional[str] = None,
        command_seconds: Optional[int] = None,
        timeout: Optional[float] = None,
    ) -> wire.AgentExecResponse:
        """Runs a command to its end: a text by `/bin/sh -c`, or a list of arguments."""
        words = command if isinstance(command, str) else list(command)
        body = {"command": words, **given(working_dir=working_dir, env=env, stdin=stdin, timeout=command_seconds)}
        request = Request("agentExec", self._params, body=body, timeout=timeout, is_unbounded=True)
        answer: wire.AgentExecResponse = self._connection.call(request)
        return answer

    def terminal(
        self,
        command: Optional[Union[str, Sequence[str]]] = None,
        *,
        tty: bool = True,
        cols: Optional[int] = None,
        rows: Optional[int] = None,
        working_dir: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
    ) -> Terminal:
        """A command (else a login shell) with open streams; with a terminal unless `tty` is false."""
        size = {"tty": tty, "cols": cols, "rows": rows, "working_dir": working_dir}
        return open_terminal(self._connection, self._params, command, env or {}, size)

    def logs(
        self, *, tail: Optional[int] = None, since: Optional[str] = None, previous: Optional[int] = None
    ) -> str:
        query = {"tail": tail, "since": since, "previous": previous}
        return (self._connection.read(Request("agentLogs", self._params, query))).decode(errors="replace")

    def follow(self, *, tail: Optional[int] = None, since: Optional[str] = None) -> Iterator[str]:
        """The lines of its log as they come, until it ends."""
        query = {"tail": tail, "since": since, "follow": True}
        return self._connection.lines(Request("agentLogs", self._params, query, is_unbounded=True))

    def stats(self) -> wire.AgentStatsResponse:
        answer: wire.AgentStatsResponse = self._connection.call(Request("agentStats", self._params))
        return answer

    def port_url(self, port: int, path: str = "/") -> str:
        """Where a TCP port inside is for HTTP, published or not. What asks there has to send the token."""
        place, _, query = path.partition("?")
        own = urlencode({"instance": self.id, "port": port})
        return "%s/serverless/v1/http%s?%s" % (self._connection.url, place, query + "&" + own if query else own)

    def link(self, expires_seconds: Optional[int] = None) -> str:
        """A signed link to the exposed port, for a browser."""
        body = given(expires_seconds=expires_seconds)
        url: str = (self._connection.call(Request("linkAgent", self._params, body=body)))["url"]
        return url

    def restart(self) -> None:
        """Starts it anew: what it had in memory is gone."""
        self._connection.call(Request("restartAgent", self._params, is_unbounded=True))
        self.refresh()

    def delete(self) -> None:
        self._connection.call(Request("deleteAgent", self._params, is_unbounded=True))

    def __enter__(self) -> Agent:
        return self

    def __exit__(self, *_: object) -> None:
        self.delete()


class Files:
    """Files inside of a sandbox. A relative path begins at its working directory."""

    def __init__(self, connection: Connection, params: Mapping[str, str]) -> None:
        self._connection = connection
        self._params = params

    def read(self, path: str) -> bytes:
        return self._connection.read(Request("downloadFile", self._params, {"path": path}))

    def read_chunks(self, path: str) -> Iterator[bytes]:
        """As it comes, for what is large."""
        return self._connection.chunks(Request("downloadFile", self._params, {"path": path}))

    def write(self, path: str, data: Union[str, bytes], *, mode: Optional[str] = None) -> None:
        """Replaces the file at once when all of it is there. `mode` is octal: `755`."""
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
        query = {"path": path, "recursive": recursive, "max_depth": max_depth}
        files: List[wire.FileEntry] = (self._connection.call(Request("listFiles", self._params, query)))["files"]
        return files

    def make_directory(self, path: str) -> None:
        """Makes a directory and its parents; one that is there is fine."""
        query = {"path": path, "recursive": True}
        self._connection.call(Request("makeDirectory", self._params, query, may_repeat=True))
