"""Tests requests, retries, streams and followed logs of the client without a service."""

import asyncio
import base64
import os
import pickle
import re
import tarfile
import tempfile
import threading
import unittest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import AsyncIterator, Callable, Iterator

import rookery as package
from rookery import Rookery, RookeryError
from rookery._async.terminal import AsyncTerminal
from rookery._error import FAILURE_OF_CODE, Unreachable, failure
from rookery._pack import pack
from rookery._wire import EventReader, LineReader, LogPosition, Request, failure_of, retry_after, seconds_until


def answer(status: int, code: "int | None" = None, message: str = "no", after: "float | None" = None) -> RookeryError:
    return RookeryError(message, status=status, code=code, retry_after=after)


class Retries(unittest.TestCase):
    def test_repeatable_requests_are_sent_again_after_a_break_and_after_a_temporary_refusal(self) -> None:
        for error in [Unreachable("no", has_begun=True), answer(429), answer(502), answer(503), answer(504)]:
            self.assertGreater(retry_after(error, 1, True) or 0, 0)
        for error in [answer(400), answer(404), answer(500), RookeryError("timeout")]:
            self.assertIsNone(retry_after(error, 1, True))

    def test_a_call_is_sent_again_only_when_it_has_certainly_not_begun(self) -> None:
        starting = answer(503, message="the server is starting: it does not yet know")
        for error in [Unreachable("no", has_begun=False), answer(429), answer(503, 150431), starting]:
            self.assertGreater(retry_after(error, 1, False) or 0, 0)
        for error in [Unreachable("no", has_begun=True), answer(502), answer(503, 150503), answer(503)]:
            self.assertIsNone(retry_after(error, 1, False))

    def test_pauses_double_up_to_a_bound_and_are_at_least_what_the_service_asks_for(self) -> None:
        self.assertEqual([retry_after(answer(503), tried, True, 1) for tried in (1, 2, 3, 10)], [0.2, 0.4, 0.8, 5.0])
        self.assertEqual(retry_after(answer(503, after=3), 1, True, 0), 3)
        self.assertIsNone(retry_after(answer(503, after=3600), 1, True))

    def test_retry_after_is_seconds_or_a_moment(self) -> None:
        said = ["7", "Thu, 26 Nov 2026 22:00:05 GMT", "0", "Thu, 26 Nov 2026 21:00:00 GMT", "soon", ""]
        self.assertEqual([seconds_until(header, 1795730400) for header in said], [7, 5, None, None, None, None])

    def test_an_update_that_names_its_revision_is_not_repeated(self) -> None:
        repeated = [Request(name).repeats for name in ("getAgent", "putSecret", "updateFunction", "createAgent")]
        self.assertEqual(repeated, [True, True, False, False])


class Failures(unittest.TestCase):
    def test_the_table_of_classes_has_every_code_of_the_reference_and_no_other(self) -> None:
        page = (Path(__file__).parents[3] / "docs/reference/errors.md").read_text(encoding="utf-8")
        listed = [int(code) for code in re.findall(r"(?m)^\| (\d+) \|", page)]
        self.assertGreater(len(listed), 20)
        self.assertEqual(sorted(FAILURE_OF_CODE), sorted(listed))
        refusals = re.search(r"(?m)^Refusals by an entry itself \((.*)\)", page)
        assert refusals is not None
        for status in re.findall(r"\b[345]\d\d\b", refusals.group(1)):
            self.assertIsNot(type(failure("no", status=int(status), code=None)), RookeryError, status)

    def test_the_code_of_an_answer_decides_on_the_class(self) -> None:
        for status, code, header, kind in [
            (500, 500, "4002", package.ExecutionFailed),
            (500, 500, "4010", package.Timeout),
            (500, 500, "", package.InternalError),
            (200, 4115, "", package.NotFound),
            (503, 150431, "", package.Unavailable),
            (429, 77, "0", package.RateLimited),
            (418, None, "", package.InvalidRequest),
            (302, None, "", RookeryError),
        ]:
            content = b"{}" if code is None else b'{"code": %d, "message": "no"}' % code
            error = failure_of(status, {"x-inner-code": header}, content)
            self.assertIs(type(error), kind)
            self.assertIsInstance(error, RookeryError)
            self.assertEqual((error.status, error.code), (status, status if code is None else code))
            self.assertEqual(error.inner_code, int(header or "0") or error.code)
            copy = pickle.loads(pickle.dumps(error))
            self.assertEqual((type(copy), str(copy), vars(copy)), (kind, str(error), vars(error)))


class Commands(unittest.TestCase):
    def result(self, **change: object) -> package.CommandResult:
        fields = {"returncode": 0, "stdout": "out", "stderr": "", "truncated": False, "timed_out": False}
        return package.CommandResult({**fields, **change})

    def test_check_returns_the_result_of_a_command_that_succeeded(self) -> None:
        done = self.result()
        self.assertIs(done.check(), done)
        self.assertEqual((done["stdout"], done.stdout, done.timed_out), ("out", "out", False))
        self.assertEqual(repr(done), "CommandResult(returncode=0, stdout='out', stderr='')")
        cut = repr(self.result(stdout="a" * 101 + "b" * 101, truncated=True))
        self.assertIn("stdout='%s\u2026%s', stderr='', truncated=True)" % ("a" * 100, "b" * 100), cut)

    def test_check_fails_with_the_exit_code_and_the_end_of_the_error_output(self) -> None:
        long = "first" + "x" * 3000 + "last"
        for change, message in [
            ({"returncode": 3, "stderr": "no such file\n"}, "the command ended with exit code 3: no such file"),
            ({"returncode": 1}, "the command ended with exit code 1"),
            ({"returncode": -1, "timed_out": True, "stderr": "slow"}, "the time limit ended the command: slow"),
            ({"returncode": 2, "stderr": long}, "the command ended with exit code 2: \u2026%slast" % ("x" * 1996)),
        ]:
            result = self.result(**change)
            with self.assertRaises(package.CommandFailed) as failed:
                result.check()
            error = failed.exception
            self.assertIsInstance(error, package.ExecutionFailed)
            self.assertEqual((str(error), error.returncode, error.stderr), (message, result.returncode, result.stderr))
            self.assertEqual(pickle.loads(pickle.dumps(error)).result, result)


class Streams(unittest.TestCase):
    def test_events_have_ids_types_and_lines(self) -> None:
        reader = EventReader()
        lines = ["id: 7", "event: ready", "data: a", "data:b", "", ": comment", "", "data: c", "", "data: cut"]
        found = [event for line in lines for event in reader.take(line)]
        self.assertEqual(found, [("7", "ready", "a\nb"), ("7", "message", "c")])

    def test_a_character_that_is_cut_in_two_is_whole_in_its_line(self) -> None:
        reader, text = LineReader(), "ä\nb".encode()
        self.assertEqual([*reader.take(text[:1]), *reader.take(text[1:]), *reader.end()], ["ä", "b"])

    def test_a_terminal_accepts_an_empty_binary_message(self) -> None:
        class Socket:
            async def __aiter__(self) -> AsyncIterator["str | bytes"]:
                for message in (b"", b"\x01out", b"\x02err", '{"type": "exit", "returncode": 3}'):
                    yield message

        async def read() -> None:
            terminal = AsyncTerminal(Socket(), False)  # type: ignore[arg-type]
            found = [(output.stream, output.data) async for output in terminal]
            self.assertEqual(found, [("stdout", b""), ("stdout", b"out"), ("stderr", b"err")])
            self.assertEqual(terminal.returncode, 3)

        asyncio.run(read())


class FollowedLogs(unittest.TestCase):
    END = b"event: end\ndata:\n\n"

    def event(self, text: str) -> bytes:
        return b"data: " + base64.b64encode(text.encode()) + b"\n\n"

    def followed(self, log: bytes, streams: "list[bytes]", follow: "Callable[[Rookery], Iterator[str]]") -> "list[str]":
        """Returns the lines of a followed log. Each connection sends one of the streams.

        A stream without `END` is a broken connection.
        """
        accepted = []

        class Service(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                is_followed = "follow=true" in self.path
                if is_followed:
                    accepted.append(self.headers["accept"])
                self.send_response(200)
                self.send_header("content-type", "text/event-stream" if is_followed else "text/plain")
                self.end_headers()
                self.wfile.write(streams.pop(0) if is_followed else log)

            def log_message(self, *_: object) -> None:
                pass

        with ThreadingHTTPServer(("127.0.0.1", 0), Service) as service:
            threading.Thread(target=service.serve_forever).start()
            try:
                with Rookery("http://127.0.0.1:%d" % service.server_port, timeout=5, retries=2) as rookery:
                    lines = list(follow(rookery))
            finally:
                service.shutdown()
        self.assertEqual(set(accepted), {"text/event-stream, text/plain"})
        return lines

    def test_a_log_goes_on_behind_its_last_byte_when_the_connection_breaks(self) -> None:
        streams = [self.event("one\ntw"), b":\n\n" + self.event("one\n") + self.event("two\nthree\n") + self.END]
        lines = self.followed(b"", streams, lambda rookery: rookery.jobs.follow("j"))
        self.assertEqual(lines, ["one", "two", "three"])

    def test_a_log_goes_on_when_only_its_last_lines_were_wanted(self) -> None:
        position = LogPosition(is_whole=False, of_instances=False)
        position.begin()
        self.assertEqual(position.advance(b"two\n"), b"two\n")
        position.find(b"one\ntwo\n")
        position.begin()
        self.assertEqual(position.advance(b"one\ntwo\nthree\n"), b"three\n")

    def test_a_followed_log_counts_the_lines_of_each_instance_separately(self) -> None:
        first, second = b"[aaaaaaaa] ", b"[bbbbbbbb] "
        now = second + b"1\n" + second + b"2\n" + first + b"1\n"
        position = LogPosition(is_whole=True, of_instances=True)
        position.begin()
        position.advance(first + b"1\n" + second + b"1\n")
        position.find(now)
        position.begin()
        self.assertEqual(position.advance(now + first + b"2\n"), second + b"2\n" + first + b"2\n")


class Packages(unittest.TestCase):
    def setUp(self) -> None:
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.root = Path(scratch.name)
        self.code = self.root / "code"
        (self.code / "sub").mkdir(parents=True)

    def test_the_same_files_are_the_same_package_and_ignore_files_leave_out(self) -> None:
        for name in ("b.py", "a.py", "left.log", "sub/kept.log", "sub/c.py"):
            (self.code / name).write_text(name)
        (self.code / ".rookeryignore").write_text("*.log\n")
        (self.code / "sub/.rookeryignore").write_text("!kept.log\n")
        (self.code / "link").symlink_to("a.py")
        first = pack(self.code, self.root / "1", False)
        (self.code / "a.py").write_text("a.py")
        self.assertEqual(pack(self.code, self.root / "2", False).sha256, first.sha256)
        with tarfile.open(first.archive) as tar:
            self.assertEqual(tar.getnames(), ["a.py", "b.py", "link", "sub", "sub/c.py", "sub/kept.log"])

    def test_a_link_that_leads_out_is_refused_by_its_name(self) -> None:
        (self.code / "out").symlink_to("../elsewhere")
        with self.assertRaisesRegex(RookeryError, "out is a link to ../elsewhere, which is not in"):
            pack(self.code, self.root / "1", False)

    def test_a_package_leaves_out_backup_files_of_editors(self) -> None:
        for name in ("app.py", "app.py~", "sub/.mod.py.swp", "#app.py#"):
            (self.code / name).write_text(name)
        (self.code / ".#app.py").symlink_to("me@laptop.1234:1")
        self.assertEqual(self.names(False), ["app.py", "sub"])

    def test_the_links_of_a_job_are_followed_but_not_to_where_they_stand(self) -> None:
        shared = self.root / "shared/lib"
        shared.mkdir(parents=True)
        (shared / "mod.py").write_text("x")
        (shared / "up").symlink_to("..")
        (shared / "around").symlink_to("../../code")
        (self.code / "shared").symlink_to("../shared")
        (self.code / "itself").symlink_to(".")
        self.assertEqual(self.names(True), ["shared", "shared/lib", "shared/lib/mod.py", "sub"])

    def test_a_name_that_is_not_utf_8_is_refused_unless_it_is_left_out(self) -> None:
        os.mkdir(os.fsencode(self.code) + b"/sub/caf\xe9")
        with self.assertRaisesRegex(RookeryError, "the name of sub/caf\ufffd is not UTF-8"):
            self.names(False)
        (self.code / ".rookeryignore").write_bytes(b"caf*\n# \xe9\n")
        self.assertEqual(self.names(False), ["sub"])

    def test_a_package_error_names_the_refusal_of_the_system(self) -> None:
        with self.assertRaisesRegex(RookeryError, "code: .* cannot be packed: .*/nowhere/1: No such file"):
            pack(self.code, self.root / "nowhere/1", False)

    def names(self, follows_links: bool) -> "list[str]":
        with tempfile.TemporaryDirectory() as place:
            with tarfile.open(pack(self.code, Path(place) / "1", follows_links).archive) as tar:
                return tar.getnames()


class Connections(unittest.TestCase):
    def test_the_client_follows_many_streams_at_the_same_time(self) -> None:
        over = threading.Event()

        class Service(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(b"{}\n")
                self.wfile.flush()
                if "follow=true" in self.path:
                    over.wait()

            def log_message(self, *_: object) -> None:
                pass

        with ThreadingHTTPServer(("127.0.0.1", 0), Service) as service:
            threading.Thread(target=service.serve_forever).start()
            try:
                with Rookery("http://127.0.0.1:%d" % service.server_port, timeout=5, retries=0) as rookery:
                    followed = [rookery.jobs.follow("x") for _ in range(101)]
                    self.assertEqual({next(lines) for lines in followed}, {"{}"})
                    self.assertEqual(rookery.jobs.get("x"), {})
                    over.set()
            finally:
                over.set()
                service.shutdown()

    def test_a_token_that_no_header_can_have_is_in_no_error(self) -> None:
        with self.assertRaises(RookeryError) as refused:
            Rookery(token="secret\nsecret")
        self.assertEqual(str(refused.exception), "what is to be sent as authorization has characters that no header has")
        with Rookery() as rookery, self.assertRaisesRegex(RookeryError, "what is to be sent as x-trace-id has"):
            rookery.call("invokeAgent", params={"instanceId": "x"}, headers={"x-trace-id": "\u4e2d"})


if __name__ == "__main__":
    unittest.main()
