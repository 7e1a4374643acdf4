"""Checks sandboxes as such with the newest SDK: life, lists, pause, metrics."""

import re
import threading
import time
import uuid
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone

from checks import check, eventually, processes_with, raises, run_checks
from e2b import (
    AuthenticationException,
    Sandbox,
    SandboxException,
    SandboxNotFoundException,
    SandboxQuery,
    SandboxState,
    TimeoutException,
)


@contextmanager
def made(**options):
    """Yields a new sandbox and kills it afterwards."""
    sandbox = Sandbox.create(**{"timeout": 120, **options})
    try:
        yield sandbox
    finally:
        sandbox.kill()


def found(query=None, **options):
    """Returns the ids of all pages of a list."""
    paginator = Sandbox.list(query=query, **options)
    ids = []
    while paginator.has_next:
        ids += [each.sandbox_id for each in paginator.next_items()]
    return ids


def now():
    return datetime.now(timezone.utc)


@check("A2.3 a sandbox ends at its time, never before, without a trace", aside=True)
def ends():
    word = uuid.uuid4().hex
    sandbox = Sandbox.create(timeout=8, envs={"WORD": word})
    sandbox.commands.run("(setsid sleep 100 &) ; sleep 100", background=True)
    end_at = sandbox.get_info().end_at
    eventually(lambda: not sandbox.is_running())
    assert now() >= end_at
    with raises(SandboxNotFoundException):
        sandbox.get_info()
    with raises(SandboxNotFoundException):
        Sandbox.connect(sandbox.sandbox_id)
    with raises(SandboxNotFoundException):
        sandbox.set_timeout(30)
    assert sandbox.kill() is False
    assert sandbox.sandbox_id not in found()
    eventually(lambda: processes_with(word) == [])


@check("A2.6 a sandbox with on_timeout pause is paused, its time stands still, and connect resumes it", aside=True)
def pauses_at_the_end():
    with made(timeout=8, lifecycle={"on_timeout": "pause"}) as sandbox:
        sandbox.files.write("kept", "here")
        eventually(lambda: sandbox.get_info().state == SandboxState.PAUSED)
        assert not sandbox.is_running()
        again = Sandbox.connect(sandbox.sandbox_id, timeout=60)
        assert again.get_info().state == SandboxState.RUNNING
        assert again.get_info().end_at > now() + timedelta(seconds=50)
        assert again.files.read("kept") == "here"


@check("A2.8 metrics have a first sample soon, with all fields", aside=True)
def metrics():
    with made() as sandbox:
        first = eventually(sandbox.get_metrics, seconds=60, every=0.5)[0]
        assert first.cpu_count > 0 and first.mem_total > 0 and first.disk_total > 0
        assert first.cpu_used_pct >= 0 and first.mem_used >= 0 and first.disk_used >= 0
        assert abs(now() - first.timestamp) < timedelta(minutes=1)


@check("A1.1 A2.1 A2.2 a create makes a sandbox of base with an id of letters and digits")
def creates():
    with made() as sandbox:
        assert re.fullmatch("[a-z0-9]+", sandbox.sandbox_id)
        info = sandbox.get_info()
        assert info.sandbox_id == sandbox.sandbox_id
        assert info.name == "base"
        assert info.state == SandboxState.RUNNING
        assert tuple(int(part) for part in info.envd_version.split(".")) >= (0, 6, 4)
        assert info.cpu_count >= 1 and info.memory_mb >= 1
        assert timedelta(seconds=110) < info.end_at - info.started_at <= timedelta(seconds=121)
        assert sandbox.is_running()
        assert sandbox.sandbox_id in found()
        assert sandbox.kill() is True
        assert sandbox.kill() is False
        assert not sandbox.is_running()


@check("A1.4 a key that is not well-formed is refused")
def refuses_keys():
    with raises(AuthenticationException):
        Sandbox.create(api_key="e2b_12", validate_api_key=False)


@check("A2.1 an unknown template is refused and leaves nothing")
def unknown_template():
    before = set(found())
    with raises(SandboxException):
        Sandbox.create("no-such-template", timeout=30)
    assert not set(found()) - before
    assert found(SandboxQuery(template="no-such-template")) == []


@check("A2.3 a timeout of 0 is refused, and the default is 300 s")
def timeouts():
    for timeout in (0, -1):
        with raises(SandboxException):
            Sandbox.create(timeout=timeout)
    sandbox = Sandbox.create()
    try:
        info = sandbox.get_info()
        assert timedelta(seconds=295) < info.end_at - info.started_at < timedelta(seconds=305)
    finally:
        sandbox.kill()


@check("A2.3 set_timeout counts from now both ways, and connect only lengthens")
def changes_timeouts():
    with made(timeout=100) as sandbox:

        def remaining():
            return (sandbox.get_info().end_at - now()).total_seconds()

        sandbox.set_timeout(500)
        assert 480 < remaining() <= 501
        sandbox.set_timeout(50)
        assert 30 < remaining() <= 51
        Sandbox.connect(sandbox.sandbox_id, timeout=10)
        assert 30 < remaining() <= 51
        Sandbox.connect(sandbox.sandbox_id, timeout=200)
        assert 180 < remaining() <= 201


@check("A2.4 the list finds sandboxes by metadata with odd characters, all pairs together")
def finds_by_metadata():
    odd = {"a": "b c", "k": "v=1&2", "ü/%": "100% ✓ +", "one": uuid.uuid4().hex}
    with made(metadata=odd) as sandbox, made(metadata={"a": "b c"}) as other:
        assert sandbox.get_info().metadata == odd
        assert found(SandboxQuery(metadata=odd)) == [sandbox.sandbox_id]
        assert {sandbox.sandbox_id, other.sandbox_id} <= set(found(SandboxQuery(metadata={"a": "b c"})))
        assert found(SandboxQuery(metadata={**odd, "a": "x"})) == []


@check("A2.4 the list finds sandboxes by state, template and start, in order and in pages")
def lists():
    group = {"group": uuid.uuid4().hex}
    with made(metadata=group) as one, made(metadata=group) as two, made(metadata=group) as three:
        ids = [one.sandbox_id, two.sandbox_id, three.sandbox_id]
        assert found(SandboxQuery(metadata=group)) == ids[::-1]
        assert found(SandboxQuery(metadata=group), order="asc") == ids
        assert found(SandboxQuery(metadata=group), limit=2) == ids[::-1]
        paginator = Sandbox.list(query=SandboxQuery(metadata=group), limit=3)
        assert len(paginator.next_items()) == 3 and not paginator.has_next
        second = two.get_info()
        assert found(SandboxQuery(metadata=group, started_after=second.started_at)) == ids[:0:-1]
        assert found(SandboxQuery(metadata=group, template=second.template_id)) == ids[::-1]
        assert found(SandboxQuery(metadata=group, template="base")) == ids[::-1]
        assert found(SandboxQuery(metadata=group, template="code-interpreter-v1")) == []
        two.pause()
        assert found(SandboxQuery(metadata=group)) == ids[::-1]
        assert found(SandboxQuery(metadata=group, state=[SandboxState.PAUSED])) == [two.sandbox_id]
        assert found(SandboxQuery(metadata=group, state=[SandboxState.RUNNING])) == [three.sandbox_id, one.sandbox_id]


@check("A2.5 creates with one idempotency key make one sandbox")
def idempotent():
    key = uuid.uuid4().hex
    group = {"group": key}
    with made(metadata=group, idempotency_key=key) as sandbox:
        assert Sandbox.create(timeout=120, metadata=group, idempotency_key=key).sandbox_id == sandbox.sandbox_id
        with raises(SandboxException):
            Sandbox.create(timeout=120, metadata={"other": "body"}, idempotency_key=key)
    key, results = uuid.uuid4().hex, []

    def create():
        try:
            made_here = Sandbox.create(timeout=120, metadata={"group": key}, idempotency_key=key, retries=0)
            results.append(made_here.sandbox_id)
        except SandboxException as error:
            assert error.status_code == 409
            results.append(None)

    threads = [threading.Thread(target=create) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ids = set(results) - {None}
    assert len(results) == 4 and len(ids) == 1
    assert found(SandboxQuery(metadata={"group": key})) == list(ids)
    Sandbox.kill(ids.pop())


COUNTER = "i=0; while :; do i=$((i+1)); echo $i > /tmp/count; sleep 0.05; done"


@check("A2.7 pause keeps processes and files, and connect resumes them with the same token")
def pause():
    with made(timeout=100) as sandbox:
        headers = dict(sandbox.connection_config.sandbox_headers)
        handle = sandbox.commands.run(COUNTER, background=True, timeout=0)
        eventually(lambda: sandbox.files.exists("/tmp/count"))
        assert sandbox.pause() is True
        assert sandbox.get_info().state == SandboxState.PAUSED
        assert not sandbox.is_running()
        with raises(SandboxException):
            sandbox.commands.run("true")
        assert sandbox.pause() is False
        again = Sandbox.connect(sandbox.sandbox_id, timeout=100)
        assert again.connection_config.sandbox_headers == headers
        assert again.get_info().state == SandboxState.RUNNING
        assert handle.pid in [each.pid for each in again.commands.list()]
        count = int(again.files.read("/tmp/count") or 0)
        eventually(lambda: int(again.files.read("/tmp/count") or 0) > count)


@check("A2.7 A2.10 a paused sandbox can be killed, and nothing of it remains")
def kill_paused():
    word = uuid.uuid4().hex
    with made(envs={"WORD": word}) as sandbox:
        sandbox.commands.run("sleep 100", background=True)
        sandbox.pause()
        assert processes_with(word)
        assert sandbox.kill() is True
        with raises(SandboxNotFoundException):
            sandbox.pause()
        eventually(lambda: processes_with(word) == [])


@check("A2.9 two sandboxes have separate files, processes and loopback networks")
def separate():
    server = "python3 -m http.server 3456 --bind 127.0.0.1"
    with made() as one, made() as two:
        for sandbox, name in ((one, "one"), (two, "two")):
            sandbox.files.write("/tmp/name", name)
            sandbox.files.write("name", name)
            sandbox.commands.run(server, background=True)
            sandbox.commands.run("exec -a only-%s sleep 1000" % name, background=True)
        for sandbox, name in ((one, "one"), (two, "two")):
            assert sandbox.files.read("/tmp/name") == name and sandbox.files.read("name") == name
            eventually(lambda: "name" in sandbox.commands.run(GET).stdout)
            eventually(lambda: sandbox.commands.run(SLEEPERS).stdout == "only-%s\n" % name)


SLEEPERS = "ps ax | grep -o '[o]nly-[a-z]*' || true"
GET = "python3 -c 'import urllib.request as r; print(r.urlopen(\"http://127.0.0.1:3456\").read())' || true"


@check("A2.9 ten creates at once succeed")
def many():
    results = []

    def create():
        sandbox = Sandbox.create(timeout=60)
        results.append(sandbox.commands.run("echo here").stdout)
        sandbox.kill()

    threads = [threading.Thread(target=create) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == ["here\n"] * 10


@check("A2.10 kill ends daemons and breaks waiting commands with TimeoutException")
def kill():
    word = uuid.uuid4().hex
    with made(envs={"WORD": word}) as sandbox:
        sandbox.commands.run("setsid nohup sleep 1000 >/dev/null 2>&1 &")
        handle = sandbox.commands.run("sleep 1000", background=True, timeout=0)
        assert processes_with(word)
        seen = []

        def wait():
            try:
                handle.wait()
            except Exception as error:
                seen.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        sandbox.kill()
        thread.join()
        assert [isinstance(error, TimeoutException) for error in seen] == [True]
        eventually(lambda: processes_with(word) == [])


@check("A2.4 startedAt does not change over pause and connect")
def started_at():
    with made() as sandbox:
        before = sandbox.get_info().started_at
        assert abs(now() - before) < timedelta(seconds=30)
        sandbox.pause()
        sandbox.connect()
        assert sandbox.get_info().started_at == before


run_checks()
