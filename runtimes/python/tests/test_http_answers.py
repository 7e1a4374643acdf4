"""Tests that any answer of a hostile HTTP server ends as an exception of the call, at a bounded cost."""

import contextlib
import socket
import threading
import time
import types
import unittest

import client  # It puts the runtime on the path.
from rookery_runtime import http_bridge, http_exchange, http_program, protocol, values
from rookery_runtime.failures import CallFailure

LIMIT = 256 * 1024
#: Size of the buffers of two sockets, in addition to the bytes that are read.
BUFFERED_BYTES = 16 * 1024 * 1024


class Server(object):
    """
    Answers each connection with the iterable of bytes that `say` returns, as long as the other side reads.
    """

    def __init__(self, say):
        self.sent = 0
        self.connections = 0
        self._say = say
        self._listener = socket.socket()
        self._listener.bind(('127.0.0.1', 0))
        self._listener.listen(16)
        self.address = self._listener.getsockname()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        with contextlib.suppress(OSError), connection:
            connection.settimeout(client.TIMEOUT_SECONDS)
            while self._read(connection):
                for part in self._say():
                    connection.sendall(part)
                    self.sent += len(part)
                if not self.keeps:
                    break

    keeps = False

    @staticmethod
    def _read(connection):
        """Reads a whole request, since unread bytes at a close would reset the connection."""
        heard = b''
        while not heard.endswith(b'{}') and not heard.startswith(b'GET') or b'\r\n\r\n' not in heard:
            part = connection.recv(64 * 1024)
            if not part:
                return False
            heard += part
        return True

    def close(self):
        self._listener.close()


class Stream(object):
    def __init__(self):
        self.events = []

    def write(self, value):
        self.events.append(value)


def endless(part):
    def say():
        while True:
            yield part
    return say


def after(head, part):
    def say():
        yield head
        for each in endless(part)():
            yield each
    return say


def once(*parts):
    return lambda: parts


OK = b'HTTP/1.1 200 OK\r\n'
CHUNKED = OK + b'Transfer-Encoding: chunked\r\n\r\n'


class Answers(unittest.TestCase):
    def call(self, say, stream=None, keeps=False, calls=1):
        """Returns the result of the last of `calls` calls."""
        server = Server(say)
        server.keeps = keeps
        self.addCleanup(server.close)
        address, http_program.ADDRESS = http_program.ADDRESS, server.address
        try:
            self.server = server
            code = http_bridge._Code(types.SimpleNamespace(wait_for_end=lambda: None))
            code.load({'maxResultBytes': LIMIT})
            self.code = code
            call = types.SimpleNamespace(body=b'{}', stream=lambda: stream)
            context = types.SimpleNamespace(
                _call=call, headers={}, instance_id='i-1', trace_id='', request_id='', traceparent='', session_id=None)
            for _ in range(calls):
                value = code._invoke(None, context)
            return value
        finally:
            http_program.ADDRESS = address

    def refused(self, say, what=http_bridge.HttpFailure, **options):
        with self.assertRaises(what) as caught:
            self.call(say, **options)
        self.assertLess(len(str(caught.exception)), 2000)
        self.assertLess(self.server.sent, BUFFERED_BYTES)
        self.assertEqual(sum(self.code._limiter._held.values()), 0)
        return caught.exception

    def test_sound_ones_are_values(self):
        self.assertEqual(self.call(once(OK + b'Content-Length: 7\r\n\r\n{"a":1}')), {'a': 1})
        self.assertEqual(self.call(once(CHUNKED + b'3;x=y\r\n[1,\r\n2\r\n2]\r\n0\r\nX-Sum: 1\r\n\r\n')), [1, 2])
        self.assertEqual(self.call(once(OK + b'\r\ntext')), 'text')

    def test_an_answer_shorter_than_its_length_fails(self):
        for body in (b'{"rows":[1,2', b'', b'1'):
            failure = self.refused(once(OK + b'Content-Length: 50\r\n\r\n' + body))
            self.assertIn('its answer was cut off', str(failure))

    def test_large_json_within_the_bounds_is_the_value(self):
        deep = '[' * 500 + ']' * 500
        for body in (deep, '7' * 4300):
            self.assertEqual(values.encode(self.call(once(OK + b'\r\n' + body.encode()))).decode(), body)

    def test_json_beyond_the_bounds_is_4007(self):
        for body in (b'[' * 100000 + b']' * 100000, b'7' * 4301, b'[1,-' + b'7' * 5000 + b']'):
            self.refused(once(OK + b'\r\n' + body), values.NotJson)

    def test_a_body_is_read_in_its_charset(self):
        def of(kind, body):
            return self.call(once(OK + b'Content-Type: ' + kind + b'\r\n\r\n' + body))
        self.assertEqual(of(b'application/json; charset=iso-8859-1', b'{"a":"\xe9"}'), {'a': '\u00e9'})
        self.assertEqual(of(b'text/plain; charset="ISO-8859-1"', b'\xe9'), '\u00e9')
        self.assertEqual(of(b'text/plain', b'\xc3\xa9'), '\u00e9')
        self.assertEqual(of(b'application/json', b'\xef\xbb\xbf[1]'), [1])
        self.assertEqual(of(b'text/plain; charset=utf-16', '[1]'.encode('utf-16')), [1])

    def test_a_body_that_is_no_text_is_4007(self):
        for kind, body in ((b'text/plain', b'\xff\xfe\x00'), (b'image/png', b'\x89PNG'), (b'text/plain; charset=ascii', b'\xc3\xa9'),
                           (b'application/json', b'{"a":'), (b'application/json', b'text'), (b'text/plain; charset=klingon', b'a'),
                           (b'text/plain; charset=hex', b'61'), (b'text/plain', b'\xc3')):
            self.refused(once(OK + b'Content-Type: ' + kind + b'\r\n\r\n' + body), values.NotJson)

    def test_an_unasked_coding_is_named(self):
        failure = self.refused(once(OK + b'Content-Encoding: gzip\r\n\r\n\x1f\x8b\x08\xff'), values.NotJson)
        self.assertIn('its Content-Encoding gzip was not asked for', str(failure))

    def test_a_stream_of_no_text_is_4007(self):
        for kind in (b'text/event-stream', b'text/plain'):
            head = CHUNKED.replace(b'\r\n\r\n', b'\r\nContent-Type: ' + kind + b'\r\n\r\n')
            for body in (b'9\r\ndata: \xff\n\n\r\n0\r\n\r\n', b'7\r\ndata: \xc3\r\n0\r\n\r\n'):
                self.refused(once(head + body), values.NotJson, stream=Stream())

    def test_numbers_that_json_has_not_are_no_values(self):
        for body in (b'NaN', b'Infinity', b'-Infinity', b'{"a":[NaN]}', b'[1e999]'):
            with self.subTest(body), self.assertRaises(values.NotJson):
                values.encode(self.call(once(OK + b'\r\n' + body)))

    def test_an_invalid_head_fails(self):
        for head in (b'HTTP/1.1 99 Low\r\n\r\n', b'HTTP/1.1 1000 Many\r\n\r\n', b'HTTP/1.1 -1 x\r\n\r\n', b'HTTP/1.1 abc x\r\n\r\n',
                     b'HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n', b'SSH-2.0\r\n', b'', b'\0' * 100,
                     OK + b'Content-Length: 2\r\nContent-Length: 3\r\n\r\nok!', OK + b'Content-Length: -1\r\n\r\nok',
                     OK + b'Content-Length: 1_0\r\n\r\nok', OK + b'Content-Length: ' + b'9' * 6000 + b'\r\n\r\nok',
                     OK + b'Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n'):
            self.refused(once(head))

    def test_heads_without_end_fail(self):
        self.refused(endless(b'x' * 4096))
        self.refused(after(OK, b'X: y\r\n'))
        self.refused(after(OK, b'X: ' + b'y' * 60000 + b'\r\n'))
        self.refused(after(OK + b'X: ', b'y' * 4096))
        self.refused(after(b'HTTP/1.1 200 ', b'y' * 4096))

    def test_an_interim_answer_is_skipped(self):
        interim = b'HTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n'
        self.assertEqual(self.call(once(interim + OK + b'Content-Length: 1\r\n\r\n1')), 1)
        self.refused(endless(b'HTTP/1.1 100 Continue\r\n\r\n'))
        self.refused(endless(b'HTTP/1.1 102 Processing\r\nX: y\r\n\r\n'))

    def test_an_invalid_chunk_fails(self):
        for size in (b'-5', b'g', b'', b'-ffffffffffffffff', b'f' * 5000):
            self.refused(once(CHUNKED + size + b'\r\nabcde\r\n0\r\n\r\n'))
        self.refused(after(CHUNKED + b'5', b';ext=y'))
        self.refused(endless(CHUNKED + b'1;' + b'x' * 60000 + b'\r\na\r\n'))
        self.refused(after(CHUNKED + b'1\r\na\r\n0\r\n', b'X: y\r\n'))

    def test_a_body_above_the_limit_is_too_large_however_it_comes(self):
        for say in (after(OK + b'\r\n', b'x' * 65536), after(CHUNKED, b'1\r\nx\r\n' * 4096),
                    after(CHUNKED + b'ffffffffff\r\n', b'x' * 65536), after(OK + b'Content-Length: 99999999999\r\n\r\n', b'x' * 65536)):
            failure = self.refused(say, CallFailure)
            self.assertEqual(failure.code, protocol.CODE_TOO_LARGE)

    def test_small_chunks_of_a_whole_answer_pass(self):
        body = b'x' * 50000
        self.assertEqual(self.call(once(CHUNKED + b'1\r\nx\r\n' * len(body) + b'0\r\n\r\n')), body.decode())

    def test_events_without_end_are_too_large(self):
        head = CHUNKED.replace(b'\r\n\r\n', b'\r\nContent-Type: text/event-stream\r\n\r\n')
        for line in (b'data: x\n' * 1000, b'x' * 8000, b'data:\n' * 1000, b'data: ' + b'y' * 60000 + b'\n'):
            chunk = b'%x\r\n%s\r\n' % (len(line), line)
            self.assertEqual(self.refused(after(head, chunk), CallFailure, stream=Stream()).code, protocol.CODE_TOO_LARGE)

    def test_events_pass_in_whatever_pieces_they_come(self):
        text = b'data: one\r\n\r\n: comment\n\ndata: two\ndata:three\n\ndata: lost'
        pieces = [b'1\r\n%c\r\n' % each for each in text]
        stream = Stream()
        self.call(once(CHUNKED.replace(b'\r\n\r\n', b'\r\nContent-Type: text/event-stream\r\n\r\n'), *(pieces + [b'0\r\n\r\n'])), stream=stream)
        self.assertEqual(stream.events, ['one', 'two\nthree'])

    def test_bytes_behind_an_answer_close_the_connection(self):
        answers = OK + b'Content-Length: 1\r\n\r\n1'
        self.assertEqual(self.call(once(answers + answers.replace(b'\r\n1', b'\r\n2')), keeps=True, calls=3), 1)

    def test_a_connection_carries_one_call_after_the_other(self):
        self.assertEqual(self.call(once(OK + b'Content-Length: 1\r\n\r\n1'), keeps=True, calls=5), 1)
        self.assertEqual(self.server.connections, 1)

    def test_a_call_succeeds_after_a_cancelled_call_whose_answer_was_not_read(self):
        server = Server(once(OK + b'Content-Length: 1\r\n\r\n1'))
        server.keeps = True
        self.addCleanup(server.close)
        connection = http_exchange.Connection(server.address)
        self.addCleanup(connection.close)
        for _ in range(3):
            # The body arrives with the head, so the connection has nothing to read that shows the rest.
            response = connection.post('/', b'{}', {})
        self.assertEqual(b''.join(http_exchange.read_pieces(response)), b'1')
        self.assertEqual(server.connections, 3)
        connection.post('/', b'{}', {})
        self.assertEqual(server.connections, 3)


class Health(unittest.TestCase):
    def look(self, say):
        server = Server(say)
        self.addCleanup(server.close)
        address, http_program.ADDRESS = http_program.ADDRESS, server.address
        seconds, http_program._HEALTH_SECONDS = http_program._HEALTH_SECONDS, 0.3
        try:
            return http_program._look()
        finally:
            http_program.ADDRESS, http_program._HEALTH_SECONDS = address, seconds

    def test_an_endless_answer_does_not_count_as_healthy(self):
        def drip():
            while True:
                time.sleep(0.01)
                yield b'HTTP/1.1 100 Continue\r\n\r\n'
        self.assertIn('is not answered', self.look(drip))
        self.assertIn('is not answered', self.look(endless(b'HTTP/1.1 100 Continue\r\n\r\n')))

    def test_an_answer_counts_as_healthy(self):
        self.assertIsNone(self.look(once(OK + b'\r\n')))
        self.assertIn('status 503', self.look(once(b'HTTP/1.1 503 No\r\n\r\n')))


class ByteLimiters(unittest.TestCase):
    def test_answers_wait_for_each_other_once_they_would_be_too_much(self):
        limiter, done, go_on = http_exchange.ByteLimiter(), [], threading.Event()
        share = http_exchange._LIMIT_BYTES // http_exchange._GROWTH // 2

        def read(number):
            limiter.hold(share, share)
            done.append(number)
            go_on.wait(client.TIMEOUT_SECONDS)
            limiter.hold(0, 0)

        threads = [threading.Thread(target=read, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + client.TIMEOUT_SECONDS
        while len(done) < 2 and time.monotonic() < deadline:
            time.sleep(0.005)
        self.assertLessEqual(sum(limiter._held.values()), 4 * http_exchange._LIMIT_BYTES)
        self.assertEqual(len(done), 2)
        go_on.set()
        for thread in threads:
            thread.join(client.TIMEOUT_SECONDS)
        self.assertEqual(len(done), 4)
        self.assertEqual(sum(limiter._held.values()), 0)

    def test_a_body_larger_than_the_limit_is_read_alone(self):
        limiter = http_exchange.ByteLimiter()
        limiter.hold(http_exchange._LIMIT_BYTES, http_exchange._LIMIT_BYTES)
        limiter.hold(0, 0)


if __name__ == '__main__':
    unittest.main()
