"""Python client of Rookery: `Rookery` blocks; `AsyncRookery` has the same methods as coroutines."""

from ._async.agents import AsyncAgent
from ._async.client import AsyncRookery
from ._async.files import AsyncFileWatch
from ._async.functions import AsyncCall, AsyncFunction
from ._async.sandboxes import AsyncSandbox
from ._async.terminal import AsyncTerminal
from ._error import (
    Conflict,
    ExecutionFailed,
    InternalError,
    InvalidRequest,
    NotFound,
    PermissionDenied,
    RateLimited,
    RookeryError,
    Timeout,
    Unauthenticated,
    Unavailable,
)
from ._remote import RemoteFunction, function
from ._results import CommandFailed, CommandResult
from ._schema import schema_of
from ._sync.agents import Agent
from ._sync.client import Rookery
from ._sync.files import FileWatch
from ._sync.functions import Call, Function
from ._sync.sandboxes import Sandbox
from ._sync.terminal import Terminal
from ._wire import CodeRun, Event, FileChange, Output

__all__ = [
    "Agent",
    "AsyncAgent",
    "AsyncCall",
    "AsyncFileWatch",
    "AsyncFunction",
    "AsyncRookery",
    "AsyncSandbox",
    "AsyncTerminal",
    "Call",
    "CodeRun",
    "CommandFailed",
    "CommandResult",
    "Conflict",
    "Event",
    "ExecutionFailed",
    "FileChange",
    "FileWatch",
    "Function",
    "InternalError",
    "InvalidRequest",
    "NotFound",
    "Output",
    "PermissionDenied",
    "RateLimited",
    "RemoteFunction",
    "Rookery",
    "RookeryError",
    "Sandbox",
    "Terminal",
    "Timeout",
    "Unauthenticated",
    "Unavailable",
    "function",
    "schema_of",
]
