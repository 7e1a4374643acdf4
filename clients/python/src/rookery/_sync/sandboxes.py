# Made by `npm run generate` from _async/sandboxes.py.
"""Sandboxes: agents without code, for commands, files, ports and cells of code."""

from __future__ import annotations

import json
import uuid
from typing import Any, Iterator, Dict, List, Mapping, Optional

from .._error import failure
from .._runs import Environment, made_up_name
from .._wire import CodeRun, Request, given
from .agents import Agent
from .connection import Connection


class Sandboxes:
    """Creates and finds sandboxes. Methods fail with `RookeryError`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def create(
        self,
        template: str = "base",
        *,
        image: Optional[str] = None,
        name: Optional[str] = None,
        namespace: str = "default",
        env: Optional[Environment] = None,
        labels: Optional[Mapping[str, str]] = None,
        ttl_seconds: Optional[float] = None,
        idle_seconds: Optional[float] = None,
        on_expiry: Optional[str] = None,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
    ) -> Sandbox:
        """Creates a sandbox and returns it when it runs.

        - `template`: `base`, or `code-interpreter-v1`, in which `run_code` works.
        - `image`: an image of the Docker daemon of the service, instead of a template.
        - `name`: by default a name made from the idempotency key.
        - `ttl_seconds`, `idle_seconds`, `on_expiry`, `labels`: as of `agents.create`.

        The sandbox is a context manager, which ends it at the end of the block.
        """
        key = idempotency_key or str(uuid.uuid4())
        body: Dict[str, Any] = {
            "namespace": namespace,
            "name": name or made_up_name(None, key).replace("agent", "sandbox", 1),
            **({"template": template} if image is None else {"image": image}),
            **given(env_vars=env, labels=labels and dict(labels), ttl_seconds=ttl_seconds),
            **given(idle_seconds=idle_seconds, on_expiry=on_expiry),
        }
        request = Request(
            "createAgent",
            body=body,
            headers={"idempotency-key": key},
            may_repeat=True,
            timeout=timeout,
            is_unbounded=True,
        )
        return self.get((self._connection.call(request))["instance_id"])

    def get(self, id: str) -> Sandbox:
        """Returns a sandbox by its id. Fails with status 404 if no such sandbox exists."""
        answer = self._connection.call(Request("getAgent", {"instanceId": id}))
        return Sandbox(self._connection, answer["instance"])

    def list(
        self, *, template: Optional[str] = None, labels: Optional[Mapping[str, str]] = None
    ) -> Iterator[Sandbox]:
        """Yields the sandboxes of the tenant, of one template or of all; requests each page when it is needed."""
        label = ["%s=%s" % pair for pair in (labels or {}).items()]
        query: Dict[str, Any] = {"template": template, "label": label or None}
        while True:
            page = self._connection.call(Request("listAgents", query=query))
            for record in page["instances"]:
                if record.get("template"):
                    yield Sandbox(self._connection, record)
            if page["next_cursor"] is None:
                return
            query = {**query, "cursor": page["next_cursor"]}

    def fork(
        self,
        id: str,
        *,
        count: int = 1,
        name: Optional[str] = None,
        env: Optional[Environment] = None,
        ttl_seconds: Optional[float] = None,
        files_only: bool = False,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
    ) -> List[Sandbox]:
        """Starts sandboxes with a copy of the files, variables and settings of a sandbox.

        - `name`: with a `count` above 1, `-1`, `-2` … follow it; by default the service makes names up.
        - `env`: variables in addition to those of the sandbox.
        - `ttl_seconds`: by default that with which the sandbox was created.
        - `files_only`: the files suffice, although the sandbox runs processes, whose memory is not copied.

        Fails with the error of the first fork that did not start, after ending the others.
        """
        request = Request(
            "forkAgent",
            {"instanceId": id},
            body={"count": count, "files_only": files_only, **given(name=name, env_vars=env, ttl_seconds=ttl_seconds)},
            headers={"idempotency-key": idempotency_key or str(uuid.uuid4())},
            may_repeat=True,
            timeout=timeout,
            is_unbounded=True,
        )
        forks = self._connection.call(request)
        ids = [fork["instance_id"] for fork in forks if "instance_id" in fork]
        errors = [fork["error"] for fork in forks if "error" in fork]
        if not errors:
            return [self.get(each) for each in ids]
        for each in ids:
            self._connection.call(Request("deleteAgent", {"instanceId": each}, query={"grace": 0}))
        message = "a fork did not start: %s" % errors[0]["message"]
        raise failure(message, status=errors[0]["code"], code=None)

    def run_code(
        self, code: str, *, language: Optional[str] = None, env: Optional[Mapping[str, str]] = None
    ) -> CodeRun:
        """Runs code in a sandbox that is made for it and ended afterwards."""
        sandbox = self.create("code-interpreter-v1", ttl_seconds=3600)
        with sandbox:
            return sandbox.run_code(code, language=language, env=env)


class Sandbox(Agent):
    """One sandbox: an agent without a handler. Methods fail with `RookeryError`."""

    def run_code(
        self,
        code: str,
        *,
        language: Optional[str] = None,
        context: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
    ) -> CodeRun:
        """Runs a cell of code and returns its output and its results.

        The code's own error is in `error` of the result. Names stay for later cells. Needs the template
        `code-interpreter-v1`, or an image with `python3`.
        """
        lines = self.stream_code(code, language=language, context=context, env=env)
        return CodeRun([line for line in lines])

    def stream_code(
        self,
        code: str,
        *,
        language: Optional[str] = None,
        context: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
    ) -> Iterator[Dict[str, Any]]:
        """Yields the lines of the interpreter as they happen, such as `{"type": "stdout", "text": "1"}`.

        The end of the iteration interrupts a cell that still runs.
        """
        body = {"code": code, **given(language=language, context_id=context, env_vars=env and dict(env))}
        request = Request("runCode", {"instanceId": self.id}, body=body, is_unbounded=True)
        for line in self._connection.lines(request):
            yield json.loads(line)

    def fork(self, **options: Any) -> List[Sandbox]:
        """Starts sandboxes with a copy of the files of this one. Takes the options of `sandboxes.fork`."""
        return Sandboxes(self._connection).fork(self.id, **options)

    def kill(self) -> None:
        """Ends the sandbox at once, with all its processes and files."""
        self.delete()
