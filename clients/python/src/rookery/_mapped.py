"""Calls for many inputs at the same time, with results in the order of the inputs."""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, AsyncIterator, Awaitable, Callable, Deque, Iterable, Iterator

from ._error import RookeryError

#: Number of inputs for each concurrent call that are taken before the next result is yielded. Thus one slow
#: call does not stop the others.
AHEAD = 4


def mapped(
    call: Callable[[Any], Any], inputs: Iterable[Any], concurrency: int, return_errors: bool
) -> Iterator[Any]:
    """Yields the result of `call` for each input, in their order. The calls run in threads.

    The end of the iteration starts no other call and waits for those that run.
    """
    check_concurrency(concurrency)
    return _mapped(call, inputs, concurrency, return_errors)


def _mapped(
    call: Callable[[Any], Any], inputs: Iterable[Any], concurrency: int, return_errors: bool
) -> Iterator[Any]:
    calls: Deque[Future[Any]] = deque()

    def next_result() -> Any:
        try:
            return calls.popleft().result()
        except RookeryError as error:
            if not return_errors:
                raise
            return error

    with ThreadPoolExecutor(concurrency, "rookery-map") as pool:
        try:
            for event in inputs:
                calls.append(pool.submit(call, event))
                while calls and (calls[0].done() or len(calls) >= concurrency * AHEAD):
                    yield next_result()
            while calls:
                yield next_result()
        finally:
            for future in calls:
                future.cancel()


def async_mapped(
    call: Callable[[Any], Awaitable[Any]], inputs: Iterable[Any], concurrency: int, return_errors: bool
) -> AsyncIterator[Any]:
    """Yields the result of `call` for each input, in their order.

    The end of the iteration cancels the calls that run.
    """
    check_concurrency(concurrency)
    return _async_mapped(call, inputs, concurrency, return_errors)


async def _async_mapped(
    call: Callable[[Any], Awaitable[Any]], inputs: Iterable[Any], concurrency: int, return_errors: bool
) -> AsyncIterator[Any]:
    calls: Deque[asyncio.Task[Any]] = deque()
    slots = asyncio.Semaphore(concurrency)

    async def call_in_slot(event: Any) -> Any:
        async with slots:
            return await call(event)

    async def next_result() -> Any:
        # The task stays in the queue while it runs, so that a cancellation reaches it.
        try:
            result = await calls[0]
        except RookeryError as error:
            if not return_errors:
                raise
            result = error
        calls.popleft()
        return result

    try:
        for event in inputs:
            calls.append(asyncio.ensure_future(call_in_slot(event)))
            while calls and (calls[0].done() or len(calls) >= concurrency * AHEAD):
                yield await next_result()
        while calls:
            yield await next_result()
    finally:
        for task in calls:
            task.cancel()
        await asyncio.gather(*calls, return_exceptions=True)


def check_concurrency(concurrency: int) -> None:
    """Fails with `RookeryError` unless the number of concurrent calls is valid."""
    if not isinstance(concurrency, int) or concurrency < 1:
        raise RookeryError("concurrency must be a whole number from 1, not %r" % (concurrency,))
