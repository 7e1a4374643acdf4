"""What the client says and understands, without any I/O: both clients are made of it."""

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

from ._error import RookeryError, Unreachable
from .types import PATHS

#: What httpx takes in a query.
Primitive = Union[str, int, float, bool, None]

DEFAULT_URL = "http://127.0.0.1:8888"
DEFAULT_TIMEOUT = 300.0
DEFAULT_RETRIES = 4
META = "/api/meta/"
NO_FUNCTION = 4115

FIRST_PAUSE = 0.2
LONGEST_PAUSE = 5.0
#: Above this the caller is told instead.
LONGEST_WAIT = 60.0
#: Answers of a moment.
MOMENTARY = frozenset([429, 502, 503, 504])
#: The call waited for an instance in vain: it has not begun (docs/errors.md).
NO_INSTANCE = 150431
STARTING = "the server is starting"


@dataclass(frozen=True)
class Settings:
    url: str
    headers: Mapping[str, str]
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
    #: Sent instead of `body`, as it is: bytes, or a file.
    content: Any = None
    content_type: str = "application/json"
    #: Whether sending it twice is as good as once; None: as its method says.
    may_repeat: Optional[bool] = None
    #: Seconds without an answer.
    timeout: Optional[float] = None
    #: The service bounds it itself: a call, a create.
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
        # An update names the revision that it changes: the second one would be refused.
        return self.method != "POST" and self.operation != "updateFunction"


@dataclass(frozen=True)
class Output:
    """A piece of what a command wrote. With a terminal all of it is `stdout`."""

    stream: str
    data: bytes


@dataclass(frozen=True)
class Event:
    """docs/dashboard.md has the kinds, and what each tells."""

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
            raise RookeryError("the token file %s cannot be read (%s)" % (file, error)) from error
    headers = {}
    if sent:
        headers["authorization"] = "Bearer " + sent
    if tenant or env.get("ROOKERY_TENANT"):
        headers["x-tenant-id"] = str(tenant or env.get("ROOKERY_TENANT"))
    check_headers(headers)
    return Settings(full.rstrip("/"), headers, timeout, retries)


def check_headers(headers: Mapping[str, str]) -> None:
    """The value is in no error: it may be a token."""
    for name, value in headers.items():
        if not re.fullmatch(r"[\t\x20-\x7e]*", value):
            raise RookeryError("what is to be sent as %s has characters that no header has" % name)


def failure_of(status: int, headers: Mapping[str, str], content: bytes) -> RookeryError:
    text = content.decode(errors="replace")
    parsed = parse_json(text)
    body = parsed if isinstance(parsed, dict) else None
    message = (body or {}).get("message") or "the service answered %d: %s" % (status, text[:200])
    code = (body or {}).get("code")
    return RookeryError(
        str(message),
        status=status,
        code=code if isinstance(code, int) else None,
        trace_id=headers.get("x-trace-id"),
        advice=headers.get("x-advice"),
        retry_after=seconds_until(headers.get("retry-after", "")),
        body=body,
    )


def answer_of(request: Request, status: int, headers: Mapping[str, str], content: bytes) -> Any:
    """The answer's JSON; fails when the registry refuses, which it does with status 200."""
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
    """What `Retry-After` says: seconds, or a moment, which is what some say that stand before the service."""
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
    """How many seconds to wait before the request is sent again; None: it must not be.

    What may be repeated is sent again whenever that could help; anything else only when the service has certainly not begun with it.
    """
    if not (_is_momentary(error) if may_repeat else _has_not_begun(error)):
        return None
    wanted = error.retry_after or 0.0
    if wanted > LONGEST_WAIT:
        return None
    pause: float = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (tried - 1))
    # Many clients that were refused together do not come back together.
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
    """Makes events of the lines of a `text/event-stream` (HTML §9.2). One that is cut off at the end does not count."""

    def __init__(self) -> None:
        self._id = ""
        self._type = ""
        self._data: List[str] = []

    def take(self, line: str) -> Iterator[Tuple[str, str, str]]:
        """The event that the line ends, if it ends one: id, type, data."""
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
    """Whole lines of a text as it comes."""

    def __init__(self) -> None:
        self._rest = b""

    def take(self, chunk: bytes) -> Iterable[str]:
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        return [line.decode(errors="replace") for line in lines]

    def end(self) -> Iterable[str]:
        return [self._rest.decode(errors="replace")] if self._rest else []


def multipart(path: str, data: bytes, mode: Optional[str]) -> Tuple[str, bytes]:
    """The type and the bytes of a form with the path and the mode before the file."""
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
    """Those that are not None."""
    return {name: value for name, value in options.items() if value is not None}


def whole_name(name: str) -> str:
    """The name of a function as the command line reads it: `hello`, `demo@hello`, `0@demo@hello`."""
    parts = re.split("[@/]", name)
    if name.startswith("sn:") or len(parts) > 2:
        return name
    return "0@default@" + name if len(parts) == 1 else "0@" + "@".join(parts)
