from __future__ import annotations

import json
from typing import Any, AsyncIterator, List, Optional, Sequence

from .. import types as wire
from .._wire import DEFAULT_RETRIES, DEFAULT_TIMEOUT, Event, EventReader, Request, read_settings
from .agents import AsyncAgents
from .code import AsyncCode
from .connection import AsyncConnection
from .functions import AsyncFunctions
from .jobs import AsyncJobs


class AsyncRookery:
    """A client of one service. It keeps connections open until it is closed.

    Without a url it is `$ROOKERY_ADDRESS`, else this machine; without a token `$ROOKERY_TOKEN`, else what the file `$ROOKERY_TOKEN_FILE` has; the
    tenant (`$ROOKERY_TENANT`) counts where authentication is off. `timeout`: how many seconds an answer may take where the service has no bound
    of its own for it. `retries`: how often a request is sent again.
    """

    def __init__(
        self,
        url: Optional[str] = None,
        *,
        token: Optional[str] = None,
        tenant: Optional[str] = None,
        timeout: float = DEFAULT_TIMEOUT,
        retries: int = DEFAULT_RETRIES,
    ) -> None:
        self._connection = AsyncConnection(read_settings(url, token, tenant, timeout, retries))
        self.code = AsyncCode(self._connection)
        self.agents = AsyncAgents(self._connection, self.code)
        self.functions = AsyncFunctions(self._connection, self.code)
        self.jobs = AsyncJobs(self._connection, self.code)
        self.secrets = AsyncSecrets(self._connection)
        self.events = AsyncEvents(self._connection)

    async def call(self, operation: str, **options: Any) -> Any:
        """Any operation of openapi/rookery.json by its id, for what has no method; the options are `params`, `query`, `body` and `headers`."""
        return await self._connection.call(Request(operation, **options))

    async def close(self) -> None:
        await self._connection.close()

    async def __aenter__(self) -> AsyncRookery:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class AsyncSecrets:
    """Values that environments name as `{"secret": "name"}`; nobody can read them."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def set(self, name: str, value: str) -> None:
        await self._connection.call(Request("putSecret", {"name": name}, body={"value": value}))

    async def list(self) -> List[wire.Secret]:
        secrets: List[wire.Secret] = (await self._connection.call(Request("listSecrets")))["secrets"]
        return secrets

    async def delete(self, name: str) -> None:
        await self._connection.call(Request("deleteSecret", {"name": name}))


class AsyncEvents:
    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def follow(
        self,
        *,
        types: Optional[Sequence[str]] = None,
        after: Optional[str] = None,
        recent: Optional[int] = None,
    ) -> AsyncIterator[Event]:
        """What happens as it happens, until the connection ends: go on with `after`, the id of the last one."""
        reader = EventReader()
        query = {"types": ",".join(types) if types else None, "recent": recent}
        headers = {"accept": "text/event-stream", "last-event-id": after}
        request = Request("followEvents", query=query, headers=headers, is_unbounded=True)
        async for line in self._connection.lines(request):
            for id, kind, data in reader.take(line.rstrip("\r")):
                yield Event(id, kind, json.loads(data))
