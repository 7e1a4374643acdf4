"""The decorator `function`, which makes a function of a module one of the service."""

from __future__ import annotations

import functools
import inspect
import os
import sys
import threading
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator, Optional, Tuple, Union, overload

from ._error import RookeryError
from ._runs import asks_for_dependencies
from ._schema import HINTS, schema_of
from ._sync.client import Rookery
from ._sync.functions import Call, Function

Directory = Union[str, os.PathLike[str]]

_shared_lock = threading.Lock()
_shared: Optional[Rookery] = None


@overload
def function(target: Callable[..., Any]) -> RemoteFunction: ...


@overload
def function(
    *,
    name: Optional[str] = ...,
    code: Optional[Directory] = ...,
    client: Optional[Rookery] = ...,
    **options: Any,
) -> Callable[[Callable[..., Any]], RemoteFunction]: ...


def function(
    target: Optional[Callable[..., Any]] = None,
    *,
    name: Optional[str] = None,
    code: Optional[Directory] = None,
    client: Optional[Rookery] = None,
    **options: Any,
) -> Any:
    """Makes a function of a module one of the service, with `remote`, `map`, `spawn` and `stream`.

    Calls of the function itself still run here. In a sandbox the decorator returns the function unchanged.

    - `name`: as of `functions.register`. Default: the name of the function, with `-` for `_`.
    - `code`: the directory to upload. Default: the one from which the module is imported.
    - `client`: Default: a client that reads `$ROOKERY_ADDRESS` and so on, shared by all decorated functions.
    - Other options are those of `functions.register`, except `handler`. `input_schema="hints"` takes the
      schema from the type hint of the first parameter.

    Fails with `RookeryError` if the function is not one of a module in a file.
    """

    def decorate(decorated: Callable[..., Any]) -> Any:
        if "rookery_runtime" in sys.modules:
            return decorated
        return RemoteFunction(decorated, name=name, code=code, client=client, options=options)

    return decorate if target is None else decorate(target)


class RemoteFunction:
    """A function of a module that runs here when it is called, and on the service through its methods.

    The first use of a method deploys it. Methods fail with `RookeryError`.
    """

    name: str
    """Name under which the function is registered."""
    handler: str
    """Name of the function in the uploaded code: `module.function`."""

    def __init__(
        self,
        target: Callable[..., Any],
        *,
        name: Optional[str],
        code: Optional[Directory],
        client: Optional[Rookery],
        options: Any,
    ) -> None:
        if "handler" in options:
            raise RookeryError("handler: the decorated function is the handler; leave the option out")
        functools.update_wrapper(self, target)
        self.name = name or target.__name__.strip("_").replace("_", "-").lower()
        self._target = target
        self._code, self.handler = _place_of(target, code)
        self._client = client
        self._options = options
        self._lock = threading.Lock()
        self._deployed: Optional[Function] = None

    def __repr__(self) -> str:
        """Returns the name and the handler."""
        return "RemoteFunction(name=%r, handler=%r)" % (self.name, self.handler)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the function here, without the service."""
        return self._target(*args, **kwargs)

    def deploy(self) -> Function:
        """Uploads the code, registers the function or changes it if anything differs, and returns `$latest`."""
        with self._lock:
            self._deployed = self._deploy()
            return self._deployed

    def remote(self, event: Any = None, **options: Any) -> Any:
        """Calls the function on the service and returns its result. The options are those of `Function.invoke`."""
        return self._function().invoke(event, **options)

    def stream(self, event: Any = None, **options: Any) -> Iterator[str]:
        """Calls the function on the service and yields each piece of its result, as `Function.stream` does."""
        return self._function().stream(event, **options)

    def map(self, inputs: Iterable[Any], **options: Any) -> Iterator[Any]:
        """Calls the function on the service for each input. The options are those of `Function.map`."""
        return self._function().map(inputs, **options)

    def spawn(self, event: Any = None, **options: Any) -> Call:
        """Starts a call on the service and returns its handle. The options are those of `Function.spawn`."""
        return self._function().spawn(event, **options)

    def _function(self) -> Function:
        with self._lock:
            if self._deployed is None:
                self._deployed = self._deploy()
            return self._deployed

    def _deploy(self) -> Function:
        client = self._client or _shared_client()
        options = dict(self._options)
        if options.get("input_schema") == HINTS:
            options["input_schema"] = schema_of(self._target)
        if "dependencies" not in options and asks_for_dependencies(self._code, is_node=False):
            options["dependencies"] = "auto"
        code = client.code.upload(self._code, stand_in=True)
        return client.functions.deploy(self.name, code, handler=self.handler, **options)


def _shared_client() -> Rookery:
    global _shared
    with _shared_lock:
        if _shared is None:
            _shared = Rookery()
        return _shared


def _place_of(target: Callable[..., Any], code: Optional[Directory]) -> Tuple[Path, str]:
    """Returns the directory to upload and the handler. Fails for a function that a sandbox could not import."""
    what = getattr(target, "__qualname__", repr(target))
    if not inspect.isfunction(target) or target.__qualname__ != target.__name__ or not target.__name__.isidentifier():
        raise RookeryError("%s is not a function of a module: define it with def, outside of functions and classes" % what)
    file = Path(target.__code__.co_filename).resolve()
    if not file.is_file():
        raise RookeryError("%s is not in a file, so there is no code to upload: write it into a module" % what)
    root = _root_of(target, file) if code is None else Path(code).resolve()
    if root not in file.parents:
        raise RookeryError("%s is in %s, which is not below the directory %s of its code" % (what, file, root))
    parts = list(file.relative_to(root).with_suffix("").parts)
    if parts[-1] == "__init__":
        parts.pop()
    if not parts:
        raise RookeryError("%s is in %s, which has no module name: name a directory above it with code" % (what, file))
    return root, ".".join([*parts, target.__name__])


def _root_of(target: Callable[..., Any], file: Path) -> Path:
    """Returns the directory from which the module of a function is imported."""
    spec = getattr(sys.modules.get(target.__module__), "__spec__", None)
    name = spec.name if spec is not None else file.stem
    depth = name.count(".") + (file.stem == "__init__")
    return file.parents[min(depth, len(file.parents) - 1)]
