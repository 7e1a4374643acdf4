"""The errors of the client."""

from __future__ import annotations

from typing import Any, Mapping, Optional


class RookeryError(Exception):
    """Failure of any method of this client."""

    message: str
    status: int
    """Status of the HTTP answer; 0 without an answer."""
    code: int
    """Error code from the answer's body (docs/reference/errors.md), otherwise the status."""
    trace_id: Optional[str]
    advice: Optional[str]
    """Advice of the service on how to correct the request (`X-Advice`)."""
    retry_after: Optional[float]
    """Seconds to wait before a retry, as the service demands (`Retry-After`)."""
    body: Optional[Mapping[str, Any]]
    """JSON object of the answer, if the answer has one."""

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
    """Failure without a complete answer.

    `has_begun` is true if the service may have received the request.
    """

    def __init__(self, message: str, has_begun: bool) -> None:
        super().__init__(message)
        self.has_begun = has_begun
