"""Requests, answers and streams of both clients, without network I/O."""

from __future__ import annotations

import json
import os
import random
import re
import time
import uuid
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple, Union
from urllib.parse import quote, urlsplit

from ._error import RookeryError, Unreachable, failure
from .types import PATHS, FileFacts

#: Types that httpx accepts as query values.
Primitive = Union[str, int, float, bool, None]

DEFAULT_URL = "http://127.0.0.1:8888"
DEFAULT_TIMEOUT = 300.0
DEFAULT_RETRIES = 4
META = "/api/meta/"
NO_FUNCTION = 4115

FIRST_PAUSE = 0.2
LONGEST_PAUSE = 5.0
#: Longest `Retry-After` in seconds that the client waits for; above it the method fails immediately.
LONGEST_WAIT = 60.0
#: Statuses of temporary failures.
MOMENTARY = frozenset([429, 502, 503, 504])
#: Error code for a call that got no instance in time and so has not started (docs/reference/errors.md).
NO_INSTANCE = 150431
STARTING = "the server is starting"


@dataclass(frozen=True)
class Settings:
    url: str
    #: Has the token, so the representation leaves it out.
    headers: Mapping[str, str] = field(repr=False)
    timeout: float
    retries: int


@dataclass(frozen=True)
class Request:
    """One operation of openapi/rookery.json."""

    operation: str
    params: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, Optional[str]] = field(default_factory=dict)
    body: Any = None
    #: Raw body, which is sent unchanged instead of `body`: bytes, or the path of a file.
    content: Any = None
    content_type: str = "application/json"
    #: True if sending the request twice has the same effect as once; None: the HTTP method decides.
    may_repeat: Optional[bool] = None
    #: Seconds without an answer after which the request fails; None: the default.
    timeout: Optional[float] = None
    #: True if the service limits the duration itself, as for calls and creates. Then the default timeout
    #: does not apply to the answer.
    is_unbounded: bool = False

    @property
    def method(self) -> str:
        return PATHS[self.operation][0]

    @property
    def path(self) -> str:
        path = PATHS[self.operation][1]
        return re.sub(r"\{(\w+)\}", lambda found: quote(str(self.params[found.group(1)]), safe=""), path)

    @property
    def query_pairs(self) -> List[Tuple[str, Primitive]]:
        pairs: List[Tuple[str, Primitive]] = []
        for name, value in self.query.items():
            for one in value if isinstance(value, list) else [value]:
                if one is not None:
                    pairs.append((name, str(one).lower() if isinstance(one, bool) else str(one)))
        return pairs

    @property
    def sent_headers(self) -> Dict[str, str]:
        headers = {name: value for name, value in self.headers.items() if value is not None}
        check_headers(headers)
        if self.body is not None or self.content is not None:
            headers["content-type"] = self.content_type
        if isinstance(self.content, Path):
            headers["content-length"] = str(self.content.stat().st_size)
        return headers

    @property
    def repeats(self) -> bool:
        if self.may_repeat is not None:
            return self.may_repeat
        # An update names the revision that it changes, so the service would refuse a second one.
        return self.method != "POST" and self.operation != "updateFunction"


@dataclass(frozen=True)
class Output:
    """One piece of a command's output. With a terminal every piece is `stdout`."""

    stream: str
    data: bytes


@dataclass(frozen=True)
class FileChange:
    """A change in a watched directory."""

    type: str
    """`create`, `write`, `chmod`, `remove` or `rename` (the old name; `create` has the new one)."""
    name: str
    """Path below the watched directory."""
    file: Optional[FileFacts] = None
    """Facts of the file, with `facts` where the file exists."""


@dataclass(frozen=True)
class CodeRun:
    """What a cell of code gave: the lines of the interpreter, in their order."""

    lines: List[Dict[str, Any]]

    @property
    def stdout(self) -> str:
        """All text that was written to standard output."""
        return self._text("stdout")

    @property
    def stderr(self) -> str:
        """All text that was written to the error output."""
        return self._text("stderr")

    @property
    def results(self) -> List[Dict[str, Any]]:
        """Displayed values, and the value of the last expression, which has `is_main_result`."""
        return [line for line in self.lines if line["type"] == "result"]

    @property
    def text(self) -> Optional[str]:
        """Text of the last expression's value; None without one."""
        return next((result.get("text") for result in self.results if result["is_main_result"]), None)

    @property
    def error(self) -> Optional[Dict[str, Any]]:
        """`name`, `value` and `traceback` of the error that ended the code; None if it succeeded."""
        return next((line for line in self.lines if line["type"] == "error"), None)

    def _text(self, stream: str) -> str:
        return "".join(line["text"] for line in self.lines if line["type"] == stream)


@dataclass(frozen=True)
class Event:
    """One event of the service. docs/reference/events.md lists the types and the fields of their data."""

    id: str
    type: str
    data: Mapping[str, Any]


def read_settings(
    url: Optional[str], token: Optional[str], tenant: Optional[str], timeout: float, retries: int
) -> Settings:
    env = os.environ
    address = url or env.get("ROOKERY_ADDRESS") or DEFAULT_URL
    full = address if "://" in address else "http://" + address
    parts = urlsplit(full)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise RookeryError("url must be that of a service, such as %s, not %r" % (DEFAULT_URL, address))
    sent = token or env.get("ROOKERY_TOKEN")
    file = env.get("ROOKERY_TOKEN_FILE")
    if not sent and file:
        try:
            sent = Path(file).read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not text"
            raise RookeryError("the token file %s cannot be read: %s" % (file, reason)) from error
    headers = {}
    if sent:
        headers["authorization"] = "Bearer " + sent
    if tenant or env.get("ROOKERY_TENANT"):
        headers["x-tenant-id"] = str(tenant or env.get("ROOKERY_TENANT"))
    check_headers(headers)
    return Settings(full.rstrip("/"), headers, timeout, retries)


def check_headers(headers: Mapping[str, str]) -> None:
    """Checks that headers can be sent. The error leaves out the value, which may be a token."""
    for name, value in headers.items():
        if not re.fullmatch(r"[\t\x20-\x7e]*", value):
            raise RookeryError("what is to be sent as %s has characters that no header has" % name)


def failure_of(status: int, headers: Mapping[str, str], content: bytes) -> RookeryError:
    text = content.decode(errors="replace")
    parsed = parse_json(text)
    body = parsed if isinstance(parsed, dict) else None
    message = (body or {}).get("message") or "the service answered %d: %s" % (status, text[:200])
    code = (body or {}).get("code")
    inner = headers.get("x-inner-code", "")
    return failure(
        str(message),
        status=status,
        code=code if isinstance(code, int) else None,
        # `0` means success.
        inner_code=int(inner) if re.fullmatch("[1-9][0-9]{0,8}", inner) else None,
        trace_id=headers.get("x-trace-id"),
        advice=headers.get("x-advice"),
        retry_after=seconds_until(headers.get("retry-after", "")),
        body=body,
    )


def answer_of(request: Request, status: int, headers: Mapping[str, str], content: bytes) -> Any:
    """Returns the JSON of an answer.

    Fails with `RookeryError` if the registry reports a failure, which has the status 200.
    """
    value = parse_json(content.decode(errors="replace")) if content else {}
    if value is None:
        raise RookeryError("the service answered what is not JSON: %r" % content[:200], status=status)
    if request.path.startswith(META) and isinstance(value, dict) and value.get("code") != 0:
        raise failure_of(status, headers, content)
    return value


def parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def seconds_until(header: str, now: Optional[float] = None) -> Optional[float]:
    """Returns the seconds until the time in `Retry-After`, or None if it is absent, past or malformed.

    The header has seconds, or a date, which some proxies send.
    """
    if re.fullmatch("[0-9]+", header):
        return float(header) or None
    try:
        seconds = parsedate_to_datetime(header).timestamp() - (time.time() if now is None else now)
    except (TypeError, ValueError):
        return None
    return seconds if seconds > 0 else None


def is_gone(error: RookeryError) -> bool:
    return error.status == 404 or error.code == NO_FUNCTION


def retry_after(error: RookeryError, tried: int, may_repeat: bool, chance: Optional[float] = None) -> Optional[float]:
    """Returns the seconds to wait before a retry, or None if the request must not be retried.

    A request that may be repeated is retried after every temporary failure. Any other request is retried only
    if the service has certainly not started it. `tried` is the number of attempts so far; `chance` is from 0
    to 1.
    """
    if not (_is_momentary(error) if may_repeat else _has_not_begun(error)):
        return None
    wanted = error.retry_after or 0.0
    if wanted > LONGEST_WAIT:
        return None
    pause: float = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (tried - 1))
    # The random part spreads the retries of many clients that failed at the same time.
    share: float = random.random() if chance is None else chance
    return max(wanted, pause / 2) + share * pause / 2


def _is_momentary(error: RookeryError) -> bool:
    return isinstance(error, Unreachable) or error.status in MOMENTARY


def _has_not_begun(error: RookeryError) -> bool:
    if isinstance(error, Unreachable):
        return not error.has_begun
    is_starting = error.status == 503 and error.message.startswith(STARTING)
    return error.status == 429 or error.code == NO_INSTANCE or is_starting


class EventReader:
    """Makes events from the lines of a `text/event-stream` (HTML §9.2).

    An event that is incomplete at the end of the stream is dropped.
    """

    def __init__(self) -> None:
        self._id = ""
        self._type = ""
        self._data: List[str] = []

    def take(self, line: str) -> Iterator[Tuple[str, str, str]]:
        """Yields the event that the line completes, if any, as id, type and data."""
        name, _, value = line.partition(":")
        value = value[1:] if value.startswith(" ") else value
        if line == "":
            if self._data:
                yield self._id, self._type or "message", "\n".join(self._data)
            self._type, self._data = "", []
        elif name == "data":
            self._data.append(value)
        elif name == "event":
            self._type = value
        elif name == "id":
            self._id = value


class LineReader:
    """Splits a stream of UTF-8 bytes into whole lines."""

    def __init__(self) -> None:
        self._rest = b""

    def take(self, chunk: bytes) -> Iterable[str]:
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        return [line.decode(errors="replace") for line in lines]

    def end(self) -> Iterable[str]:
        return [self._rest.decode(errors="replace")] if self._rest else []


class LogPosition:
    """Position up to which a log was read.

    `of_instances`: each line begins with its instance id, and every instance has a position of its own.
    """

    _PREFIX = re.compile(rb"\[[0-9a-f]{8}\] ")

    def __init__(self, is_whole: bool, of_instances: bool) -> None:
        #: True after the log has begun; only then can it be resumed.
        self.has_begun = False
        self._of_instances = of_instances
        #: Offset in the log at which a new source begins; None: unknown, as only its last lines were read.
        self._start: Optional[int] = 0 if is_whole else None
        self._sources: Dict[bytes, _Source] = {}
        self._source = b""

    @property
    def has_read(self) -> bool:
        return bool(self._sources)

    def begin(self) -> None:
        self.has_begun = True
        for source in self._sources.values():
            source.to_skip = source.size or 0

    def advance(self, chunk: bytes) -> bytes:
        """Returns the part of a chunk that was not read before."""
        return b"".join(self._source_of(name).advance(part) for name, part in self._parts(chunk))

    def find(self, log: bytes) -> None:
        """Finds the last position read in the current log."""
        now: Dict[bytes, bytes] = {}
        for name, part in self._parts(log):
            now[name] = now.get(name, b"") + part
        self._source = b""
        for name, source in self._sources.items():
            if name in now:
                source.find(now[name])
        self._start = 0

    def _source_of(self, name: bytes) -> "_Source":
        if name not in self._sources:
            self._sources[name] = _Source(self._start)
        return self._sources[name]

    def _parts(self, chunk: bytes) -> Iterator[Tuple[bytes, bytes]]:
        if not self._of_instances:
            yield b"", chunk
            return
        for line in re.findall(rb"[^\n]*\n|[^\n]+", chunk):
            found = self._PREFIX.match(line)
            self._source = found.group() if found else self._source
            yield self._source, line


class _Source:
    #: Bytes to keep of those read, by which their end is found in a log whose beginning is unknown.
    _KEPT = 64 * 1024

    def __init__(self, size: Optional[int]) -> None:
        self.size = size
        self.to_skip = 0
        self._kept = b""

    def advance(self, part: bytes) -> bytes:
        fresh = part[self.to_skip :]
        self.to_skip -= len(part) - len(fresh)
        if self.size is not None:
            self.size += len(fresh)
        self._kept = (self._kept + fresh)[-self._KEPT :]
        return fresh

    def find(self, log: bytes) -> None:
        """Finds the end of the bytes read in a log that may have lost its beginning to a rotation."""
        end = self.size
        if end is not None and log[max(0, end - len(self._kept)) : end] == self._kept:
            return
        at = log.rfind(self._kept)
        self.size = 0 if at == -1 else at + len(self._kept)


def multipart(path: str, data: bytes, mode: Optional[str]) -> Tuple[str, bytes]:
    """Returns the content type and the bytes of a form, in which the path and the mode precede the file."""
    boundary = "rookery-" + uuid.uuid4().hex
    fields = [("path", path)] + ([] if mode is None else [("mode", mode)])
    head = "".join(
        '--%s\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n' % (boundary, name, value)
        for name, value in fields
    )
    name = re.sub(r'["\r\n]', "_", path.rpartition("/")[2]) or "file"
    head += '--%s\r\nContent-Disposition: form-data; name="file"; filename="%s"\r\n' % (boundary, name)
    head += "Content-Type: application/octet-stream\r\n\r\n"
    return "multipart/form-data; boundary=" + boundary, head.encode() + data + ("\r\n--%s--\r\n" % boundary).encode()


def given(**options: Any) -> Dict[str, Any]:
    """Returns the options that are not None."""
    return {name: value for name, value in options.items() if value is not None}


def whole_name(name: str) -> str:
    """Completes a function name, such as `hello` or `demo@hello`, to the form `0@demo@hello`.

    The rules are those of the command line. URNs stay unchanged.
    """
    parts = re.split("[@/]", name)
    if name.startswith("sn:") or len(parts) > 2:
        return name
    return "0@default@" + name if len(parts) == 1 else "0@" + "@".join(parts)
