"""Checks commands and terminals with the newest SDK: rulings A3 and A4."""

import hashlib
import os
import threading
import uuid

from checks import check, eventually, processes_with, raises, run_checks
from e2b import (
    AuthenticationException,
    CommandExitException,
    InvalidArgumentException,
    NotFoundException,
    PtySize,
    Sandbox,
    SandboxException,
    TimeoutException,
)

sandbox = Sandbox.create(timeout=600, envs={"WORD": "of the create", "BOTH": "create"})
run = sandbox.commands.run


def lines(command, **options):
    return run(command, **options).stdout.splitlines()


@check("A3.1 user is the default user with its own home")
def default_user():
    assert lines("whoami; echo $HOME; echo $USER; pwd; echo ~") == ["user", "/home/user", "user"] + ["/home/user"] * 2
    assert lines("id -un; id -gn; getent passwd user | cut -d: -f6 || true")[:2] == ["user", "user"]


@check("A3.1 root has uid 0 and its home")
def root():
    shown = lines("whoami; echo $HOME; echo $USER; pwd; id -u", user="root")
    assert shown == ["root", "/root", "root", "/root", "0"]


@check("A3.1 an unknown user is an AuthenticationException")
def unknown_user():
    with raises(AuthenticationException):
        run("true", user="stranger")


@check("A3.1 files belong to the user who made them")
def owners():
    run("touch mine; mkdir -p dir/sub; stat -c %U:%G mine dir dir/sub")
    assert lines("stat -c %U:%G mine dir dir/sub") == ["user:user"] * 3
    run("touch /tmp/roots", user="root")
    assert lines("stat -c %U /tmp/roots") == ["root"]
    assert sandbox.files.get_info("/tmp/roots").owner == "root"


@check("A3.2 user writes its home and /tmp, and root writes anywhere, privately to the sandbox")
def writes():
    run("echo a > ~/a && echo b > /tmp/b")
    name = uuid.uuid4().hex
    for directory in ("/workspace", "/etc/" + name, "/opt/" + name, "/root/" + name):
        run("mkdir -p %s && echo c > %s/c" % (directory, directory), user="root")
        assert lines("cat %s/c" % directory, user="root") == ["c"]
    other = Sandbox.create(timeout=60)
    try:
        assert other.commands.run("ls -d /etc/%s /opt/%s 2>/dev/null || true" % (name, name)).stdout == ""
    finally:
        other.kill()
    assert not os.path.exists("/etc/" + name)


@check("A3.2 sudo runs a command of user without a password")
def sudo():
    assert lines("sudo echo hi; sudo -n -- echo there; sudo -u root -E echo again") == ["hi", "there", "again"]


@check("A3.3 commands run in a login shell with the usual programs")
def programs():
    names = "bash sh python3 tar sed grep find ps stat sha256sum tr head seq nohup stty tty"
    assert lines("for each in %s; do command -v $each >/dev/null || echo $each; done" % names) == []
    assert lines("shopt -q login_shell && echo login") == ["login"]


@check("A3.4 variables of the create are in every process, and those of a command only in it")
def variables():
    assert lines("echo $WORD:$BOTH:$ONE", envs={"ONE": "1", "BOTH": "command"}) == ["of the create:command:1"]
    assert lines("echo $WORD:$BOTH:$ONE") == ["of the create:create:"]
    assert lines("echo $E2B_SANDBOX $E2B_SANDBOX_ID") == ["true " + sandbox.sandbox_id]
    assert lines("tr '\\0' '\\n' < /proc/$$/environ | grep ^WORD=") == ["WORD=of the create"]
    assert lines("tr '\\0' '\\n' < /proc/$$/environ | grep ^WORD=", user="root") == ["WORD=of the create"]


@check("A3.5 a relative directory counts from the home, and a missing one is an InvalidArgumentException")
def directories():
    run("mkdir -p here/inside")
    assert lines("pwd", cwd="here/inside") == ["/home/user/here/inside"]
    assert lines("pwd", cwd="/tmp") == ["/tmp"]
    with raises(InvalidArgumentException, text="does not exist"):
        run("pwd", cwd="/no/such/place")


@check("A4.1 pids are those that the sandbox sees")
def pids():
    handle = run("echo $$; sleep 100", background=True)
    for out, _, _ in handle:
        if out:
            assert int(out) == handle.pid
            break
    assert lines("kill -0 %d && echo alive" % handle.pid) == ["alive"]
    assert handle.pid in [each.pid for each in sandbox.commands.list()]
    assert sandbox.commands.kill(handle.pid) is True
    eventually(lambda: handle.pid not in [each.pid for each in sandbox.commands.list()])
    with raises(CommandExitException):
        run("kill -0 %d" % handle.pid)


@check("A4.2 a command is killed at the end of its time with TimeoutException")
def time_limit():
    word = uuid.uuid4().hex
    with raises(TimeoutException):
        run("sleep 100", timeout=1, envs={"LIMITED": word})
    eventually(lambda: processes_with(word) == [], seconds=30)


@check("A4.2 a command with time 0 has no limit")
def no_limit():
    handle = run("read x; echo $x", background=True, stdin=True, timeout=0)
    handle.send_stdin("go\n")
    assert handle.wait().stdout == "go\n"


@check("A4.3 a command goes on when its client leaves")
def leaves():
    handle = run("read x; echo $x > /tmp/left", background=True, stdin=True, timeout=0)
    handle.disconnect()
    assert handle.pid in [each.pid for each in sandbox.commands.list()]
    sandbox.commands.send_stdin(handle.pid, "later\n")
    eventually(lambda: sandbox.files.exists("/tmp/left") and sandbox.files.read("/tmp/left") == "later\n")
    eventually(lambda: handle.pid not in [each.pid for each in sandbox.commands.list()])


@check("A4.4 several listeners each get the whole output and the exit code")
def listeners():
    handle = run("read x; echo first; read x; echo second >&2; exit 3", background=True, stdin=True, timeout=0)
    others = [sandbox.commands.connect(handle.pid) for _ in range(3)]
    sandbox.commands.send_stdin(handle.pid, "\n")
    sandbox.commands.send_stdin(handle.pid, "\n")
    for each in [handle, *others]:
        assert each.pid == handle.pid
        with raises(CommandExitException) as seen:
            each.wait()
        assert (seen[0].exit_code, seen[0].stdout, seen[0].stderr) == (3, "first\n", "second\n")


@check("A4.4 a command that does not exist cannot be connected to or killed")
def gone():
    with raises(NotFoundException):
        sandbox.commands.connect(99999)
    assert sandbox.commands.kill(99999) is False
    with raises(NotFoundException):
        sandbox.commands.send_stdin(99999, "x")


@check("A4.4 kill of a command ends its stream although a child holds the pipes")
def kill_with_children():
    handle = run("sleep 30 & echo started; wait", background=True, timeout=0)
    assert handle.kill() is True
    with raises(CommandExitException) as seen:
        handle.wait()
    assert seen[0].exit_code == -1
    assert handle.kill() is False


@check("A4.4 a closed standard input ends cat, and closing twice is fine")
def close_stdin():
    handle = run("cat; until [ -e /tmp/closed ]; do sleep 0.05; done", background=True, stdin=True, timeout=30)
    handle.send_stdin("one\n")
    handle.send_stdin("ä\n")
    handle.close_stdin()
    handle.close_stdin()
    sandbox.files.write("/tmp/closed", "")
    assert handle.wait().stdout == "one\nä\n"
    quiet = run("sleep 100", background=True, timeout=0)
    with raises(SandboxException):
        quiet.send_stdin("x")
    quiet.kill()


@check("A4.4 stream_input writes every piece in order")
def stream_input():
    handle = run("head -c 20000 | sha256sum", background=True, stdin=True, timeout=30)
    sandbox.commands.stream_input(handle.pid, (b"%09d\n" % number for number in range(2000)))
    expected = hashlib.sha256(b"".join(b"%09d\n" % number for number in range(2000))).hexdigest()
    assert handle.wait().stdout.split()[0] == expected


@check("A4.5 5 MiB of output and 1 MiB of errors arrive whole")
def much_output():
    result = run("head -c 5242880 /dev/zero | tr '\\0' x; head -c 1048576 /dev/zero | tr '\\0' y >&2")
    assert (len(result.stdout), len(result.stderr)) == (5242880, 1048576)


@check("A4.5 100 000 lines arrive in order")
def many_lines():
    assert lines("seq 100000") == [str(number) for number in range(1, 100001)]


@check("A4.5 a command line of 100 KB runs")
def long_command():
    assert run("echo %s | head -c 100001 | wc -c" % ("x" * 100000)).stdout.strip() == "100001"


@check("A4.5 50 commands run at once")
def many_commands():
    results = []

    def one(number):
        results.append(run("sleep 0.2; echo %d" % number).stdout)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == sorted("%d\n" % number for number in range(50))


@check("A4.5 bytes that are no UTF-8 pass, and split characters are joined")
def odd_bytes():
    assert run("printf '\\xff\\xfe'").stdout == "\ufffd\ufffd"
    assert run("printf '\\xe2\\x82'; sleep 0.2; printf '\\xac'").stdout == "€"


@check("A4.6 exit codes: 0, n, -1 by a signal, 127 for an unknown program")
def exit_codes():
    assert run("true").exit_code == 0
    for command, code in (("exit 7", 7), ("kill -9 $$", -1), ("no-such-program", 127)):
        with raises(CommandExitException) as seen:
            run(command)
        assert seen[0].exit_code == code
    with raises(CommandExitException) as seen:
        run("echo out; echo err >&2; exit 2")
    assert (seen[0].stdout, seen[0].stderr) == ("out\n", "err\n")


@check("A4.6 output arrives while the command runs")
def streams():
    handle = run("echo early; read x", background=True, stdin=True, timeout=30)
    first = next(out for out, _, _ in handle if out)
    assert first == "early\n"
    handle.send_stdin("\n")
    assert handle.wait().stdout == "early\n"


class Terminal:
    """A terminal whose output a thread collects."""

    def __init__(self, **options):
        self.handle = sandbox.pty.create(PtySize(rows=24, cols=80), **{"timeout": 60, **options})
        self.text = ""
        self.error = None
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self):
        try:
            self.result = self.handle.wait(on_pty=self._add)
        except Exception as error:
            self.error = error

    def _add(self, data):
        self.text += data.decode("utf-8", "replace")

    def type(self, text):
        sandbox.pty.send_stdin(self.handle.pid, text.encode())

    def until(self, text):
        eventually(lambda: text in self.text)


@check("A4.7 a terminal has its size, user, directory and variables, and can be resized")
def terminal():
    run("mkdir -p place")
    one = Terminal(cwd="/home/user/place", envs={"MINE": "word"})
    one.type("stty size; tty; echo $TERM:$MINE:$(whoami):$(pwd)\n")
    one.until("24 80")
    one.until("xterm-256color:word:user:/home/user/place")
    sandbox.pty.resize(one.handle.pid, PtySize(rows=30, cols=100))
    one.type("stty size\n")
    one.until("30 100")
    one.type("exit 5\n")
    one.thread.join(30)
    assert isinstance(one.error, CommandExitException) and one.error.exit_code == 5


@check("A4.7 Ctrl-C interrupts a command of a terminal, and root has terminals too")
def interrupt():
    one = Terminal(user="root")
    # The echo of the line has `be""gun`: only the running command prints the word.
    one.type("sh -c 'echo be\"\"gun; exec sleep 100'\n")
    one.until("begun")
    one.type("\x03")
    one.type("echo uid=$(id -u)\n")
    one.until("uid=0")
    assert sandbox.pty.kill(one.handle.pid) is True
    one.thread.join(30)
    assert not one.thread.is_alive()


@check("A4.7 a terminal goes on when its client leaves, and connect finds it")
def reconnect():
    handle = sandbox.pty.create(PtySize(rows=24, cols=80), timeout=0)
    sandbox.pty.send_stdin(handle.pid, b"WORD2=kept\n")
    handle.disconnect()
    again = sandbox.pty.connect(handle.pid)
    sandbox.pty.send_stdin(handle.pid, b"echo =$WORD2=; exit\n")
    text = []
    again.wait(on_pty=lambda data: text.append(data.decode()))
    assert "=kept=" in "".join(text)


@check("A4.7 input of a pipe to a terminal is an error")
def wrong_input():
    one = Terminal()
    with raises(SandboxException):
        sandbox.commands.send_stdin(one.handle.pid, "x")
    sandbox.pty.kill(one.handle.pid)


@check("A4.4 the list of commands has their command line, directory and variables")
def lists():
    handle = run("sleep 100", background=True, cwd="/tmp", envs={"LISTED": "1"})
    one = next(each for each in sandbox.commands.list() if each.pid == handle.pid)
    assert one.cmd == "/bin/bash" and one.args == ["-l", "-c", "sleep 100"]
    assert one.cwd == "/tmp" and one.envs.get("LISTED") == "1"
    handle.kill()


run_checks()
