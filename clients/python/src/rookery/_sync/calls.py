# Made by `npm run generate` from _async/calls.py.
"""The history of calls."""

from __future__ import annotations

import time
from time import monotonic
from typing import Any, Iterator, Dict, List, Optional

from .. import types as wire
from .._error import RookeryError
from .._wire import Request, retry_after
from .connection import Connection

#: The service writes records twice a second.
POLL_SECONDS = 0.5
#: Seconds without an answer after which `follow` fails.
OUTAGE_SECONDS = 300.0


class Calls:
    """Reads the history of calls: failed and slow ones, and a sample of the others."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def list(
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
    ) -> Iterator[wire.CallRecord]:
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
            page = self._connection.call(Request("listCalls", query=query))
            for call in page["calls"]:
                yield call
            if page["next_cursor"] is None:
                return
            query = {**query, "cursor": page["next_cursor"]}

    def follow(
        self,
        *,
        agent: Optional[str] = None,
        function: Optional[str] = None,
        outcome: Optional[str] = None,
        trace_id: Optional[str] = None,
        parent: Optional[str] = None,
        text: Optional[str] = None,
    ) -> Iterator[wire.CallRecord]:
        """Yields new calls that match every filter, in the order of their records; has no end.

        Begins at the first `next`. Continues without loss after an outage of at most 5 minutes. The filters
        are those of `list`.
        """
        query = {
            **{"agent": agent, "function": function, "outcome": outcome, "trace_id": trace_id, "parent": parent},
            **{"text": text, "follow": "now"},
        }
        answered = monotonic()
        while True:
            wait: Optional[float] = POLL_SECONDS
            try:
                page = self._connection.call(Request("listCalls", query=query))
            except RookeryError as error:
                wait = retry_after(error, 1, True)
                if wait is None or query["follow"] == "now" or monotonic() - answered > OUTAGE_SECONDS:
                    raise
            else:
                answered = monotonic()
                for call in page["calls"]:
                    yield call
                if page["next_cursor"] != query["follow"]:
                    wait = 0.0
                query = {**query, "follow": page["next_cursor"]}
            if wait:
                time.sleep(wait)

    def record(
        self, *, agent: Optional[str] = None, function: Optional[str] = None, seconds: Optional[int] = None
    ) -> wire.CallRecording:
        """Keeps all calls of an agent or function, with up to 1 MiB of each input and output.

        Lasts `seconds` from now on (default: 3600). A second request changes the end. `agent`: its id.
        `function`: `<service>@<name>` or its URN.
        """
        fields: Dict[str, Any] = {"agent": agent, "function": function, "seconds": seconds}
        body = {name: value for name, value in fields.items() if value is not None}
        answer = self._connection.call(Request("putCallRecording", body=body))
        recording: wire.CallRecording = answer["recording"]
        return recording

    def stop_recording(self, *, agent: Optional[str] = None, function: Optional[str] = None) -> None:
        """Ends a recording. Fails with `RookeryError` of status 404 if there is none."""
        query = {"agent": agent, "function": function}
        self._connection.call(Request("deleteCallRecording", query=query))

    def recordings(self) -> List[wire.CallRecording]:
        """Returns the recordings that have not ended."""
        answer = self._connection.call(Request("listCallRecordings"))
        recordings: List[wire.CallRecording] = answer["recordings"]
        return recordings

    def get(self, id: str) -> wire.CallDetails:
        """Returns a call with its input and output.

        Fails with `RookeryError` of status 404 if it is not recorded.
        """
        call: wire.CallDetails = (self._connection.call(Request("getCall", {"id": id})))["call"]
        return call
