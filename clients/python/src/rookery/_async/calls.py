"""The history of calls."""

from __future__ import annotations

from typing import AsyncIterator, Optional

from .. import types as wire
from .._wire import Request
from .connection import AsyncConnection


class AsyncCalls:
    """Reads the history of calls: failed and slow ones, and a sample of the others."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def list(
        self,
        *,
        agent: Optional[str] = None,
        function: Optional[str] = None,
        outcome: Optional[str] = None,
        trace_id: Optional[str] = None,
        parent: Optional[str] = None,
        after: Optional[str] = None,
        before: Optional[str] = None,
        text: Optional[str] = None,
        page_size: Optional[int] = None,
    ) -> AsyncIterator[wire.CallRecord]:
        """Yields the calls that match every filter, newest first; requests each page when it is needed.

        A call appears within a second of its end. Inputs and outputs are in the result of `get`.

        - `agent`: the id of an agent.
        - `function`: `<service>@<name>` or the URN of a function.
        - `outcome`: `ok` or `error`.
        - `trace_id`: the trace id of an error message.
        - `parent`: the id of the call whose handler made them.
        - `after`, `before`: a moment (RFC 3339), or a duration before now such as `10m`.
        - `text`: a part of the input, the output or the error.
        """
        query = {
            **{"agent": agent, "function": function, "outcome": outcome, "trace_id": trace_id, "parent": parent},
            **{"after": after, "before": before, "text": text, "limit": page_size},
        }
        while True:
            page = await self._connection.call(Request("listCalls", query=query))
            for call in page["calls"]:
                yield call
            if page["next_cursor"] is None:
                return
            query = {**query, "cursor": page["next_cursor"]}

    async def get(self, id: str) -> wire.CallDetails:
        """Returns a call with its input and output.

        Fails with `RookeryError` of status 404 if it is not recorded.
        """
        call: wire.CallDetails = (await self._connection.call(Request("getCall", {"id": id})))["call"]
        return call
