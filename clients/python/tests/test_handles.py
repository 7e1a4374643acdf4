"""Tests handles, `get_or_create` and `map` of the client without a service."""

import asyncio
import json
import subprocess
import sys
import tarfile
import tempfile
import threading
import unittest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Callable, Iterator, TypedDict
from unittest import mock

import rookery as package
from rookery import Rookery, RookeryError
from rookery._mapped import async_mapped, mapped
from rookery._pack import STAND_IN, pack
from rookery._runs import has_fields
from rookery._wire import read_settings


class Representations(unittest.TestCase):
    def test_handles_show_their_identity_and_neither_tokens_nor_environments(self) -> None:
        with Rookery("http://me:hidden@localhost:1", token="hidden") as rookery:
            connection = rookery._connection
            agent = {"instance_id": "a", "name": "one", "env_vars": {"KEY": "hidden"}}
            function = {"name": "0@default@f", "functionVersionUrn": "u", "versionNumber": "v1", "environment": "hidden"}
            for handle, text in [
                (package.Agent(connection, agent), "Agent(id='a', name='one')"),
                (package.Sandbox(connection, agent), "Sandbox(id='a', name='one')"),
                (package.Function(connection, function), "Function(name='0@default@f', version='v1')"),
                (package.Call(connection, "c"), "Call(id='c')"),
                (rookery, "Rookery(url='http://localhost:1')"),
            ]:
                self.assertEqual((repr(handle), str(handle)), (text, text))
            self.assertNotIn("hidden", repr(read_settings("localhost", "hidden", "tenant", 1, 1)))


class Order(TypedDict):
    count: int


@package.function
def _doubled(event: Order) -> int:
    """Doubles a count."""
    return 2 * event["count"]


class Decorated(unittest.TestCase):
    def test_a_decorated_function_runs_here_and_has_the_handler_of_its_module(self) -> None:
        self.assertEqual((_doubled({"count": 2}), _doubled.__doc__), (4, "Doubles a count."))
        handler = Path(__file__).stem + "._doubled"
        self.assertEqual(repr(_doubled), "RemoteFunction(name='doubled', handler=%r)" % handler)
        named = package.function(name="demo@twice", code=Path(__file__).parents[1])(_doubled._target)
        self.assertEqual((named.name, named.handler), ("demo@twice", "tests." + handler))

    def test_what_a_sandbox_could_not_import_is_refused(self) -> None:
        def inner() -> None: ...

        made = {}
        exec("def one(): pass", made)
        with tempfile.TemporaryDirectory() as other:
            for target, options, reason in [
                (inner, {}, "inner is not a function of a module"),
                (lambda event: event, {}, "is not a function of a module"),
                (len, {}, "len is not a function of a module"),
                (_doubled._target, {"handler": "a.b"}, "handler: the decorated function is the handler"),
                (_doubled._target, {"code": other}, "is not below the directory"),
                (made["one"], {}, "one is not in a file"),
            ]:
                with self.assertRaisesRegex(RookeryError, reason):
                    package.function(**options)(target)

    def test_a_sandbox_gets_the_function_itself(self) -> None:
        with mock.patch.dict(sys.modules, {"rookery_runtime": unittest}):
            self.assertIs(package.function(memory=512)(_doubled._target), _doubled._target)

    def test_the_stand_in_is_packed_unless_the_directory_has_the_name(self) -> None:
        for own, expected in [(None, ["app.py", "rookery.py"]), ("rookery", ["app.py"])]:
            with tempfile.TemporaryDirectory() as work:
                code = Path(work) / "code"
                (code / own if own else code).mkdir(parents=True)
                (code / "app.py").write_text("")
                pack(code, Path(work) / "archive", False, stand_in=True)
                with tarfile.open(Path(work) / "archive") as archive:
                    self.assertEqual([name for name in archive.getnames() if name != own], expected)

    def test_the_stand_in_loads_decorated_code_and_prefers_an_installed_client(self) -> None:
        program = (
            "import rookery\nfrom rookery import Rookery, RookeryError\n"
            "@rookery.function\ndef one(): return 1\n@rookery.function(memory=1)\ndef two(): return 2\n"
            "try:\n    Rookery()\nexcept RookeryError: pass\nexcept ImportError as error: print(error)\n"
            "print(one(), two(), type(one).__name__)"
        )
        with tempfile.TemporaryDirectory() as code:
            (Path(code) / "rookery.py").write_bytes(STAND_IN.read_bytes())
            (Path(code) / "app.py").write_text(program)
            ran = subprocess.run([sys.executable, "-S", "app.py"], cwd=code, capture_output=True, text=True)
            advice = "rookery.Rookery needs the client in the sandbox: add rookery to its requirements.txt"
            self.assertEqual((ran.stdout, ran.stderr), ("%s\n1 2 function\n" % advice, ""))
            found = [sys.executable, "-c", "import rookery; print(rookery.__file__)"]
            ran = subprocess.run(found, cwd=code, capture_output=True, text=True)
            self.assertEqual((ran.stdout.strip(), ran.stderr), (package.__file__, ""))

    def test_hints_become_a_schema(self) -> None:
        schema = {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}
        self.assertEqual(package.schema_of(_doubled), schema)
        with self.assertRaisesRegex(RookeryError, "input_schema: .*no parameter for the event"):
            package.schema_of(lambda: 1)

    def test_a_record_is_compared_by_the_fields_that_are_sent(self) -> None:
        record = {"cpu": 1, "rootfs": {"imageurl": "host", "type": ""}, "inputSchema": {"a": 1, "b": 2}}
        for fields, same in [
            ({"cpu": 1, "rootfs": {"imageurl": "host"}, "dependencies": "auto"}, True),
            ({"inputSchema": {"b": 2, "a": 1}}, True),
            ({"inputSchema": {"a": 1}}, False),
            ({"rootfs": {"imageurl": "other"}}, False),
            ({"expose": {"port": 1}}, False),
            ({"cpu": 2}, False),
        ]:
            self.assertEqual(has_fields(record, fields), same)


class Mapped(unittest.TestCase):
    #: Seconds after which a wait of a test has failed.
    LIMIT = 60

    def test_results_have_the_order_of_the_inputs_and_calls_are_concurrent(self) -> None:
        second_ended = threading.Event()

        def call(event: int) -> int:
            if event == 1:
                self.assertTrue(second_ended.wait(self.LIMIT))
            if event == 2:
                second_ended.set()
            return event * 10

        self.assertEqual(list(mapped(call, iter([1, 2, 3]), 2, False)), [10, 20, 30])
        self.assertEqual(list(mapped(call, [], 2, False)), [])

    def test_a_bounded_number_of_calls_runs_and_of_inputs_is_taken(self) -> None:
        lock, slow = threading.Lock(), threading.Event()
        running, most, taken = 0, 0, []

        def inputs() -> Iterator[int]:
            for event in range(100):
                taken.append(event)
                # The slow call ends when the largest number of inputs is taken: four for each call.
                if event == 11:
                    slow.set()
                yield event

        def call(event: int) -> int:
            nonlocal running, most
            with lock:
                running += 1
                most = max(most, running)
            if event == 0:
                self.assertTrue(slow.wait(self.LIMIT))
            with lock:
                running -= 1
            return event

        results = mapped(call, inputs(), 3, False)
        self.assertEqual(next(results), 0)
        self.assertEqual(len(taken), 12)
        self.assertEqual(list(results), list(range(1, 100)))
        self.assertLessEqual(most, 3)

    def test_the_first_failure_is_raised_unless_errors_are_wanted(self) -> None:
        started, failed = [], RookeryError("no")

        def call(event: int) -> int:
            started.append(event)
            if event == 1:
                raise failed
            return event

        with self.assertRaises(RookeryError) as raised:
            list(mapped(call, range(1, 1000), 1, False))
        self.assertIs(raised.exception, failed)
        self.assertLess(len(started), 10)
        self.assertEqual(list(mapped(call, [1, 2], 2, True)), [failed, 2])
        with self.assertRaises(ZeroDivisionError):
            list(mapped(lambda event: 1 / event, [0], 1, True))

    def test_a_wrong_concurrency_is_refused_before_the_iteration(self) -> None:
        for wrong in (0, -1, 1.5, None):
            with self.assertRaisesRegex(RookeryError, "concurrency must be a whole number from 1, not"):
                mapped(print, [], wrong, False)  # type: ignore[arg-type]

    def test_coroutines_have_the_same_order_and_bound(self) -> None:
        async def program() -> None:
            second_ended, running, most = asyncio.Event(), 0, 0

            async def call(event: int) -> int:
                nonlocal running, most
                running += 1
                most = max(most, running)
                if event == 1:
                    await second_ended.wait()
                if event == 2:
                    second_ended.set()
                await asyncio.sleep(0)
                running -= 1
                return event * 10

            found = [result async for result in async_mapped(call, range(50), 3, False)]
            self.assertEqual((found, most), (list(range(0, 500, 10)), 3))

        asyncio.run(program())

    def test_the_first_failure_of_a_coroutine_cancels_the_others(self) -> None:
        async def program() -> None:
            cancelled, failed, has_begun = [], RookeryError("no"), asyncio.Event()

            async def call(event: int) -> int:
                if event == 1:
                    await has_begun.wait()
                    raise failed
                has_begun.set()
                if event == 2:
                    try:
                        await asyncio.Event().wait()
                    finally:
                        cancelled.append(event)
                return event

            with self.assertRaises(RookeryError) as raised:
                async for _ in async_mapped(call, [1, 2, 3], 2, False):
                    pass
            self.assertEqual((raised.exception, cancelled), (failed, [2]))
            self.assertEqual([one async for one in async_mapped(call, [1, 3], 2, True)], [failed, 3])

        asyncio.run(program())


def sent_by(answers: "list[tuple[int, object]]", program: "Callable[[Rookery], object]") -> "list[str]":
    """Runs the program with a service that gives the answers in their order, and returns its requests."""
    sent = []

    class Service(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            status, body = answers[len(sent)]
            sent.append("%s %s" % (self.command, self.path.partition("?")[0]))
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_GET

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Service) as service:
        threading.Thread(target=service.serve_forever).start()
        try:
            with Rookery("http://127.0.0.1:%d" % service.server_port, timeout=30, retries=0) as rookery:
                program(rookery)
        finally:
            service.shutdown()
    return sent


class AsyncCalls(unittest.TestCase):
    def test_a_wait_for_a_result_ends_after_its_timeout(self) -> None:
        def program(rookery: Rookery) -> None:
            with self.assertRaisesRegex(package.Timeout, "the wait took longer than its timeout"):
                rookery.functions.async_call("c").result(timeout=0)

        sent = sent_by([(200, {"status": "processing"})], program)
        self.assertEqual(len(sent), 1)

    def test_a_result_that_comes_in_time_is_returned(self) -> None:
        got = []
        answers = [(200, {"status": "queued"}), (200, {"status": "completed", "result": 7})]
        sent_by(answers, lambda rookery: got.append(rookery.functions.async_call("c").result(timeout=600)))
        self.assertEqual(got, [7])


class GetOrCreate(unittest.TestCase):
    LIST, CREATE = "GET /api/agent", "POST /api/agent"

    def listed(self, *statuses: str) -> "tuple[int, object]":
        found = [{"instance_id": "x", "name": "shared", "status": status} for status in statuses]
        return 200, {"instances": found, "next_cursor": None}

    def test_an_existing_agent_is_returned_as_it_is(self) -> None:
        for status in ("RUNNING", "SLEEPING", "FAILED"):
            got = []
            sent = sent_by([self.listed(status)], lambda rookery: got.append(rookery.agents.get_or_create("shared")))
            self.assertEqual(([agent.record["status"] for agent in got], sent), ([status], [self.LIST]))

    def test_the_agent_of_a_client_that_creates_it_at_the_same_time_is_waited_for(self) -> None:
        taken = (409, {"code": 409, "message": "agent default/shared already exists", "instance_id": "x"})
        answers = [self.listed(), taken, self.listed("CREATING"), self.listed("RUNNING")]
        got = []
        sent = sent_by(answers, lambda rookery: got.append(rookery.agents.get_or_create("shared")))
        self.assertEqual(([agent.id for agent in got], sent), (["x"], [self.LIST, self.CREATE, self.LIST, self.LIST]))

    def test_the_agent_is_created_when_the_holder_of_its_name_is_deleted_at_the_same_time(self) -> None:
        record = {"instance_id": "new", "name": "shared", "status": "RUNNING"}
        created = [(200, {"code": 200, "instance_id": "new"}), (200, {"code": 200, "instance": record})]
        got = []
        answers = [self.listed("STOPPING"), self.listed(), *created]
        sent = sent_by(answers, lambda rookery: got.append(rookery.agents.get_or_create("shared")))
        self.assertEqual([agent.id for agent in got], ["new"])
        self.assertEqual(sent, [self.LIST, self.LIST, self.CREATE, "GET /api/agent/new"])

    def test_another_refusal_of_the_create_is_raised(self) -> None:
        refused = (409, {"code": 409, "message": "idempotency key k was used with another request"})

        def program(rookery: Rookery) -> None:
            with self.assertRaisesRegex(package.Conflict, "idempotency key k"):
                rookery.agents.get_or_create("shared")
            with self.assertRaisesRegex(RookeryError, "never replaces"):
                rookery.agents.get_or_create("shared", replace=True)

        self.assertEqual(sent_by([self.listed(), refused], program), [self.LIST, self.CREATE])


if __name__ == "__main__":
    unittest.main()
