# Made by `npm run generate` from _async/connection.py.
"""The HTTP and WebSocket connections to a service, with retries and errors."""

from __future__ import annotations

import time
import base64
import ssl
from dataclasses import replace
from pathlib import Path
from typing import Any, Iterator, Optional

import httpx
from websockets.sync.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus, WebSocketException

from .._error import RookeryError, Timeout, Unreachable
from .._wire import EventReader, LineReader, LogPosition, Request, Settings, answer_of, failure_of, is_gone, retry_after

CHUNK = 64 * 1024
KEPT_CONNECTIONS = 100
#: Errors of httpx that occur before it has sent anything.
NOTHING_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


class Connection:
    """Sends operations to the service, retries them if that is safe, and reads their answers."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        # The number of connections has no limit, because calls may take long and followed logs never end.
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=KEPT_CONNECTIONS)
        self._http = httpx.Client(headers=dict(settings.headers), timeout=settings.timeout, limits=limits)

    @property
    def url(self) -> str:
        return self._settings.url

    def close(self) -> None:
        self._http.close()

    def call(self, request: Request) -> Any:
        """Returns the JSON of the answer. Fails with `RookeryError` if the service reports a failure."""
        response = self._send(request)
        if response is None:
            return {}
        return answer_of(request, response.status_code, response.headers, _read(response))

    def read(self, request: Request) -> bytes:
        response = self._send(request)
        return b"" if response is None else _read(response)

    def chunks(self, request: Request) -> Iterator[bytes]:
        response = self._send(request)
        assert response is not None
        for chunk in _bytes(response):
            yield chunk

    def follow(
        self, request: Request, *, of_instances: bool = False, is_whole: bool = False
    ) -> Iterator[str]:
        """Yields lines of a log until it ends.

        After a broken connection it resumes behind the last byte received. `of_instances`: each line begins
        with its instance id. `is_whole`: the service keeps the beginning of the log.
        """
        reader = LineReader()
        for chunk in self._log(request, of_instances, is_whole):
            for line in reader.take(chunk):
                yield line
        for line in reader.end():
            yield line

    def _log(self, request: Request, of_instances: bool, is_whole: bool) -> Iterator[bytes]:
        wanted = {name: value for name, value in request.query.items() if name not in ("tail", "since", "follow")}
        is_all = request.query.get("tail") is None and request.query.get("since") is None
        position = LogPosition(is_all, of_instances)
        asked = replace(request, headers={"accept": "text/event-stream, text/plain"})
        failures = 0
        while True:
            try:
                if position.has_read and not is_whole:
                    asked = replace(asked, query={**wanted, "follow": True})
                    now = replace(request, query=wanted, headers={"accept": "text/plain"}, is_unbounded=False)
                    position.find(self.read(now))
                response = self._send(asked)
                assert response is not None
                position.begin()
                for chunk in self._content(response):
                    failures = 0
                    fresh = position.advance(chunk)
                    if fresh:
                        yield fresh
                return
            except RookeryError as error:
                failures += 1
                wait = retry_after(error, failures, True)
                if wait is None or not position.has_begun or failures > self._settings.retries:
                    raise
                time.sleep(wait)

    def _content(self, response: httpx.Response) -> Iterator[bytes]:
        """Yields the bytes of the log from an answer. Fails if the answer ends before the log does."""
        try:
            if not response.headers.get("content-type", "").startswith("text/event-stream"):
                for chunk in _bytes(response):
                    yield chunk
                return
            lines, events = LineReader(), EventReader()
            for chunk in _bytes(response):
                for line in lines.take(chunk):
                    for _, kind, data in events.take(line.rstrip("\r")):
                        if kind == "end":
                            return
                        if kind == "message":
                            yield base64.b64decode(data)
            raise Unreachable("the connection broke: it ended before the log", has_begun=True)
        finally:
            response.close()

    def lines(self, request: Request) -> Iterator[str]:
        for line in _lines(self.chunks(request)):
            yield line

    def open(self, request: Request) -> Answer:
        """Returns the answer when it has begun. The caller must close it."""
        response = self._send(request)
        assert response is not None
        return Answer(response)

    def web_socket(self, request: Request) -> ClientConnection:
        url = httpx.URL(self.url + request.path, params=request.query_pairs)
        try:
            return connect(
                str(url).replace("http", "ws", 1),
                additional_headers=dict(self._settings.headers),
                open_timeout=self._settings.timeout,
                compression=None,
                max_size=None,
            )
        except InvalidStatus as error:
            answer = error.response
            raise failure_of(answer.status_code, answer.headers, bytes(answer.body or b"")) from error
        except (OSError, ssl.SSLError, WebSocketException) as error:
            raise self._unreachable(error, has_begun=True) from error

    def _send(self, request: Request) -> Optional[httpx.Response]:
        """Sends a request with its retries and returns the answer, whose body has not been read yet.

        Returns None if an earlier attempt, whose answer was lost, has already deleted the resource.
        """
        tried = 0
        while True:
            tried += 1
            try:
                return self._once(request)
            except RookeryError as error:
                if tried > 1 and request.method == "DELETE" and is_gone(error):
                    return None
                wait = retry_after(error, tried, request.repeats)
                if wait is None or tried > self._settings.retries:
                    raise
                time.sleep(wait)

    def _once(self, request: Request) -> httpx.Response:
        unbounded = httpx.Timeout(self._settings.timeout, read=None, write=None)
        content = request.content
        sent = self._http.build_request(
            request.method,
            self.url + request.path,
            params=request.query_pairs,
            headers=request.sent_headers,
            content=_file(content) if isinstance(content, Path) else content,
            json=request.body,
            timeout=request.timeout or (unbounded if request.is_unbounded else self._settings.timeout),
        )
        try:
            response = self._http.send(sent, stream=True)
            if response.is_success:
                return response
            raise failure_of(response.status_code, response.headers, _read(response))
        except NOTHING_SENT as error:
            raise self._unreachable(error, has_begun=False) from error
        except httpx.TimeoutException as error:
            raise Timeout("the request took longer than its timeout") from error
        except httpx.TransportError as error:
            raise self._unreachable(error, has_begun=True) from error

    def _unreachable(self, error: Exception, has_begun: bool) -> Unreachable:
        return Unreachable("%s cannot be reached: %s" % (self.url, error), has_begun)


class Answer:
    """An answer that has begun, and whose body arrives over time."""

    def __init__(self, response: httpx.Response) -> None:
        self._response = response

    def lines(self) -> Iterator[str]:
        for line in _lines(_bytes(self._response)):
            yield line

    def close(self) -> None:
        self._response.close()


def _lines(chunks: Iterator[bytes]) -> Iterator[str]:
    reader = LineReader()
    for chunk in chunks:
        for line in reader.take(chunk):
            yield line
    for line in reader.end():
        yield line


def _bytes(response: httpx.Response) -> Iterator[bytes]:
    try:
        for chunk in response.iter_bytes():
            yield chunk
    except (httpx.TransportError, httpx.StreamError) as error:
        raise Unreachable("the connection broke: %s" % error, has_begun=True) from error
    finally:
        response.close()


def _read(response: httpx.Response) -> bytes:
    try:
        return response.read()
    except httpx.TimeoutException as error:
        raise Timeout("the request took longer than its timeout") from error
    except httpx.TransportError as error:
        raise Unreachable("the connection broke: %s" % error, has_begun=True) from error
    finally:
        response.close()


def _file(path: Path) -> Iterator[bytes]:
    with path.open("rb") as content:
        while chunk := content.read(CHUNK):
            yield chunk
