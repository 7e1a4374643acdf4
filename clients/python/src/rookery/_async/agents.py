"""Agents: their creation, calls, commands, logs and files."""

from __future__ import annotations

import asyncio
import os
import uuid
from typing import Any, AsyncIterator, Dict, List, Mapping, Optional, Sequence, Union
from urllib.parse import urlencode

from .. import types as wire
from .._error import Conflict, NotFound, RookeryError
from .._results import CommandResult
from .._runs import CODE_PATH, Environment, is_id, made_up_name, run_fields, shown
from .._wire import Request, given
from .code import AsyncCode
from .connection import AsyncConnection
from .files import AsyncFiles
from .processes import AsyncProcesses
from .terminal import AsyncTerminal, open_terminal

#: States of an agent that another client creates or deletes at this moment.
CHANGING = frozenset(["CREATING", "STOPPING"])
LOOK_AGAIN = 0.2


class AsyncAgents:
    """Creates and finds agents. Methods fail with `RookeryError`."""

    def __init__(self, connection: AsyncConnection, code: AsyncCode) -> None:
        self._connection = connection
        self._code = code

    async def create(
        self,
        code: Optional[Union[str, os.PathLike[str]]] = None,
        *,
        name: Optional[str] = None,
        namespace: str = "default",
        runtime: Optional[str] = None,
        handler: Optional[str] = None,
        http_profile: Optional[str] = None,
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
        replace: bool = False,
        labels: Optional[Mapping[str, str]] = None,
        ttl_seconds: Optional[float] = None,
        idle_seconds: Optional[float] = None,
        on_expiry: Optional[str] = None,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
    ) -> AsyncAgent:
        """Creates an agent and returns it when it accepts calls. Fails with `RookeryError`.

        - `code`: a directory to pack and upload, or the name of a package: `code://<sha256>`.
        - `name`: by default the name of the directory and a suffix made from the idempotency key.
        - `runtime`: by default the version of Python that runs the client.
        - `handler`: by default `handler.handle`, for Node.js `index.handle`.
        - `http_profile`: the contract that a server of runtime `http` follows, such as
          `functions-framework`. With it, `runtime` is `http` by default.
        - `dependencies`: `auto` installs the packages that files beside the code list, such as
          `requirements.txt`. Default: `auto` if `code` is a directory with such a file.
        - `cpu`: thousandths of a core. `memory`: MB.
        - `image`: a container image; `host` means the files of the service's machine.
        - `workspace`: the absolute path of a directory on the service's machine.
        - `urn`: a registered function of kind `agent`, which supplies the code and all its settings.
        - `replace`: replaces the agent with this name. The old agent runs until the new one has loaded its
          code. If the code does not load, the create fails and the old agent continues.
        - `labels`: names and values; `list` selects agents by them.
        - `ttl_seconds`: time to live; by default until it is deleted.
        - `idle_seconds`: longest time without a call, a command or other access.
        - `on_expiry`: `delete` or `pause` at the end of either time; default: `delete`.
        - `idempotency_key`: repeated creates with the same key and options return the same agent. Default: a
          random key, which the retries of this create share.
        - `timeout`: seconds without an answer; by default only the service limits the time.

        If the code does not load, the create succeeds and `record["load_error"]` has the reason (except with
        `replace`). The agent is a context manager, which deletes the agent at the end of the block.
        """
        key = idempotency_key or str(uuid.uuid4())
        body: Dict[str, Any] = {
            "namespace": namespace,
            "name": name or made_up_name(code, key),
            "mounts": list(mounts),
            **given(env_vars=env, workspace=workspace, expose=expose, restart_policy=restart),
            **given(replace=replace or None, labels=labels and dict(labels), ttl_seconds=ttl_seconds),
            **given(idle_seconds=idle_seconds, on_expiry=on_expiry),
        }
        if code is not None:
            source = await self._code.upload(code)
            body["mounts"].insert(0, {"source": source, "target": CODE_PATH, "readonly": True})
        if urn is None:
            fields = run_fields(
                code,
                runtime=runtime,
                handler=handler,
                http_profile=http_profile,
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
        return await self._read((await self._connection.call(request))["instance_id"])

    async def get_or_create(
        self,
        name: str,
        code: Optional[Union[str, os.PathLike[str]]] = None,
        *,
        namespace: str = "default",
        **options: Any,
    ) -> AsyncAgent:
        """Returns the agent that has the name, or creates it. The options are those of `create` except `replace`.

        An existing agent is returned as it is, whatever its state: its code and its settings are not compared
        with the options. If another client creates the agent or deletes it at the same time, the method waits
        until that has ended; this wait has no limit.
        """
        if options.get("replace"):
            raise RookeryError("get_or_create never replaces an agent: call create with replace=True instead")
        while True:
            agent = await self._find(name, namespace)
            if agent is None:
                try:
                    return await self.create(code, name=name, namespace=namespace, **options)
                except Conflict as error:
                    # Only the refusal of a taken name has the id of the holder.
                    if not (error.body or {}).get("instance_id"):
                        raise
            elif agent.record["status"] in CHANGING:
                await asyncio.sleep(LOOK_AGAIN)
            else:
                return agent

    async def get(self, id_or_name: str, namespace: str = "default") -> AsyncAgent:
        """Returns an agent by its id, or by its name in `namespace`.

        Fails with `RookeryError` of status 404 if no such agent exists.
        """
        if is_id(id_or_name):
            return await self._read(id_or_name)
        agent = await self._find(id_or_name, namespace)
        if agent is None:
            raise NotFound("there is no agent %s/%s" % (namespace, id_or_name), status=404)
        return agent

    async def list(
        self,
        *,
        namespace: Optional[str] = None,
        name: Optional[str] = None,
        status: Optional[str] = None,
        labels: Optional[Mapping[str, str]] = None,
        page_size: Optional[int] = None,
    ) -> AsyncIterator[AsyncAgent]:
        """Yields the agents that match every filter, ordered by id; requests each page when it is needed."""
        label = ["%s=%s" % pair for pair in (labels or {}).items()]
        query = {"namespace": namespace, "name": name, "status": status, "label": label, "limit": page_size}
        while True:
            page = await self._connection.call(Request("listAgents", query=query))
            for record in page["instances"]:
                yield AsyncAgent(self._connection, record)
            if page["next_cursor"] is None:
                return
            query = {**query, "cursor": page["next_cursor"]}

    async def _find(self, name: str, namespace: str) -> Optional[AsyncAgent]:
        async for agent in self.list(namespace=namespace, name=name):
            return agent
        return None

    async def _read(self, instance_id: str) -> AsyncAgent:
        answer = await self._connection.call(Request("getAgent", {"instanceId": instance_id}))
        return AsyncAgent(self._connection, answer["instance"])


class AsyncAgent:
    """One agent instance. Methods fail with `RookeryError`."""

    record: wire.Agent
    """The agent's record at the time of the last read; `refresh` reads it again."""

    def __init__(self, connection: AsyncConnection, record: wire.Agent) -> None:
        self._connection = connection
        self.record = record
        self._params = {"instanceId": self.id}
        self.files = AsyncFiles(connection, self._params)
        self.processes = AsyncProcesses(connection, self._params)

    def __repr__(self) -> str:
        """Returns the id and the name, but nothing of the environment."""
        return shown(self, id=self.id, name=self.name)

    @property
    def id(self) -> str:
        """Id of the agent (`instance_id`), which stays the same over restarts."""
        return self.record["instance_id"]

    @property
    def name(self) -> str:
        """Name of the agent, unique in its namespace."""
        return self.record["name"]

    @property
    def address(self) -> Optional[str]:
        """URL of the exposed port; None without an exposed port.

        The URL has a host name of its own if there is one, otherwise a path.
        """
        expose = self.record.get("expose")
        return expose and (expose["address"] or self._connection.url + expose["path"])

    async def refresh(self) -> wire.Agent:
        """Reads the record again, stores it in `record` and returns it."""
        self.record = (await self._connection.call(Request("getAgent", self._params)))["instance"]
        return self.record

    async def invoke(
        self,
        event: Any = None,
        *,
        run_ms: Optional[int] = None,
        trace_id: Optional[str] = None,
        timeout: Optional[float] = None,
    ) -> Any:
        """Calls the handler and returns its result.

        `run_ms`: milliseconds after which the service stops the handler; the call then fails. `timeout`:
        seconds without an answer; by default only the service limits the time. The client retries only if the
        service has certainly not started the call.
        """
        headers = {"x-invoke-timeout-ms": None if run_ms is None else str(run_ms), "x-trace-id": trace_id}
        body = {} if event is None else event
        request = Request("invokeAgent", self._params, headers=headers, body=body, timeout=timeout, is_unbounded=True)
        return (await self._connection.call(request))["data"]

    async def exec(
        self,
        command: Union[str, Sequence[str]],
        *,
        working_dir: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
        stdin: Optional[str] = None,
        command_seconds: Optional[int] = None,
        timeout: Optional[float] = None,
    ) -> CommandResult:
        """Runs a command in the sandbox and returns its exit code and output.

        `/bin/sh -c` runs a string; a list is an argument vector. The service kills the process group after
        `command_seconds` seconds. The client stops waiting after `timeout` seconds without an answer. An exit
        code other than 0 is no failure of this method, but of `check()` of its result.
        """
        words = command if isinstance(command, str) else list(command)
        body = {"command": words, **given(working_dir=working_dir, env=env, stdin=stdin, timeout=command_seconds)}
        request = Request("agentExec", self._params, body=body, timeout=timeout, is_unbounded=True)
        return CommandResult(await self._connection.call(request))

    async def terminal(
        self,
        command: Optional[Union[str, Sequence[str]]] = None,
        *,
        tty: bool = True,
        cols: Optional[int] = None,
        rows: Optional[int] = None,
        working_dir: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
    ) -> AsyncTerminal:
        """Starts a command with open input and output streams, by default a login shell.

        The command gets a terminal unless `tty` is false. `cols` (default 80) and `rows` (default 24) are the
        size of the terminal. `env` is added to the environment of the sandbox.
        """
        size = {"tty": tty, "cols": cols, "rows": rows, "working_dir": working_dir}
        return await open_terminal(self._connection, self._params, command, env or {}, size)

    async def logs(
        self, *, tail: Optional[int] = None, since: Optional[str] = None, previous: Optional[int] = None
    ) -> str:
        """Returns the lines that the agent's code has printed.

        - `tail`: number of last lines to return; by default all that are kept.
        - `since`: a time (RFC 3339), or a duration before now such as `10m`.
        - `previous`: the log of an earlier run, 1 (the last one) to 3. Works with `tail` only.
        """
        query = {"tail": tail, "since": since, "previous": previous}
        return (await self._connection.read(Request("agentLogs", self._params, query))).decode(errors="replace")

    def follow(self, *, tail: Optional[int] = None, since: Optional[str] = None) -> AsyncIterator[str]:
        """Yields lines of the log as the service receives them, until the log ends."""
        query = {"tail": tail, "since": since, "follow": True}
        return self._connection.follow(Request("agentLogs", self._params, query, is_unbounded=True))

    async def stats(self) -> wire.AgentStatsResponse:
        """Returns the current use of CPU (millicores), memory (MB) and other resources."""
        answer: wire.AgentStatsResponse = await self._connection.call(Request("agentStats", self._params))
        return answer

    def port_url(self, port: int, path: str = "/") -> str:
        """Returns the HTTP URL of a TCP port in the sandbox, published or not.

        Requests to the URL need the token.
        """
        place, _, query = path.partition("?")
        own = urlencode({"instance": self.id, "port": port})
        return "%s/serverless/v1/http%s?%s" % (self._connection.url, place, query + "&" + own if query else own)

    async def link(self, expires_seconds: Optional[int] = None) -> str:
        """Returns a signed link to the exposed port, which a browser can open without a token.

        The link expires after `expires_seconds`: 10 to 604800, by default 3600.
        """
        body = given(expires_seconds=expires_seconds)
        url: str = (await self._connection.call(Request("linkAgent", self._params, body=body)))["url"]
        return url

    async def restart(self) -> None:
        """Replaces the sandbox by a new one under the same id and reads the record.

        The agent loses its memory.
        """
        await self._connection.call(Request("restartAgent", self._params, is_unbounded=True))
        await self.refresh()

    async def set_ttl(self, seconds: float, *, only_later: bool = False) -> None:
        """Sets the time to live to `seconds` from now, for a paused agent from its resume; 0: no end.

        `only_later` never moves the end to an earlier time.
        """
        body = {"ttl_seconds": seconds, "only_later": only_later}
        self.record = (await self._connection.call(Request("setAgentTtl", self._params, body=body)))["instance"]

    async def pause(self) -> None:
        """Freezes all processes of the agent and keeps their memory.

        Until the resume every use of the agent fails.
        """
        self.record = (await self._connection.call(Request("pauseAgent", self._params)))["instance"]

    async def resume(self) -> bool:
        """Continues a paused agent. Returns False if the agent was running."""
        answer = await self._connection.call(Request("resumeAgent", self._params))
        self.record = answer["instance"]
        resumed: bool = answer["resumed"]
        return resumed

    async def sleep(self, wait: Optional[float] = None, force: bool = False) -> None:
        """Removes the sandbox of a durable agent that is idle and keeps its saved state.

        The next use of the agent starts it. Fails with 409 while the agent is in use: `wait` waits up to that
        many seconds for the end of its uses, and `force` cuts them off.
        """
        query = {"wait": wait, "force": force or None}
        request = Request("sleepAgent", self._params, query, is_unbounded=wait is not None)
        self.record = (await self._connection.call(request))["instance"]

    async def update(self, now: bool = False, **changes: Any) -> None:
        """Changes settings of a durable agent; its state and its alarms stay.

        `changes`: members of a create as the API has them, such as `env_vars`, `durable` and `runtime_spec`. The
        next start takes them; with `now` they take effect between two calls.
        """
        query = {"apply": "now" if now else None}
        request = Request("updateAgent", self._params, query, body=changes, is_unbounded=now)
        self.record = (await self._connection.call(request))["instance"]

    async def alarms(self) -> List[Dict[str, Any]]:
        """Returns the alarms of a durable agent by name, without their payloads."""
        answer: List[Dict[str, Any]] = await self._connection.call(Request("listAgentAlarms", self._params))
        return answer

    async def set_alarm(self, name: str, **alarm: Any) -> None:
        """Sets an alarm of a durable agent, and replaces the one of this name.

        `alarm`: exactly one of `at` (RFC 3339, or milliseconds since 1970), `after` (seconds), `every`
        (seconds) and `cron` (with `tz`), and `payload` and `max_late_seconds`.
        """
        await self._connection.call(Request("setAgentAlarm", {**self._params, "name": name}, body=alarm))

    async def cancel_alarm(self, name: str) -> None:
        """Cancels an alarm. Fails with `RookeryError` of status 404 if there is none of this name."""
        await self._connection.call(Request("cancelAgentAlarm", {**self._params, "name": name}))

    async def wake(self) -> bool:
        """Starts a sleeping agent with its saved state. Returns False if the agent was running."""
        answer = await self._connection.call(Request("wakeAgent", self._params))
        self.record = answer["instance"]
        woken: bool = answer["woken"]
        return woken

    async def delete(self) -> None:
        """Runs `pre_stop`, then ends and removes the sandbox and its files.

        Fails with `RookeryError` of status 404 if the agent does not exist any more.
        """
        await self._connection.call(Request("deleteAgent", self._params, is_unbounded=True))

    async def __aenter__(self) -> AsyncAgent:
        """Returns the agent itself."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Deletes the agent."""
        await self.delete()
