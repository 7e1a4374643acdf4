"""Checks sandboxes of images of a Docker daemon with the newest SDK.

The environment has the names of two images, one of Debian with Python and one without Bash.
"""

import os
import subprocess
import urllib.request
import uuid
from concurrent.futures import ThreadPoolExecutor

from checks import ask, check, eventually, raises, run_checks
from e2b import AuthenticationException, PtySize, Sandbox, SandboxException, SandboxQuery
from e2b_code_interpreter import Sandbox as Interpreter

DEBIAN, PLAIN = os.environ["DEBIAN_IMAGE"], os.environ["PLAIN_IMAGE"]
word = uuid.uuid4().hex
sandbox = Sandbox.create(DEBIAN, timeout=900, envs={"WORD": word}, metadata={"word": word})
run = sandbox.commands.run


def lines(command, **options):
    return run(command, **options).stdout.splitlines()


def run_of(other, command):
    return other.commands.run(command).stdout.strip()


def containers():
    """Returns the names of all containers of the daemon."""
    shown = subprocess.run(["docker", "ps", "--all", "--format", "{{.Names}}"], stdout=subprocess.PIPE, check=True)
    return set(shown.stdout.decode().split())


def container_of(sandbox_id):
    """Returns the container of a sandbox, or None."""
    return next((name for name in containers() if name.replace("-", "").endswith(sandbox_id)), None)


@check("commands run in the image as user with its own home, and as root")
def users():
    assert lines("whoami; echo $HOME; pwd; echo $WORD; cat /etc/debian_version")[:4] == ["user", "/home/user", "/home/user", word]
    assert lines("whoami; echo $HOME; pwd; id -u", user="root") == ["root", "/root", "/root", "0"]
    assert lines("sudo whoami; sudo -u root true; echo $?") == ["user", "0"]
    with raises(AuthenticationException):
        run("true", user="no-such-user")


@check("files have the owner that was named, and root writes everywhere inside")
def owners():
    sandbox.files.write("a/b.txt", "of user")
    sandbox.files.write("/etc/of-root", "of root", user="root")
    assert lines("stat -c %U:%G a a/b.txt /etc/of-root; cat a/b.txt") == ["user:user"] * 2 + ["root:root", "of user"]
    assert sandbox.files.get_info("a/b.txt").owner == "user"
    run("echo kept > /home/user/of-user; chown user:user /home/user/of-user", user="root")
    assert run("echo more >> of-user; cat of-user").stdout == "kept\nmore\n"


@check("a login shell keeps the PATH of the image and of the command")
def path():
    assert "/opt/own/bin" in run("echo $PATH", envs={"PATH": "/opt/own/bin:/usr/bin:/bin"}).stdout.split(":")[0]
    assert "/usr/local/bin" in run("echo $PATH").stdout


@check("a watched directory reports the changes of commands")
def watch():
    sandbox.files.make_dir("watched")
    handle = sandbox.files.watch_dir("watched")
    run("echo hi > watched/new.txt")
    seen = []
    eventually(lambda: seen.extend((each.name, each.type.value) for each in handle.get_new_events()) or ("new.txt", "write") in seen)
    handle.stop()


@check("a terminal has its size, takes input and reports its exit code")
def terminal():
    handle = sandbox.pty.create(PtySize(rows=24, cols=80), timeout=60)
    sandbox.pty.send_stdin(handle.pid, b"stty size; exit 4\n")
    said = bytearray()
    try:
        handle.wait(on_pty=said.extend)
    except Exception as error:
        assert error.exit_code == 4
    assert b"24 80" in said, said


@check("a port of a program inside is reachable")
def port():
    server = run("python3 -m http.server 8000 --directory /home/user/a", background=True, timeout=0)
    headers = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": "8000"}

    def page():
        request = urllib.request.Request(os.environ["E2B_SANDBOX_URL"] + "/b.txt", headers=headers)
        with urllib.request.urlopen(request) as answer:
            return answer.read()

    def serves():
        try:
            return page() == b"of user"
        except OSError:
            return False

    eventually(serves)
    assert server.kill()


@check("a paused sandbox keeps its processes")
def pause():
    handle = run("sleep 1000", background=True, timeout=0)
    assert sandbox.pause() and not sandbox.is_running()
    assert sandbox.get_info().state.value == "paused"
    sandbox.connect()
    assert sandbox.is_running() and handle.pid in [each.pid for each in sandbox.commands.list()]
    assert sandbox.commands.kill(handle.pid)


@check("lists name the image, and find sandboxes by it")
def lists():
    assert sandbox.get_info().template_id == DEBIAN and sandbox.get_info().name == DEBIAN
    found = Sandbox.list(query=SandboxQuery(metadata={"word": word})).next_items()
    assert [each.sandbox_id for each in found] == [sandbox.sandbox_id]
    query = urllib.request.Request(
        os.environ["E2B_API_URL"] + "/v2/sandboxes?template=" + urllib.request.quote(DEBIAN, safe=""),
        headers={"X-API-Key": os.environ["E2B_API_KEY"]},
    )
    with urllib.request.urlopen(query) as answer:
        assert sandbox.sandbox_id.encode() in answer.read()


@check("an image without Bash runs commands with its own shell")
def plain():
    with Sandbox.create(PLAIN, timeout=120) as other:
        assert other.commands.run("echo $0; id -un; pwd").stdout == "/bin/sh\nuser\n/home/user\n"
        other.files.write("x", "1")
        assert other.commands.run("cat x").stdout == "1"


@check("cells run with the Python of the image, also when two begin at once, and keep their names")
def cells():
    with Interpreter.create(DEBIAN, timeout=300) as other:
        assert "python3" not in run_of(other, "ps -ef 2>/dev/null || cat /proc/[0-9]*/comm")
        with ThreadPoolExecutor(2) as pool:
            assert {each.text for each in pool.map(lambda _: other.run_code("6 * 7"), range(2))} == {"42"}
        other.run_code("import os, sys; x = os.getuid()")
        said = other.run_code("print(x, os.getcwd(), os.path.realpath(sys.executable))").logs.stdout
        assert "".join(said).split() == run_of(other, "id -u; pwd; realpath $(command -v python3)").split(), said
        assert other.run_code("1 / 0").error.name == "ZeroDivisionError"
        url = "%s/api/agent/%s/code" % (os.environ["E2B_API_URL"].rsplit("/", 1)[0], uuid.UUID(other.sandbox_id))
        with urllib.request.urlopen(urllib.request.Request(url, b'{"code": "x - x + 17"}', method="POST")) as answer:
            assert b'"17"' in answer.read()
        assert ask("kill -9 and start") == "done"
        eventually(other.is_running)
        assert other.run_code("x - x + 18").text == "18"


@check("a cell in an image without Python is refused with the reason")
def no_cells():
    with Interpreter.create(PLAIN, timeout=120) as other:
        with raises(Exception, text="the image has no python3"):
            other.run_code("1")


@check("a sandbox ends at its time, and leaves no container")
def expiry():
    other = Sandbox.create(DEBIAN, timeout=600)
    assert container_of(other.sandbox_id)
    other.set_timeout(1)
    eventually(lambda: not other.is_running())
    eventually(lambda: container_of(other.sandbox_id) is None)


@check("an unknown image is refused with the way to get it, and leaves no container")
def unknown():
    before = containers()
    for name in ("rookery-test/no-such-image:1", "no-such-image", "Not An Image"):
        with raises(SandboxException, text="docker pull " + name):
            Sandbox.create(name)
    assert containers() - before == set()


@check("processes, files and the token survive a killed service")
def survives():
    handle = run("read x; echo $x > said", background=True, stdin=True, timeout=0)
    assert ask("kill -9 and start") == "done"
    eventually(sandbox.is_running)
    assert handle.pid in [each.pid for each in sandbox.commands.list()]
    sandbox.commands.send_stdin(handle.pid, "still here\n")
    eventually(lambda: sandbox.files.exists("said") and sandbox.files.read("said") == "still here\n")


@check("a killed sandbox leaves no container")
def killed():
    assert container_of(sandbox.sandbox_id) and sandbox.kill() is True and sandbox.kill() is False
    eventually(lambda: container_of(sandbox.sandbox_id) is None)


run_checks()
