# Made by `npm run generate` from _async/functions.py.
"""Functions: their registration, versions and calls."""

from __future__ import annotations

import time
import json
import os
from time import monotonic
from typing import Any, Iterator, Dict, Iterable, List, Literal, Mapping, Optional, Union

from .. import types as wire
from .._error import Conflict, NotFound, RookeryError, Timeout, failure
from .._mapped import mapped
from .._runs import Environment, has_fields, run_fields, shown
from .._schema import HINTS, schema_of_code
from .._wire import EventReader, Request, given, whole_name
from .code import Code
from .connection import Connection

FIRST_LOOK = 0.05
LONGEST_PAUSE = 2.0
PAGE_SIZE = 100
LATEST = "$latest"
#: How often a deployment begins again because another client changes the function.
DEPLOY_ATTEMPTS = 5


class Functions:
    """Registers and finds functions. Methods fail with `RookeryError`."""

    def __init__(self, connection: Connection, code: Code) -> None:
        self._connection = connection
        self._code = code

    def register(
        self,
        name: str,
        code: Optional[Union[str, os.PathLike[str]]] = None,
        **options: Any,
    ) -> Function:
        """Registers a function, uploads its code, and returns its version `$latest`.

        The name is `hello`, `demo@hello` or `0@demo@hello`. The options are those of `fields`.
        """
        return self._register(whole_name(name), self.fields(code, **options))

    def update(
        self,
        name: str,
        code: Optional[Union[str, os.PathLike[str]]] = None,
        **options: Any,
    ) -> Function:
        """Changes `$latest` of a function and returns it. Published versions stay unchanged.

        The options are those of `fields`. An omitted option that has a default returns to the default:
        `runtime`, `handler`, `cpu`, `memory`, `image` and so on. Other omitted options keep their stored
        values. Fails if another client changed the function at the same time.
        """
        latest = self.get(name)
        return self._change(latest.record, self.fields(code, **options))

    def deploy(
        self,
        name: str,
        code: Optional[Union[str, os.PathLike[str]]] = None,
        **options: Any,
    ) -> Function:
        """Registers a function, or changes it if anything differs, and returns its version `$latest`.

        The options are those of `fields`; omitted ones count as in `update`. Instances of an unchanged function
        continue. Any number of clients may call it at the same time.
        """
        fields = self.fields(code, **options)
        for left in reversed(range(DEPLOY_ATTEMPTS)):
            try:
                return self._deploy(whole_name(name), fields)
            except Conflict:
                if left == 0:
                    raise
        raise AssertionError

    def _deploy(self, name: str, fields: Dict[str, Any]) -> Function:
        try:
            latest = self.get(name)
        except NotFound:
            return self._register(name, fields)
        return latest if has_fields(latest.record, fields) else self._change(latest.record, fields)

    def _register(self, name: str, fields: Dict[str, Any]) -> Function:
        answer = self._connection.call(Request("registerFunction", body={"name": name, **fields}))
        return Function(self._connection, answer["function"])

    def _change(self, record: wire.FunctionVersion, fields: Dict[str, Any]) -> Function:
        body = {"revisionId": record["revisionId"], **fields}
        answer = self._connection.call(Request("updateFunction", {"name": record["name"]}, body=body))
        return Function(self._connection, answer["function"])

    def fields(
        self,
        code: Optional[Union[str, os.PathLike[str]]] = None,
        *,
        kind: str = "faas",
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
        expose: Optional[wire.FunctionExpose] = None,
        description: Optional[str] = None,
        input_schema: Optional[Union[Dict[str, Any], Literal["hints"]]] = None,
        validate_input: Optional[bool] = None,
        timeout: Optional[int] = None,
        min_instances: Optional[int] = None,
        max_instances: Optional[int] = None,
        concurrency: Optional[int] = None,
    ) -> Dict[str, Any]:
        """Uploads `code` and returns the fields of a register or an update.

        - `kind`: `faas`, or `agent` for functions from which agents are created.
        - `runtime`: by default the version of Python that runs the client.
        - `handler`: by default `handler.handle`, for Node.js `index.handle`.
        - `http_profile`: the contract that a server of runtime `http` follows, such as
          `functions-framework`. With it, `runtime` is `http` by default.
        - `cpu`: thousandths of a core. `memory`: MB.
        - `input_schema`: JSON Schema of the event. `hints` imports `code` with this Python and takes the type hint
          of the handler's first parameter.
        - `validate_input`: refuse events that do not fit the schema.
        - `timeout`: seconds after which the service stops a call.
        - `concurrency`: maximum number of concurrent calls in one instance.
        """
        if input_schema == HINTS:
            input_schema = schema_of_code(code, handler, runtime)
        run = run_fields(
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
        place = {} if code is None else {"storageType": "package", "codePath": self._code.upload(code)}
        more = given(
            environment=env,
            sandboxType=sandbox,
            expose=expose,
            description=description,
            inputSchema=input_schema,
            validateInput=validate_input,
            timeout=timeout,
            minInstance=min_instances,
            maxInstance=max_instances,
            concurrentNum=concurrency,
        )
        return {"kind": kind, **run, **place, **more}

    def get(self, name: str, version: str = LATEST) -> Function:
        """Returns `$latest` of a function, or a published version. Fails if there is none."""
        request = Request("getFunction", {"name": whole_name(name)}, {"versionNumber": version})
        return Function(self._connection, (self._connection.call(request))["function"])

    def list(self) -> Iterator[Function]:
        """Yields `$latest` of all functions of the tenant; requests each page of 100 when it is needed."""
        index = 1
        while True:
            query = {"pageIndex": index, "pageSize": PAGE_SIZE}
            found = (self._connection.call(Request("listFunctions", query=query)))["result"]["functions"]
            for record in found:
                yield Function(self._connection, record)
            if len(found) < PAGE_SIZE:
                return
            index += 1

    def async_call(self, request_id: str) -> Call:
        """Returns a handle of an asynchronous call that was started before. Sends nothing."""
        return Call(self._connection, request_id)


class Function:
    """One version of a function. Methods fail with `RookeryError`."""

    record: wire.FunctionVersion
    """The version's record at the time of the last read."""

    def __init__(self, connection: Connection, record: wire.FunctionVersion) -> None:
        self._connection = connection
        self.record = record
        self._params = {"urn": self.urn}

    def __repr__(self) -> str:
        """Returns the name and the version, but nothing of the environment."""
        return shown(self, name=self.name, version=self.record["versionNumber"])

    @property
    def urn(self) -> str:
        """URN of this version, which calls and reservations name."""
        return self.record["functionVersionUrn"]

    @property
    def name(self) -> str:
        """Full name of the function: `0@demo@hello`."""
        return self.record["name"]

    def invoke(
        self,
        event: Any = None,
        *,
        session: Optional[str] = None,
        label: Optional[str] = None,
        trace_id: Optional[str] = None,
        timeout: Optional[float] = None,
    ) -> Any:
        """Calls the function and returns the result of its handler.

        - `session`: a session id; all calls of a session reach the same instance.
        - `label`: the label of a reservation; only instances reserved under this label run the call.
        - `timeout`: seconds without an answer; by default only the service limits the time.

        The client retries only if the service has certainly not started the call.
        """
        content = self._connection.read(self._call(event, session, label, trace_id, timeout))
        return json.loads(content) if content else None

    def stream(
        self, event: Any = None, *, session: Optional[str] = None, label: Optional[str] = None
    ) -> Iterator[str]:
        """Calls the function and yields each piece that its handler writes or yields.

        The return value is the last piece. Fails if the handler fails or the stream breaks.
        """
        reader = EventReader()
        request = self._call(event, session, label, accept="text/event-stream")
        for line in self._connection.lines(request):
            for _, kind, data in reader.take(line.rstrip("\r")):
                if kind == "error":
                    told = json.loads(data)
                    raise failure(told["message"], status=200, code=told["code"], trace_id=told.get("trace_id"))
                if data == "[DONE]":
                    return
                yield data
        raise RookeryError("the stream ended before its end")

    def start(
        self, event: Any = None, *, session: Optional[str] = None, label: Optional[str] = None
    ) -> Call:
        """Starts an asynchronous call and returns its handle without waiting for the result."""
        request = self._call(event, session, label, invoke_type="async")
        return Call(self._connection, (self._connection.call(request))["requestId"])

    def spawn(
        self, event: Any = None, *, session: Optional[str] = None, label: Optional[str] = None
    ) -> Call:
        """Another name of `start`."""
        return self.start(event, session=session, label=label)

    def map(
        self,
        inputs: Iterable[Any],
        *,
        concurrency: int = 10,
        return_errors: bool = False,
        label: Optional[str] = None,
        timeout: Optional[float] = None,
    ) -> Iterator[Any]:
        """Calls the function for each input and yields the results in the order of the inputs.

        - `concurrency`: maximum number of calls at the same time. Inputs are taken as they are needed.
        - `return_errors`: yields the `RookeryError` of a failed call instead of its result. Otherwise the first
          failure is raised and no other call is started. Coroutines that run are cancelled; the end of threads
          that run is waited for.
        - `label`, `timeout`: as of `invoke`.
        """

        def call(event: Any) -> Any:
            return self.invoke(event, label=label, timeout=timeout)

        return mapped(call, inputs, concurrency, return_errors)

    def publish(self, version: str = "", *, description: str = "") -> Function:
        """Publishes the latest revision as an immutable version and returns it.

        Without a name the service makes one from the time. Fails if the function has changed since `record`
        was read.
        """
        body = {"revisionId": self.record["revisionId"], "versionNumber": version, "versionDesc": description}
        answer = self._connection.call(Request("publishFunction", {"name": self.name}, body=body))
        return Function(self._connection, answer["function"])

    def instances(self) -> List[wire.FunctionInstance]:
        """Returns the instances that run this version now."""
        answer = self._connection.call(Request("listFunctionInstances", self._params))
        found: List[wire.FunctionInstance] = answer["instances"]
        return found

    def logs(self) -> str:
        """Returns the lines that the running instances have printed, each with the start of its instance id."""
        return (self._connection.read(Request("readFunctionLogs", self._params))).decode(errors="replace")

    def follow(self) -> Iterator[str]:
        """Yields lines of all instances as the service receives them, without an end.

        Each line begins with the start of its instance id. Instances that start later are included.
        """
        request = Request("readFunctionLogs", self._params, {"follow": True}, is_unbounded=True)
        return self._connection.follow(request, of_instances=True)

    def delete(self) -> None:
        """Deletes this version. Deleting `$latest` deletes the function with all its versions."""
        query = {"versionNumber": self.record["versionNumber"]}
        self._connection.call(Request("deleteFunction", {"name": self.name}, query))

    def _call(
        self,
        event: Any,
        session: Optional[str],
        label: Optional[str],
        trace_id: Optional[str] = None,
        timeout: Optional[float] = None,
        accept: Optional[str] = None,
        invoke_type: Optional[str] = None,
    ) -> Request:
        headers: Mapping[str, Optional[str]] = {
            "x-instance-session": session,
            "x-instance-label": label,
            "x-trace-id": trace_id,
            "x-invoke-type": invoke_type,
            "accept": accept,
        }
        body = {} if event is None else event
        return Request(
            "invokeFunction", self._params, headers=headers, body=body, timeout=timeout, is_unbounded=True
        )


class Call:
    """Handle of an asynchronous call, which continues without a connection."""

    def __init__(self, connection: Connection, request_id: str) -> None:
        self._connection = connection
        self.id = request_id

    def __repr__(self) -> str:
        """Returns the id."""
        return shown(self, id=self.id)

    def status(self) -> wire.CallResult:
        """Returns the state of the call: `status` is `completed`, `failed`, or one of a call that continues."""
        answer: wire.CallResult = self._connection.call(Request("getAsyncResult", {"id": self.id}))
        return answer

    def result(self, timeout: Optional[float] = None) -> Any:
        """Waits until the call ends and returns the result of its handler.

        Fails with `RookeryError` if the call failed, and with `Timeout` after `timeout` seconds. Without it the
        wait has no limit. The call continues after a `Timeout`.
        """
        pause = FIRST_LOOK
        ends = None if timeout is None else monotonic() + timeout
        while True:
            found = self.status()
            if found["status"] == "completed":
                return found.get("result")
            if found["status"] == "failed":
                raise failure(found["error"]["message"], status=200, code=found["error"]["code"])
            left = pause if ends is None else ends - monotonic()
            if left <= 0:
                raise Timeout("the wait took longer than its timeout")
            time.sleep(min(pause, left))
            pause = min(LONGEST_PAUSE, pause * 1.5)
