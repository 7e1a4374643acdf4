"""Tests both clients against the running service at `ROOKERY_ADDRESS`.

The proxy at `ROOKERY_LOSSY_ADDRESS` loses the answer of a create.
"""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rookery import AsyncRookery, CommandFailed, Conflict, ExecutionFailed, NotFound, Rookery, RookeryError, Timeout, Unavailable

DECORATED = """
import sys
from typing import TypedDict

import rookery

class Order(TypedDict):
    count: int

RUNTIME = sys.argv[1] if len(sys.argv) > 1 else None

@rookery.function(runtime=RUNTIME, timeout=30)
def square(number):
    return {"square": number ** 2, "program": __name__}

@rookery.function(name="demo@price", runtime=RUNTIME, input_schema="hints", validate_input=True)
async def price(event: Order, context):
    yield 5 * event["count"]

if __name__ == "__main__":
    print(square(2))
    print(square.remote(3))
    print([each["square"] for each in square.map([1, 2, 3])])
    print(square.spawn(4).result(timeout=300)["square"])
    print(list(price.stream({"count": 2})))
    try:
        price.remote({"count": "2"})
    except rookery.InvalidRequest as error:
        print(error)
"""
HANDLER = """
import time

calls = 0

def handle(event, context):
    global calls
    calls += 1
    if "fail" in event:
        raise ValueError(event["fail"])
    if "sleep" in event:
        time.sleep(event["sleep"])
    if "words" in event:
        stream = context.get_stream()
        for word in event["words"]:
            stream.write(word)
        return "end"
    print("called by", event["name"], flush=True)
    return {"text": "Hello, " + event["name"], "calls": calls}
"""
#: Newest Python runtime of the service.
RUNTIME = os.environ["ROOKERY_TEST_RUNTIME"]


class WithCode(unittest.TestCase):
    def setUp(self) -> None:
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.code = Path(scratch.name) / "app"
        self.code.mkdir()
        (self.code / "handler.py").write_text(HANDLER)
        (self.code / "input").write_text("from the directory\n")


class Waiting(WithCode):
    def setUp(self) -> None:
        super().setUp()
        self.rookery = Rookery()
        self.addCleanup(self.rookery.close)

    def test_an_agent_from_a_directory(self) -> None:
        self.rookery.secrets.set("python-word", "hidden")
        agent = self.rookery.agents.create(self.code, runtime=RUNTIME, env={"WORD": {"secret": "python-word"}})
        self.assertRegex(agent.name, "^app-")
        self.assertEqual(agent.record["status"], "RUNNING")
        self.assertEqual(agent.invoke({"name": "Ada"})["text"], "Hello, Ada")

        done = agent.exec("ls /code; echo $WORD")
        self.assertEqual((done["returncode"], done["stdout"]), (0, "handler.py\ninput\nhidden\n"))
        self.assertEqual(agent.exec("echo checked").check().stdout, "checked\n")
        with self.assertRaisesRegex(CommandFailed, "exit code 3: went wrong$") as failed:
            agent.exec("echo went wrong >&2; exit 3").check()
        self.assertEqual((failed.exception.returncode, failed.exception.stderr), (3, "went wrong\n"))
        agent.files.make_directory("/tmp/in/side")
        agent.files.write("/tmp/in/side/data", b"\x01\xff", mode="600")
        self.assertEqual(agent.files.read("/tmp/in/side/data"), b"\x01\xff")
        self.assertEqual(b"".join(agent.files.read_chunks("/tmp/in/side/data")), b"\x01\xff")
        found = agent.files.list("/tmp/in", recursive=True)
        self.assertEqual([entry["name"] for entry in found], ["side", "data"])

        with agent.terminal(["sh", "-c", 'cat; echo "$WHERE" >&2; exit 3'], tty=False, env={"WHERE": "err"}) as pipes:
            pipes.write("typed")
            pipes.end_input()
            written = [(piece.stream, piece.data) for piece in pipes]
            self.assertEqual(sorted(written), [("stderr", b"err\n"), ("stdout", b"typed")])
            self.assertEqual(pipes.returncode, 3)
        with self.assertRaisesRegex(RookeryError, "the terminal is closed"):
            pipes.write("more")

        self.assertIn("called by Ada", next(line for line in agent.follow() if "called by" in line))
        agent.restart()
        self.assertEqual(agent.invoke({"name": "Ada"})["calls"], 1)
        self.assertEqual(self.rookery.agents.get(agent.name).id, agent.id)
        agent.delete()
        with self.assertRaises(NotFound) as gone:
            agent.refresh()
        self.assertEqual((gone.exception.status, gone.exception.code), (404, 404))

    def test_decorated_functions_of_a_program(self) -> None:
        program = self.code / "decorated.py"
        program.write_text(DECORATED)
        revisions = []
        for _ in ("registered", "unchanged"):
            ran = subprocess.run([sys.executable, "-B", program, RUNTIME], capture_output=True, text=True)
            expected = [
                *("{'square': 4, 'program': '__main__'}", "{'square': 9, 'program': 'decorated'}", "[1, 4, 9]", "16"),
                "['10']",
                'the event does not fit the inputSchema of the function: event.count: must be an integer, got "2"',
            ]
            self.assertEqual((ran.stdout.splitlines(), ran.stderr), (expected, ""))
            function = self.rookery.functions.get("square")
            revisions.append(function.record["revisionId"])
        self.assertEqual(revisions[0], revisions[1])
        self.assertEqual((function.record["handler"], function.record["timeout"]), ("decorated.square", 30))
        self.rookery.functions.get("demo@price").delete()
        function.delete()

    def test_a_deployment_registers_changes_or_keeps_a_function(self) -> None:
        def deploy(timeout: int) -> str:
            return self.rookery.functions.deploy("deployed", self.code, runtime=RUNTIME, timeout=timeout).record["revisionId"]

        with ThreadPoolExecutor(4) as pool:
            first = set(pool.map(deploy, [10] * 4))
        self.assertEqual(len(first), 1)
        changed = deploy(20)
        self.assertNotIn(changed, first)
        self.assertEqual(deploy(20), changed)
        self.rookery.functions.get("deployed").delete()

    def test_the_schema_of_registered_code_comes_from_its_hints(self) -> None:
        (self.code / "hinted.py").write_text("def handle(event: int): return event + 1\n")
        options = {"runtime": RUNTIME, "handler": "hinted.handle", "input_schema": "hints"}
        function = self.rookery.functions.register("pyhints", self.code, **options)
        self.assertEqual(function.record["inputSchema"], {"type": "integer"})
        self.assertEqual(function.invoke(1), 2)
        function.delete()
        with self.assertRaisesRegex(RookeryError, "input_schema hints: hinted.absent in .*has no attribute 'absent'"):
            self.rookery.functions.register("pyhints", self.code, **{**options, "handler": "hinted.absent"})
        with self.assertRaisesRegex(RookeryError, "the runtime is nodejs22"):
            self.rookery.functions.register("pyhints", self.code, **{**options, "runtime": "nodejs22"})

    def test_files_are_described_renamed_removed_and_watched(self) -> None:
        with self.rookery.sandboxes.create() as sandbox:
            files = sandbox.files
            files.make_directory("/tmp/dir", mode="700")
            facts = files.stat("/tmp/dir")
            self.assertEqual((facts["type"], facts["mode"], facts["path"]), ("directory", "0700", "/tmp/dir"))
            with files.watch("/tmp/dir", recursive=True, facts=True) as changes:
                files.write("/tmp/dir/first", "four")
                change = next(one for one in changes if one.name == "first" and one.file)
                self.assertEqual(change.file["size"], 4)
                moved = files.rename("/tmp/dir/first", "/tmp/dir/new/second")
                self.assertEqual((moved["name"], moved["size"]), ("second", 4))
                seen = next(one for one in changes if one.type == "rename" and one.name == "first")
                self.assertIsNone(seen.file)
            self.assertEqual(list(changes), [])
            self.assertEqual((files.exists("/tmp/dir/first"), files.exists("/tmp/dir/new/second")), (False, True))
            for _ in ("removed", "already removed"):
                files.remove("/tmp/dir")
            self.assertFalse(files.exists("/tmp/dir/new/second"))
            self.assertEqual(files.stat(".", user="root")["path"], "/root")
            with self.assertRaises(RookeryError) as absent:
                files.stat("/tmp/dir")
            self.assertEqual(absent.exception.status, 404)
            with self.assertRaisesRegex(RookeryError, "is not a directory"):
                files.watch("/etc/passwd")
        with self.assertRaises(RookeryError) as gone:
            files.exists("/tmp")
        self.assertEqual(gone.exception.status, 404)

    def test_an_agent_has_labels_and_an_end_and_keeps_its_memory_in_a_pause(self) -> None:
        labels = {"client": "python"}
        agent = self.rookery.agents.create(self.code, runtime=RUNTIME, labels=labels, ttl_seconds=3600)
        self.assertEqual((agent.record["labels"], agent.record["on_expiry"]), (labels, "delete"))
        self.assertEqual([one.id for one in self.rookery.agents.list(labels=labels)], [agent.id])
        agent.invoke({"name": "Ada"})
        agent.pause()
        self.assertEqual(agent.record["status"], "PAUSED")
        with self.assertRaisesRegex(RookeryError, "is paused"):
            agent.invoke({"name": "Ada"})
        self.assertEqual((agent.resume(), agent.resume()), (True, False))
        self.assertEqual(agent.invoke({"name": "Ada"})["calls"], 2)
        agent.set_ttl(0)
        self.assertNotIn("expires_at", agent.record)
        agent.delete()

    def test_code_runs_in_a_sandbox_that_keeps_its_names(self) -> None:
        once = self.rookery.sandboxes.run_code('print("out"); 1 + 1')
        self.assertEqual((once.stdout, once.text, once.error), ("out\n", "2", None))
        with self.rookery.sandboxes.create("code-interpreter-v1", labels={"of": "python"}) as sandbox:
            sandbox.run_code("x = 5")
            self.assertEqual(sandbox.run_code("x + 1", env={"A": "b"}).text, "6")
            self.assertEqual((sandbox.run_code("1 / 0").error or {})["name"], "ZeroDivisionError")
            found = [each.id for each in self.rookery.sandboxes.list(labels={"of": "python"})]
            self.assertEqual(found, [sandbox.id])

    def test_forks_of_a_sandbox_have_its_files(self) -> None:
        with self.rookery.sandboxes.create(env={"A": "a"}) as sandbox:
            sandbox.files.write("/home/user/kept", b"of the first")
            for fork in sandbox.fork(count=2, name="python-fork", env={"B": "b"}, ttl_seconds=600):
                with fork:
                    self.assertEqual(fork.files.read("/home/user/kept"), b"of the first")
                    self.assertEqual(fork.exec("echo $A $B").stdout, "a b\n")
            with self.rookery.sandboxes.create(name="python-taken-2"):
                with self.assertRaisesRegex(Conflict, "a fork did not start: .*python-taken-2"):
                    self.rookery.sandboxes.fork(sandbox.id, count=2, name="python-taken")
            self.assertEqual(list(self.rookery.agents.list(name="python-taken-1")), [])

    def test_a_repeated_create_after_a_lost_answer_makes_one_agent(self) -> None:
        with Rookery(os.environ["ROOKERY_LOSSY_ADDRESS"]) as lossy:
            with lossy.agents.create(self.code, runtime=RUNTIME, name="python-once") as agent:
                found = [one.id for one in self.rookery.agents.list(name="python-once", page_size=1)]
                self.assertEqual(found, [agent.id])

    def test_every_error_has_the_class_of_its_code_with_code_message_status_and_trace_id(self) -> None:
        with self.rookery.agents.create(self.code, runtime=RUNTIME) as agent:
            with self.assertRaises(ExecutionFailed) as failed:
                agent.invoke({"fail": "asked to"}, trace_id="told-by-the-caller")
            self.assertIsInstance(failed.exception, RookeryError)
            self.assertIn("asked to", failed.exception.message)
            self.assertEqual((failed.exception.status, failed.exception.trace_id), (500, "told-by-the-caller"))
            self.assertEqual((failed.exception.code, failed.exception.inner_code), (500, 4002))
            with self.assertRaises(Timeout) as late:
                agent.invoke({"sleep": 60}, run_ms=50)
            self.assertEqual((late.exception.status, late.exception.inner_code), (500, 4010))
            with self.assertRaisesRegex(Timeout, "took longer than its timeout"):
                agent.exec("sleep 60", timeout=0.05)
            with self.assertRaises(Conflict) as taken:
                self.rookery.agents.create(self.code, runtime=RUNTIME, name=agent.name)
            self.assertEqual((taken.exception.body or {})["instance_id"], agent.id)
        with Rookery("http://127.0.0.1:1", retries=0) as nowhere, self.assertRaisesRegex(Unavailable, "cannot be reached"):
            nowhere.agents.get("x")
        with self.assertRaisesRegex(NotFound, "there is no agent default/nobody"):
            self.rookery.agents.get("nobody")

    def test_the_history_lists_calls_over_pages_with_filters_and_returns_one_call(self) -> None:
        with self.rookery.agents.create(self.code, runtime=RUNTIME) as agent:
            for name in ("Ada", "Grace"):
                agent.invoke({"name": name})
            with self.assertRaises(RookeryError):
                agent.invoke({"fail": "on purpose"}, trace_id="failed-in-python")
            ends = time.monotonic() + 60
            while len(list(self.rookery.calls.list(agent=agent.id, page_size=1))) < 3 and time.monotonic() < ends:
                time.sleep(0.05)
            outcomes = [call["outcome"] for call in self.rookery.calls.list(agent=agent.id, page_size=1)]
            self.assertEqual(sorted(outcomes), ["error", "ok", "ok"])
            (failed,) = self.rookery.calls.list(agent=agent.id, outcome="error", after="1h")
            self.assertEqual(failed["trace_id"], "failed-in-python")
            self.assertEqual(list(self.rookery.calls.list(agent=agent.id, trace_id="failed-in-python")), [failed])
            (grace,) = self.rookery.calls.list(agent=agent.id, text="Grace")
            whole = self.rookery.calls.get(grace["id"])
            self.assertEqual((whole["id"], json.loads(whole["input"])), (grace["id"], {"name": "Grace"}))
        with self.assertRaises(RookeryError) as unknown:
            self.rookery.calls.get("unknown")
        self.assertEqual(unknown.exception.status, 404)

    def test_the_history_is_followed_with_filters_until_the_loop_ends(self) -> None:
        with self.rookery.agents.create(self.code, runtime=RUNTIME) as agent:
            found = threading.Event()

            def fail() -> None:
                while not found.wait(0.05):
                    agent.invoke({"name": "Ada"})
                    with contextlib.suppress(RookeryError):
                        agent.invoke({"fail": "on purpose"})

            failing = threading.Thread(target=fail)
            failing.start()
            try:
                for call in self.rookery.calls.follow(agent=agent.id, outcome="error"):
                    self.assertEqual((call["agent_id"], call["outcome"]), (agent.id, "error"))
                    break
            finally:
                found.set()
                failing.join()

    def test_all_calls_of_an_agent_are_recorded_until_the_recording_is_stopped(self) -> None:
        with self.rookery.agents.create(self.code, runtime=RUNTIME) as agent:
            recording = self.rookery.calls.record(agent=agent.id, seconds=60)
            self.assertEqual((recording["kind"], recording["agent_id"]), ("agent", agent.id))
            self.assertIn(recording, self.rookery.calls.recordings())
            self.rookery.calls.stop_recording(agent=agent.id)
            self.assertNotIn(recording, self.rookery.calls.recordings())
            with self.assertRaises(RookeryError) as stopped:
                self.rookery.calls.stop_recording(agent=agent.id)
            self.assertEqual(stopped.exception.status, 404)

    def test_a_function(self) -> None:
        function = self.rookery.functions.register("pyadd", self.code, runtime=RUNTIME)
        self.assertEqual(function.invoke({"name": "Ada"})["text"], "Hello, Ada")
        self.assertEqual(list(function.stream({"words": ["one", "two"]})), ["one", "two", "end"])
        self.assertEqual(function.start({"name": "Ada"}).result()["text"], "Hello, Ada")
        with self.assertRaises(ExecutionFailed) as failed:
            function.start({"fail": "later"}).result()
        self.assertEqual(failed.exception.code, 4002)
        names = [{"name": str(number)} for number in range(20)]
        self.assertEqual(
            [answer["text"] for answer in function.map(names, concurrency=4)],
            ["Hello, %d" % number for number in range(20)],
        )
        one, error = function.map([{"name": "Ada"}, {"fail": "this one"}], return_errors=True)
        self.assertEqual((one["text"], type(error), error.code), ("Hello, Ada", ExecutionFailed, 4002))
        with self.assertRaisesRegex(ExecutionFailed, "this one"):
            list(function.map([{"fail": "this one"}, {"name": "Ada"}]))
        self.assertEqual(function.spawn({"name": "Ada"}).result(60)["text"], "Hello, Ada")
        version = function.publish("v1")
        self.assertTrue(version.urn.endswith(":v1"))
        self.assertIn(function.name, [one.name for one in self.rookery.functions.list()])
        version.delete()
        function.delete()
        with self.assertRaises(NotFound) as gone:
            self.rookery.functions.get("pyadd")
        self.assertEqual(gone.exception.code, 4115)


class Awaited(WithCode, unittest.IsolatedAsyncioTestCase):
    async def test_the_same_with_await(self) -> None:
        async with AsyncRookery() as rookery:
            events = rookery.events.follow()
            self.assertEqual((await events.__anext__()).type, "hello")
            agent = await rookery.agents.create(self.code, runtime=RUNTIME)
            async with agent:
                async for event in events:
                    if event.type == "ready" and event.data["instance_id"] == agent.id:
                        break
                await events.aclose()
                own = rookery.events.follow(agent=agent.id, recent=100)
                first = [(await own.__anext__()).type for _ in range(3)]
                self.assertEqual(first, ["hello", "created", "ready"])
                await own.aclose()
                answers = await asyncio.gather(*(agent.invoke({"name": str(number)}) for number in range(5)))
                self.assertEqual(sorted(answer["calls"] for answer in answers), [1, 2, 3, 4, 5])
                async with await agent.terminal("echo $((6 * 7))", cols=100) as terminal:
                    shown = b"".join([piece.data async for piece in terminal])
                    self.assertEqual((shown, terminal.returncode), (b"42\r\n", 0))
                async with await agent.files.watch("/tmp") as changes:
                    await agent.files.make_directory("/tmp/made")
                    async for change in changes:
                        if change.name == "made":
                            break
                self.assertTrue(await agent.files.exists("/tmp/made"))
            shared = await asyncio.gather(
                *(rookery.agents.get_or_create("shared", self.code, runtime=RUNTIME) for _ in range(5))
            )
            self.assertEqual(len({one.id for one in shared}), 1)
            self.assertEqual(shared[0].name, "shared")
            self.assertEqual((await shared[4].invoke({"name": "Ada"}))["text"], "Hello, Ada")
            await shared[0].delete()
            function = await rookery.functions.register("pyasync", self.code, runtime=RUNTIME)
            self.assertEqual([piece async for piece in function.stream({"words": ["one"]})], ["one", "end"])
            names = [{"name": str(number)} for number in range(20)]
            answers = [answer async for answer in function.map(names, concurrency=4)]
            self.assertEqual([answer["text"] for answer in answers], ["Hello, %d" % number for number in range(20)])
            with self.assertRaises(ExecutionFailed):
                async for _ in function.map([{"fail": "this one"}, {"name": "Ada"}]):
                    pass
            self.assertEqual((await (await function.spawn({"name": "Ada"})).result())["text"], "Hello, Ada")
            await function.delete()

            job = await rookery.jobs.submit("cat input", code=self.code)
            lines = [line async for line in rookery.jobs.follow(job)]
            self.assertIn("from the directory", "\n".join(lines))
            self.assertEqual((await rookery.jobs.wait(job))["status"], "SUCCEEDED")
            nightly = {"cron": "0 3 1 1 *", "job": {"entrypoint": "true"}}
            for _ in ("made", "replaced"):
                put = await rookery.call("putJobSchedule", params={"id": "nightly"}, body=nightly)
                self.assertEqual(put["schedule_id"], "nightly")
            await rookery.call("deleteJobSchedule", params={"id": "nightly"})


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
