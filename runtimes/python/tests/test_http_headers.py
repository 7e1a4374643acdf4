"""Tests which headers of a call an HTTP server receives."""

import types
import unittest

import client  # It puts the runtime on the path.
from rookery_runtime import http_bridge


def headers_of(call_headers):
    context = types.SimpleNamespace(
        headers=call_headers, instance_id='i-1', trace_id='t-1', request_id='r-1', traceparent='', session_id=None)
    return http_bridge._headers(context, 'handler')


class Headers(unittest.TestCase):
    def test_the_headers_name_the_runtime(self):
        self.assertTrue(http_bridge.__file__.startswith(client.os.path.dirname(client.HERE)))

    def test_the_headers_of_the_call_reach_the_program(self):
        self.assertEqual(headers_of({'x-colour': 'red'})['x-colour'], b'red')

    def test_each_of_ours_is_there_once_and_is_ours(self):
        headers = headers_of({'content-type': 'text/plain', 'x-instance-id': 'another', 'x-rookery-handler': 'x'})
        names = [name.lower() for name in headers]
        self.assertEqual(len(names), len(set(names)))
        self.assertEqual(headers['Content-Type'], b'application/json')
        self.assertEqual(headers['X-Instance-Id'], b'i-1')
        self.assertEqual(headers['X-Rookery-Handler'], b'handler')

    def test_a_header_about_the_connection_of_the_caller_does_not(self):
        for name in ('accept-encoding', 'content-encoding', 'transfer-encoding', 'content-length', 'host'):
            self.assertNotIn(name, headers_of({name: 'x'}))


if __name__ == '__main__':
    unittest.main()
