# Made by `npm run generate` from _async/client.py.
"""The client object, which has one member for each kind of resource."""

from __future__ import annotations

import json
import re
from typing import Any, Iterator, List, Optional, Sequence

from .. import types as wire
from .._runs import shown
from .._wire import DEFAULT_RETRIES, DEFAULT_TIMEOUT, Event, EventReader, Request, read_settings
from .agents import Agents
from .calls import Calls
from .code import Code
from .connection import Connection
from .functions import Functions
from .jobs import Jobs
from .sandboxes import Sandboxes


class Rookery:
    """Client of a Rookery service. It keeps connections open until it is closed.

    - `url`: the frontend. Default: `$ROOKERY_ADDRESS`, otherwise `http://127.0.0.1:8888`.
    - `token`: bearer token. Default: `$ROOKERY_TOKEN`, otherwise the content of the file
      `$ROOKERY_TOKEN_FILE`.
    - `tenant`: counts only if the service has authentication off. Default: `$ROOKERY_TENANT`.
    - `timeout`: seconds to wait for a connection, and for an answer whose time the service does not limit.
      Default: 300.
    - `retries`: maximum number of retries per request. Default: 4.
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
        self.sandboxes = Sandboxes(self._connection)
        self.functions = Functions(self._connection, self.code)
        self.jobs = Jobs(self._connection, self.code)
        self.calls = Calls(self._connection)
        self.secrets = Secrets(self._connection)
        self.events = Events(self._connection)

    def __repr__(self) -> str:
        """Returns the address without credentials."""
        return shown(self, url=re.sub("//[^/]*@", "//", self._connection.url))

    def call(self, operation: str, **options: Any) -> Any:
        """Sends any operation of openapi/rookery.json by its id and returns the JSON of the answer.

        The options are `params`, `query`, `body` and `headers`. Fails with `RookeryError`.
        """
        return self._connection.call(Request(operation, **options))

    def close(self) -> None:
        """Closes all connections. Requests that still run fail with `RookeryError`."""
        self._connection.close()

    def __enter__(self) -> Rookery:
        """Returns the client itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Closes the client."""
        self.close()


class Secrets:
    """Secrets: values that environments refer to as `{"secret": "name"}`. The API never returns a value."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def set(self, name: str, value: str) -> None:
        """Creates a secret or replaces its value, at most 64 KiB.

        Sandboxes that start later get the new value. The name has at most 128 letters, digits, `.`, `_` and `-`. A
        tenant has at most 1000 secrets.
        """
        self._connection.call(Request("putSecret", {"name": name}, body={"value": value}))

    def list(self) -> List[wire.Secret]:
        """Returns the names and times of all secrets of the tenant, without their values."""
        secrets: List[wire.Secret] = (self._connection.call(Request("listSecrets")))["secrets"]
        return secrets

    def delete(self, name: str) -> None:
        """Deletes a secret.

        Fails with `RookeryError` if it does not exist, or if an agent or function refers to it.
        """
        self._connection.call(Request("deleteSecret", {"name": name}))


class Events:
    """Events of the tenant: changes of agents, functions and jobs."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def follow(
        self,
        *,
        types: Optional[Sequence[str]] = None,
        agent: Optional[str] = None,
        function: Optional[str] = None,
        job: Optional[str] = None,
        after: Optional[str] = None,
        recent: Optional[int] = None,
    ) -> Iterator[Event]:
        """Yields events as they happen, until the service ends the stream.

        A broken connection fails with `RookeryError`. To resume, pass the id of the last event as `after`. If
        the service no longer has the events after this id, the first event is `reset`.

        - `types`: types of events to receive; by default all.
        - `agent`: the `instance_id` of an agent, `function`: `<service>@<name>` or a URN, `job`: the id of a job.
          At most one of them; only its events are received.
        - `recent`: number of past events to receive first, at most 4096; ignored with `after`. Default: 0.
        """
        reader = EventReader()
        subject = {"agent": agent, "function": function, "job": job}
        query = {"types": ",".join(types) if types else None, **subject, "recent": recent}
        headers = {"accept": "text/event-stream", "last-event-id": after}
        request = Request("followEvents", query=query, headers=headers, is_unbounded=True)
        for line in self._connection.lines(request):
            for id, kind, data in reader.take(line.rstrip("\r")):
                yield Event(id, kind, json.loads(data))
