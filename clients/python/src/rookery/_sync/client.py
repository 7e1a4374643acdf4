# Made by `npm run generate` from _async/client.py.
from __future__ import annotations

import json
from typing import Any, Iterator, List, Optional, Sequence

from .. import types as wire
from .._wire import DEFAULT_RETRIES, DEFAULT_TIMEOUT, Event, EventReader, Request, read_settings
from .agents import Agents
from .code import Code
from .connection import Connection
from .functions import Functions
from .jobs import Jobs


class Rookery:
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
        self._connection = Connection(read_settings(url, token, tenant, timeout, retries))
        self.code = Code(self._connection)
        self.agents = Agents(self._connection, self.code)
        self.functions = Functions(self._connection, self.code)
        self.jobs = Jobs(self._connection, self.code)
        self.secrets = Secrets(self._connection)
        self.events = Events(self._connection)

    def call(self, operation: str, **options: Any) -> Any:
        """Any operation of openapi/rookery.json by its id, for what has no method; the options are `params`, `query`, `body` and `headers`."""
        return self._connection.call(Request(operation, **options))

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Rookery:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Secrets:
    """Values that environments name as `{"secret": "name"}`; nobody can read them."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def set(self, name: str, value: str) -> None:
        self._connection.call(Request("putSecret", {"name": name}, body={"value": value}))

    def list(self) -> List[wire.Secret]:
        secrets: List[wire.Secret] = (self._connection.call(Request("listSecrets")))["secrets"]
        return secrets

    def delete(self, name: str) -> None:
        self._connection.call(Request("deleteSecret", {"name": name}))


class Events:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def follow(
        self,
        *,
        types: Optional[Sequence[str]] = None,
        after: Optional[str] = None,
        recent: Optional[int] = None,
    ) -> Iterator[Event]:
        """What happens as it happens, until the connection ends: go on with `after`, the id of the last one."""
        reader = EventReader()
        query = {"types": ",".join(types) if types else None, "recent": recent}
        headers = {"accept": "text/event-stream", "last-event-id": after}
        request = Request("followEvents", query=query, headers=headers, is_unbounded=True)
        for line in self._connection.lines(request):
            for id, kind, data in reader.take(line.rstrip("\r")):
                yield Event(id, kind, json.loads(data))
