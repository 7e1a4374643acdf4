"""Checks the E2B clients of agent frameworks: the OpenAI Agents SDK and LangChain's Deep Agents."""

import io
from pathlib import Path

import e2b
from agents.extensions.sandbox.e2b import E2BSandboxClient, E2BSandboxClientOptions
from checks import check, run_checks
from langchain_e2b import AsyncE2BSandbox, E2BSandbox


@check("A7 the OpenAI Agents SDK runs commands, files and terminals, and resumes its session")
async def openai_agents():
    client = E2BSandboxClient()
    options = E2BSandboxClientOptions(sandbox_type="e2b", timeout=120, envs={"WORD": "x"}, pause_on_exit=True)
    session = await client.create(options=options)
    await session.start()
    assert (await session.exec("pwd; echo $WORD")).stdout == b"/workspace\nx\n"
    await session.write(Path("notes/one.txt"), io.BytesIO(b"text"))
    assert (await session.read(Path("notes/one.txt"))).read() == b"text"
    assert [Path(each.path).name for each in await session.ls("notes")] == ["one.txt"]
    failed = await session.exec("exit 3")
    assert failed.exit_code == 3
    started = await session.pty_exec_start("sleep 100", tty=True, yield_time_s=0.2)
    assert started.exit_code is None
    await session.pty_terminate_all()
    await session.stop()
    await session.shutdown()
    again = await client.resume(session.state)
    await again.start()
    assert (await again.read(Path("notes/one.txt"))).read() == b"text"
    await e2b.AsyncSandbox.kill(again.state.sandbox_id)


@check("A7 the OpenAI Agents SDK uses the code interpreter template")
async def openai_interpreter():
    client = E2BSandboxClient()
    session = await client.create(options=E2BSandboxClientOptions(sandbox_type="e2b_code_interpreter", timeout=120))
    await session.start()
    assert (await session.exec("python3 -c 'print(6 * 7)'")).stdout == b"42\n"
    await session.shutdown()


@check("A7 Deep Agents write, read, edit, search and execute")
def deep_agents():
    sandbox = e2b.Sandbox.create(timeout=120)
    backend = E2BSandbox(sandbox=sandbox)
    assert backend.write("/home/user/app.py", "print('one')\n").error is None
    assert backend.edit("/home/user/app.py", "one", "two").error is None
    ran = backend.execute("python3 app.py")
    assert (ran.output, ran.exit_code) == ("two\n", 0)
    assert "two" in str(backend.read("/home/user/app.py"))
    assert "app.py" in str(backend.ls("/home/user"))
    assert "app.py" in str(backend.grep("two", "/home/user"))
    uploaded = backend.upload_files([("/home/user/data", b"\x00\x01")])
    assert uploaded[0].error is None
    assert backend.download_files(["/home/user/data"])[0].content == b"\x00\x01"
    assert backend.execute("sleep 10", timeout=1).exit_code == 124
    sandbox.kill()


@check("A7 asynchronous Deep Agents execute and transfer files")
async def async_deep_agents():
    sandbox = await e2b.AsyncSandbox.create(timeout=120)
    backend = AsyncE2BSandbox(sandbox=sandbox)
    assert (await backend.aexecute("echo hi")).output == "hi\n"
    assert (await backend.awrite("/home/user/a", "x")).error is None
    assert (await backend.adownload_files(["/home/user/a"]))[0].content == b"x"
    await sandbox.kill()


run_checks()
