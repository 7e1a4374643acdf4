from __future__ import annotations

from typing import Any, Mapping, Optional


class RookeryError(Exception):
    """Every failure of this client."""

    message: str
    status: int
    """Of the HTTP answer; 0: there was none."""
    code: int
    """Of the answer's body (docs/errors.md); else the status."""
    trace_id: Optional[str]
    advice: Optional[str]
    """What the service says to do about it."""
    retry_after: Optional[float]
    """After how many seconds the service wants to be asked again."""
    body: Optional[Mapping[str, Any]]
    """The answer's JSON object, where it was one."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        code: Optional[int] = None,
        trace_id: Optional[str] = None,
        advice: Optional[str] = None,
        retry_after: Optional[float] = None,
        body: Optional[Mapping[str, Any]] = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.code = status if code is None else code
        self.trace_id = trace_id
        self.advice = advice
        self.retry_after = retry_after
        self.body = body


class Unreachable(RookeryError):
    """No whole answer came. `has_begun`: the service may have got the request."""

    def __init__(self, message: str, has_begun: bool) -> None:
        super().__init__(message)
        self.has_begun = has_begun
