# Made by `npm run generate` from _async/connection.py.
from __future__ import annotations

import time
import ssl
from pathlib import Path
from typing import Any, Iterator, Optional

import httpx
from websockets.sync.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus, WebSocketException

from .._error import RookeryError, Unreachable
from .._wire import LineReader, Request, Settings, answer_of, failure_of, is_gone, retry_after

CHUNK = 64 * 1024
KEPT_CONNECTIONS = 100
#: Failures of httpx that come before anything was sent.
NOTHING_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


class Connection:
    """Sends operations of the service, again where that is safe, and reads their answers."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        # Any number at once: calls may take their time, and followers never end.
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=KEPT_CONNECTIONS)
        self._http = httpx.Client(headers=dict(settings.headers), timeout=settings.timeout, limits=limits)

    @property
    def url(self) -> str:
        return self._settings.url

    def close(self) -> None:
        self._http.close()

    def call(self, request: Request) -> Any:
        """The answer's JSON. Fails with `RookeryError` for every answer that says no."""
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
        try:
            for chunk in response.iter_bytes():
                yield chunk
        except httpx.TransportError as error:
            raise Unreachable("the connection broke: %s" % error, has_begun=True) from error
        finally:
            response.close()

    def lines(self, request: Request) -> Iterator[str]:
        reader = LineReader()
        for chunk in self.chunks(request):
            for line in reader.take(chunk):
                yield line
        for line in reader.end():
            yield line

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
        """The answer, not read yet; None: what is deleted has been deleted by a try whose answer got lost."""
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
            raise RookeryError("the request took longer than its timeout") from error
        except httpx.TransportError as error:
            raise self._unreachable(error, has_begun=True) from error

    def _unreachable(self, error: Exception, has_begun: bool) -> Unreachable:
        return Unreachable("%s cannot be reached: %s" % (self.url, error), has_begun)


def _read(response: httpx.Response) -> bytes:
    try:
        return response.read()
    except httpx.TimeoutException as error:
        raise RookeryError("the request took longer than its timeout") from error
    except httpx.TransportError as error:
        raise Unreachable("the connection broke: %s" % error, has_begun=True) from error
    finally:
        response.close()


def _file(path: Path) -> Iterator[bytes]:
    with path.open("rb") as content:
        while chunk := content.read(CHUNK):
            yield chunk
