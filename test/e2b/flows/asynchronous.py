"""Checks the asynchronous client of the newest SDK."""

import asyncio
import contextlib
import uuid

from checks import check, processes_with, raises, run_checks
from e2b import AsyncSandbox, CommandExitException, PtySize, SandboxQuery, SandboxState, TimeoutException
from e2b_code_interpreter import AsyncSandbox as AsyncInterpreter


@contextlib.asynccontextmanager
async def made(kind=AsyncSandbox, **options):
    sandbox = await kind.create(**{"timeout": 120, **options})
    try:
        yield sandbox
    finally:
        await sandbox.kill()


async def until(condition, seconds=30):
    """Waits until an asynchronous condition is true."""
    async with asyncio.timeout(seconds):
        while not await condition():
            await asyncio.sleep(0.05)


@check("A7 A4 commands run, many at once, with input and exit codes")
async def commands():
    async with made(envs={"WORD": "x"}) as sandbox:
        results = await asyncio.gather(*(sandbox.commands.run("echo $WORD %d" % number) for number in range(20)))
        assert [each.stdout for each in results] == ["x %d\n" % number for number in range(20)]
        handle = await sandbox.commands.run("cat", background=True, stdin=True)
        await handle.send_stdin("hello\n")
        await handle.close_stdin()
        assert (await handle.wait()).stdout == "hello\n"
        with raises(CommandExitException):
            await sandbox.commands.run("exit 3")


@check("A4.2 the end of the time of a command is a TimeoutException and kills it")
async def time_limit():
    async with made() as sandbox:
        word = uuid.uuid4().hex
        with raises(TimeoutException):
            await sandbox.commands.run("sleep 100", timeout=1, envs={"LIMITED": word})

        async def is_gone():
            return processes_with(word) == []

        await until(is_gone)


@check("A2.10 kill of the sandbox makes waiting commands raise TimeoutException and ends a watch")
async def kill():
    async with made() as sandbox:
        ended = asyncio.Event()
        on_exit = lambda error=None: ended.set()
        await sandbox.files.watch_dir("/home/user", lambda event: None, on_exit=on_exit, timeout=0)
        handle = await sandbox.commands.run("sleep 100", background=True, timeout=0)
        waiting = asyncio.ensure_future(handle.wait())
        await sandbox.kill()
        with raises(TimeoutException):
            await asyncio.wait_for(waiting, 60)
        await asyncio.wait_for(ended.wait(), 60)


@check("A5.5 events of a streamed watch arrive at once, in order")
async def watch():
    async with made() as sandbox:
        seen = []
        handle = await sandbox.files.watch_dir("/home/user", lambda event: seen.append((event.type.value, event.name)))
        await sandbox.files.write("new", "x")

        async def has_three():
            return len(seen) >= 3

        await until(has_three)
        assert seen == [("create", "new"), ("chmod", "new"), ("write", "new")]
        await handle.stop()


@check("A5.1 files are written, read and listed")
async def files():
    async with made() as sandbox:
        await sandbox.files.write("a/b", "text")
        assert await sandbox.files.read("a/b") == "text"
        assert [each.name for each in await sandbox.files.list("a")] == ["b"]
        assert await sandbox.files.exists("a/c") is False


@check("A4.7 a terminal runs a shell")
async def terminal():
    async with made() as sandbox:
        text = bytearray()
        handle = await sandbox.pty.create(PtySize(rows=24, cols=80), on_data=lambda data: text.extend(data))
        await sandbox.pty.send_stdin(handle.pid, b"stty size; exit 4\n")
        with raises(CommandExitException):
            await handle.wait()
        assert b"24 80" in text


@check("A2.7 A2.4 a sandbox is paused, listed and connected to")
async def pause():
    async with made(metadata={"one": uuid.uuid4().hex}) as sandbox:
        await sandbox.pause()
        metadata = (await sandbox.get_info()).metadata
        items = await AsyncSandbox.list(query=SandboxQuery(metadata=metadata)).next_items()
        assert [(each.sandbox_id, each.state) for each in items] == [(sandbox.sandbox_id, SandboxState.PAUSED)]
        again = await AsyncSandbox.connect(sandbox.sandbox_id)
        assert (await again.commands.run("echo back")).stdout == "back\n"


@check("A6.1 cells run, and stream their output")
async def cells():
    async with made(AsyncInterpreter) as sandbox:
        lines = []
        execution = await sandbox.run_code("print('hi')\n6 * 7", on_stdout=lambda each: lines.append(each.line))
        assert (execution.text, "".join(lines)) == ("42", "hi\n")
        context = await sandbox.create_code_context(cwd="/tmp")
        assert (await sandbox.run_code("import os; os.getcwd()", context=context)).text == "/tmp"


run_checks()
