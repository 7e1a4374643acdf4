from __future__ import annotations

import asyncio
import json
import os
from typing import Any, AsyncIterator, Dict, List, Mapping, Optional, Union

from .. import types as wire
from .._error import RookeryError
from .._runs import Environment, run_fields
from .._wire import EventReader, Request, given, whole_name
from .code import AsyncCode
from .connection import AsyncConnection

FIRST_LOOK = 0.05
LONGEST_PAUSE = 2.0
PAGE_SIZE = 100
LATEST = "$latest"


class AsyncFunctions:
    def __init__(self, connection: AsyncConnection, code: AsyncCode) -> None:
        self._connection = connection
        self._code = code

    async def register(
        self,
        name: str,
        code: Optional[Union[str, os.PathLike[str]]] = None,
        **options: Any,
    ) -> AsyncFunction:
        """Registers a function: `hello`, `demo@hello` or `0@demo@hello`. Its code is uploaded. The options are those of `fields`."""
        body = {"name": whole_name(name), **await self.fields(code, **options)}
        answer = await self._connection.call(Request("registerFunction", body=body))
        return AsyncFunction(self._connection, answer["function"])

    async def update(
        self,
        name: str,
        code: Optional[Union[str, os.PathLike[str]]] = None,
        **options: Any,
    ) -> AsyncFunction:
        """Changes `$latest`: every option of `fields` is said again. Published versions stay."""
        latest = await self.get(name)
        body = {"revisionId": latest.record["revisionId"], **await self.fields(code, **options)}
        answer = await self._connection.call(Request("updateFunction", {"name": whole_name(name)}, body=body))
        return AsyncFunction(self._connection, answer["function"])

    async def fields(
        self,
        code: Optional[Union[str, os.PathLike[str]]] = None,
        *,
        kind: str = "faas",
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
        expose: Optional[wire.FunctionExpose] = None,
        description: Optional[str] = None,
        timeout: Optional[int] = None,
        min_instances: Optional[int] = None,
        max_instances: Optional[int] = None,
        concurrency: Optional[int] = None,
    ) -> Dict[str, Any]:
        """What a function is registered with; `code` is uploaded. `timeout`: seconds that one call may take."""
        run = run_fields(
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
        place = {} if code is None else {"storageType": "package", "codePath": await self._code.upload(code)}
        more = given(
            environment=env,
            sandboxType=sandbox,
            expose=expose,
            description=description,
            timeout=timeout,
            minInstance=min_instances,
            maxInstance=max_instances,
            concurrentNum=concurrency,
        )
        return {"kind": kind, **run, **place, **more}

    async def get(self, name: str, version: str = LATEST) -> AsyncFunction:
        """The latest one, or a published version."""
        request = Request("getFunction", {"name": whole_name(name)}, {"versionNumber": version})
        return AsyncFunction(self._connection, (await self._connection.call(request))["function"])

    async def list(self) -> AsyncIterator[AsyncFunction]:
        index = 1
        while True:
            query = {"pageIndex": index, "pageSize": PAGE_SIZE}
            found = (await self._connection.call(Request("listFunctions", query=query)))["result"]["functions"]
            for record in found:
                yield AsyncFunction(self._connection, record)
            if len(found) < PAGE_SIZE:
                return
            index += 1

    def async_call(self, request_id: str) -> AsyncCall:
        """An asynchronous call that was started before."""
        return AsyncCall(self._connection, request_id)


class AsyncFunction:
    """One version of a function."""

    record: wire.FunctionVersion

    def __init__(self, connection: AsyncConnection, record: wire.FunctionVersion) -> None:
        self._connection = connection
        self.record = record
        self._params = {"urn": self.urn}

    @property
    def urn(self) -> str:
        return self.record["functionVersionUrn"]

    @property
    def name(self) -> str:
        return self.record["name"]

    async def invoke(
        self,
        event: Any = None,
        *,
        session: Optional[str] = None,
        label: Optional[str] = None,
        trace_id: Optional[str] = None,
        timeout: Optional[float] = None,
    ) -> Any:
        """Calls it and answers what the handler returns. It is sent again only when it has certainly not begun.

        All calls of a session reach the same instance; a label asks for instances that are reserved for it.
        """
        content = await self._connection.read(self._call(event, session, label, trace_id, timeout))
        return json.loads(content) if content else None

    async def stream(
        self, event: Any = None, *, session: Optional[str] = None, label: Optional[str] = None
    ) -> AsyncIterator[str]:
        """What the handler writes or yields, piece by piece; its return value is the last."""
        reader = EventReader()
        request = self._call(event, session, label, accept="text/event-stream")
        async for line in self._connection.lines(request):
            for _, kind, data in reader.take(line.rstrip("\r")):
                if kind == "error":
                    told = json.loads(data)
                    raise RookeryError(
                        told["message"], status=200, code=told["code"], trace_id=told.get("trace_id")
                    )
                if data == "[DONE]":
                    return
                yield data
        raise RookeryError("the stream ended before its end")

    async def start(
        self, event: Any = None, *, session: Optional[str] = None, label: Optional[str] = None
    ) -> AsyncCall:
        """Calls it without waiting for its end."""
        request = self._call(event, session, label, invoke_type="async")
        return AsyncCall(self._connection, (await self._connection.call(request))["requestId"])

    async def publish(self, version: str = "", *, description: str = "") -> AsyncFunction:
        """Makes a version of the latest revision that never changes; without a name it gets a number."""
        body = {"revisionId": self.record["revisionId"], "versionNumber": version, "versionDesc": description}
        answer = await self._connection.call(Request("publishFunction", {"name": self.name}, body=body))
        return AsyncFunction(self._connection, answer["function"])

    async def instances(self) -> List[wire.FunctionInstance]:
        answer = await self._connection.call(Request("listFunctionInstances", self._params))
        found: List[wire.FunctionInstance] = answer["instances"]
        return found

    async def logs(self) -> str:
        return (await self._connection.read(Request("readFunctionLogs", self._params))).decode(errors="replace")

    def follow(self) -> AsyncIterator[str]:
        """The lines of its log as they come."""
        request = Request("readFunctionLogs", self._params, {"follow": True}, is_unbounded=True)
        return self._connection.lines(request)

    async def delete(self) -> None:
        """Deletes this version; with `$latest` goes the whole function."""
        query = {"versionNumber": self.record["versionNumber"]}
        await self._connection.call(Request("deleteFunction", {"name": self.name}, query))

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


class AsyncCall:
    """A call that goes on by itself."""

    def __init__(self, connection: AsyncConnection, request_id: str) -> None:
        self._connection = connection
        self.id = request_id

    async def status(self) -> wire.CallResult:
        answer: wire.CallResult = await self._connection.call(Request("getAsyncResult", {"id": self.id}))
        return answer

    async def result(self) -> Any:
        """Waits for its end and answers what the handler returned."""
        pause = FIRST_LOOK
        while True:
            found = await self.status()
            if found["status"] == "completed":
                return found.get("result")
            if found["status"] == "failed":
                raise RookeryError(found["error"]["message"], status=200, code=found["error"]["code"])
            await asyncio.sleep(pause)
            pause = min(LONGEST_PAUSE, pause * 1.5)
