"""The errors of the client."""

from __future__ import annotations

from typing import Any, Mapping, Optional, Type


class RookeryError(Exception):
    """Failure of any method of this client. Its subclasses follow the code."""

    message: str
    status: int
    """Status of the HTTP answer; 0 without an answer."""
    code: int
    """Error code from the answer's body (docs/reference/errors.md), otherwise the status."""
    inner_code: int
    """Code of the failure in user code (`X-Inner-Code`), where the answer of an agent has only 500 in `code`;
    otherwise `code`."""
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
        inner_code: Optional[int] = None,
        trace_id: Optional[str] = None,
        advice: Optional[str] = None,
        retry_after: Optional[float] = None,
        body: Optional[Mapping[str, Any]] = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.code = status if code is None else code
        self.inner_code = self.code if inner_code is None else inner_code
        self.trace_id = trace_id
        self.advice = advice
        self.retry_after = retry_after
        self.body = body


class InvalidRequest(RookeryError):
    """The request is wrong: a field, a header, its size, or its combination with stored data."""


class NotFound(RookeryError):
    """The agent, function, version, job, file or id does not exist."""


class Conflict(RookeryError):
    """The request conflicts with the stored state: a taken name, a stale revision, a running operation."""


class Unauthenticated(RookeryError):
    """The token is absent, unknown or expired."""


class PermissionDenied(RookeryError):
    """The token does not permit the request."""


class RateLimited(RookeryError):
    """A limit is reached. `retry_after` says when a retry may succeed."""


class Timeout(RookeryError):
    """The call, the request or the wait took longer than its limit."""


class ExecutionFailed(RookeryError):
    """User code failed: it did not load, it raised, its result is invalid, or its process ended."""


class Unavailable(RookeryError):
    """The service, or a part that it needs, cannot be reached or has no capacity now."""


class InternalError(RookeryError):
    """The service failed. Its log has the cause under `trace_id`."""


class Unreachable(Unavailable):
    """Failure without a complete answer.

    `has_begun` is true if the service may have received the request.
    """

    def __init__(self, message: str, has_begun: bool) -> None:
        super().__init__(message)
        self.has_begun = has_begun


#: Class of each code in docs/reference/errors.md. The client for TypeScript has the same table.
FAILURE_OF_CODE: Mapping[int, Type[RookeryError]] = {
    500: InternalError,
    4101: Conflict,
    4104: InvalidRequest,
    4110: Conflict,
    4114: Conflict,
    4115: NotFound,
    4120: NotFound,
    4134: Conflict,
    130600: InvalidRequest,
    4000: InternalError,
    4001: ExecutionFailed,
    4002: ExecutionFailed,
    4004: ExecutionFailed,
    4007: ExecutionFailed,
    4009: ExecutionFailed,
    4010: Timeout,
    4140: InvalidRequest,
    4201: ExecutionFailed,
    4211: Timeout,
    4037: InvalidRequest,
    150424: NotFound,
    150427: ExecutionFailed,
    150429: RateLimited,
    150431: Unavailable,
    150444: NotFound,
    150500: Unavailable,
    150503: Unavailable,
    150510: RateLimited,
    200400: InvalidRequest,
    200404: NotFound,
}

#: Class of each HTTP status that has a class of its own.
FAILURE_OF_STATUS: Mapping[int, Type[RookeryError]] = {
    401: Unauthenticated,
    403: PermissionDenied,
    404: NotFound,
    408: Timeout,
    409: Conflict,
    429: RateLimited,
    502: Unavailable,
    503: Unavailable,
    504: Timeout,
}


def failure(
    message: str, *, status: int, code: Optional[int], inner_code: Optional[int] = None, **more: Any
) -> RookeryError:
    """Makes the error of an answer. The code decides on its class.

    First counts the code of the failed user code, then that of the answer, then the HTTP status. Without a class
    for them the error is a plain `RookeryError`.
    """
    kinds = [FAILURE_OF_CODE.get(inner_code or 0), FAILURE_OF_CODE.get(code or 0), _of_status(code or 0), _of_status(status)]
    kind = next((each for each in kinds if each is not None), RookeryError)
    return kind(message, status=status, code=code, inner_code=inner_code, **more)


def _of_status(status: int) -> Optional[Type[RookeryError]]:
    own = FAILURE_OF_STATUS.get(status)
    if own is not None or not 400 <= status < 600:
        return own
    return InvalidRequest if status < 500 else InternalError
