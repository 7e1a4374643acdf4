"""Checks that sandboxes outlive a killed service with the same SDK objects: ruling A2.11."""

import os
import urllib.request
import uuid

from checks import ask, check, eventually, processes_with, raises, run_checks
from e2b import Sandbox, SandboxNotFoundException, SandboxState
from e2b_code_interpreter import Sandbox as Interpreter

COUNT = 20
SERVER = "python3 -m http.server 8000 --directory /home/user"
# Writes a line ten times a second until it reads one.
COMMAND = "while :; do echo >> /tmp/count; sleep 0.1; done & read x; kill $!; echo $x > /tmp/x"
word = uuid.uuid4().hex
state = {}


def port(sandbox):
    """Returns the page of the server in a sandbox."""
    headers = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": "8000"}
    request = urllib.request.Request(os.environ["E2B_SANDBOX_URL"] + "/name", headers=headers)
    with urllib.request.urlopen(request) as answer:
        return answer.read().decode()


def count(sandbox):
    """Returns the number of lines that the command of a sandbox has written."""
    return sandbox.files.exists("/tmp/count") and sandbox.files.read("/tmp/count").count("\n")


def serves(sandbox, text):
    try:
        return port(sandbox) == text
    except OSError:
        return False


@check("A2.11 20 sandboxes run, with commands, servers, names of cells, a paused one and signed URLs")
def prepare():
    sandboxes = [Sandbox.create(timeout=300, envs={"WORD": word}) for _ in range(COUNT)]
    for number, sandbox in enumerate(sandboxes):
        sandbox.files.write("name", "sandbox %d" % number)
        state[sandbox.sandbox_id] = sandbox.commands.run(COMMAND, background=True, stdin=True, timeout=0)
    state["counts"] = [eventually(lambda: count(each)) for each in sandboxes]
    state["server"] = sandboxes[0].commands.run(SERVER, background=True, timeout=0)
    eventually(lambda: serves(sandboxes[0], "sandbox 0"))
    interpreter = Interpreter.create(timeout=300, envs={"WORD": word})
    interpreter.run_code("kept = 'over the kill'")
    paused = Sandbox.create(timeout=300, envs={"WORD": word})
    paused.pause()
    short = Sandbox.create(timeout=3600, envs={"WORD": word})
    state.update(
        sandboxes=sandboxes,
        interpreter=interpreter,
        paused=paused,
        short=short,
        url=sandboxes[1].download_url("name"),
        infos=[each.get_info() for each in sandboxes],
    )
    short.set_timeout(8)


@check("A2.11 after kill -9 and a new start each sandbox answers")
def answers():
    assert ask("kill -9 and start") == "done"
    for number, sandbox in enumerate(state["sandboxes"]):
        assert eventually(sandbox.is_running)
        assert sandbox.files.read("name") == "sandbox %d" % number


@check("A2.3 A2.11 startedAt and endAt are unchanged")
def times():
    for sandbox, before in zip(state["sandboxes"], state["infos"]):
        info = sandbox.get_info()
        assert (info.started_at, info.end_at) == (before.started_at, before.end_at)


@check("A2.11 commands of before go on, are listed, take input, report their end, are connected to and killed")
def commands():
    for sandbox, before in zip(state["sandboxes"], state["counts"]):
        pid = state[sandbox.sandbox_id].pid
        assert pid in [each.pid for each in sandbox.commands.list()]
        now = count(sandbox)
        assert now >= before
        eventually(lambda: count(sandbox) > now)
        handle = sandbox.commands.connect(pid)
        sandbox.commands.send_stdin(pid, "after\n")
        assert handle.wait().exit_code == 0
        assert sandbox.files.read("/tmp/x") == "after\n"
    first, server = state["sandboxes"][0], state["server"].pid
    handle = first.commands.connect(server)
    assert handle.pid == server
    assert first.commands.kill(server) is True


@check("A2.11 ports, signed URLs and names of cells go on")
def others():
    second = state["sandboxes"][1]
    second.commands.run(SERVER, background=True, timeout=0)
    eventually(lambda: serves(second, "sandbox 1"))
    with urllib.request.urlopen(state["url"]) as answer:
        assert answer.read() == b"sandbox 1"
    assert state["interpreter"].run_code("kept").text == "over the kill"


@check("A2.11 a sandbox of before is paused and killed, and its time ends it")
def ends():
    third = state["sandboxes"][2]
    third.pause()
    assert third.get_info().state == SandboxState.PAUSED
    third.connect()
    assert third.commands.run("echo on").stdout == "on\n"
    eventually(lambda: not state["short"].is_running())
    with raises(SandboxNotFoundException):
        state["short"].get_info()
    for sandbox in [*state["sandboxes"], state["paused"]]:
        sandbox.kill()
    state["interpreter"].kill()
    eventually(lambda: processes_with(word) == [])


run_checks()
