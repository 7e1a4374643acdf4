"""Checks the oldest supported Python SDK, 2.8.0."""

import asyncio
import uuid

from checks import check, eventually, processes_with, raises, run_checks
from e2b import (
    AsyncSandbox,
    CommandExitException,
    NotFoundException,
    PtySize,
    Sandbox,
    SandboxQuery,
    TimeoutException,
)

sandbox = Sandbox.create(timeout=300, metadata={"kind": "old"}, envs={"WORD": "x"})


@check("A7 A2.1 a sandbox is created, described, listed and killed")
def life():
    one = Sandbox.create(timeout=60, metadata={"mark": uuid.uuid4().hex})
    info = one.get_info()
    assert info.sandbox_id == one.sandbox_id and info.name == "base"
    items = Sandbox.list(query=SandboxQuery(metadata=info.metadata)).next_items()
    assert [each.sandbox_id for each in items] == [one.sandbox_id]
    one.set_timeout(100)
    assert one.is_running()
    assert one.kill() is True and one.kill() is False
    assert not one.is_running()


@check("A1.6 connect by id sends no routing headers and works")
def connect():
    again = Sandbox.connect(sandbox.sandbox_id)
    assert again.commands.run("echo $WORD").stdout == "x\n"
    again.files.write("by-connect", "y")
    assert sandbox.files.read("by-connect") == "y"
    assert again.is_running()


@check("A4 commands run with users, input, exit codes and time limits")
def commands():
    assert sandbox.commands.run("whoami").stdout == "user\n"
    assert sandbox.commands.run("whoami", user="root").stdout == "root\n"
    handle = sandbox.commands.run("cat; exit 2", background=True, stdin=True)
    sandbox.commands.send_stdin(handle.pid, "hello\n")
    assert handle.pid in [each.pid for each in sandbox.commands.list()]
    assert sandbox.commands.kill(handle.pid) is True
    with raises(CommandExitException):
        handle.wait()
    word = uuid.uuid4().hex
    with raises(TimeoutException):
        sandbox.commands.run("sleep 100", timeout=1, envs={"LIMITED": word})
    eventually(lambda: processes_with(word) == [])


@check("A5 files are written, listed, renamed, watched and removed")
def files():
    sandbox.files.write_files([{"path": "d/1", "data": "one"}, {"path": "d/2", "data": b"two"}])
    assert [each.name for each in sandbox.files.list("d")] == ["1", "2"]
    handle = sandbox.files.watch_dir("d")
    sandbox.files.write("d/new", "x")
    assert [each.type.value for each in handle.get_new_events()] == ["create", "chmod", "write"]
    sandbox.files.rename("d/1", "d/3")
    sandbox.files.remove("d/3")
    with raises(NotFoundException):
        sandbox.files.read("d/3")
    assert sandbox.files.make_dir("d") is False


@check("A2.7 a sandbox is paused and connected to")
def pause():
    sandbox.files.write("kept", "here")
    sandbox.beta_pause()
    assert not sandbox.is_running()
    again = Sandbox.connect(sandbox.sandbox_id)
    assert again.files.read("kept") == "here" and again.commands.run("echo $WORD").stdout == "x\n"


@check("A4.7 a terminal runs a shell")
def terminal():
    handle = sandbox.pty.create(PtySize(rows=24, cols=80))
    sandbox.pty.send_stdin(handle.pid, b"stty size; exit\n")
    text = []
    handle.wait(on_pty=lambda data: text.append(data))
    assert b"24 80" in b"".join(text)


@check("A4.2 A2.10 the asynchronous client raises TimeoutException at the end of the time")
async def asynchronous():
    one = await AsyncSandbox.create(timeout=60)
    try:
        assert (await one.commands.run("echo hi")).stdout == "hi\n"
        with raises(TimeoutException):
            await one.commands.run("sleep 100", timeout=1)
        again = await AsyncSandbox.connect(one.sandbox_id)
        seen = []
        watch = await again.files.watch_dir("/home/user", lambda event: seen.append(event.name))
        await one.files.write("f", "x")
        async with asyncio.timeout(30):
            while len(seen) < 3:
                await asyncio.sleep(0.05)
        await watch.stop()
    finally:
        await one.kill()


run_checks()
