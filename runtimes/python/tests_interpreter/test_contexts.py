"""Tests contexts, interrupts and the HTTP server."""
import json
import os
import signal
import socket
import unittest

from interpreter import SECONDS, WithInterpreter


class IdleProcesses(WithInterpreter):
    #: Longer than any test waits.
    IDLE_WATCH_MS = 10 * SECONDS * 1000

    def test_the_next_cell_does_not_wait_for_a_program_that_outlives_its_idle_kernel(self):
        context = self.new_context()
        code = 'import os, signal\nchild = os.fork()\nif child == 0:\n    signal.pause()\n[os.getpid(), child]'
        pid, child = json.loads(self.run_cell(code, context_id=context).text)
        self.addCleanup(self.kill, child)
        self.kill(pid)
        self.wait_end(pid)
        self.assertEqual(self.run_cell('child', context_id=context).error['name'], 'NameError')

    @unittest.skipUnless(hasattr(os, 'pidfd_open'), 'older versions look every five seconds')
    def test_a_program_that_outlives_its_kernel_does_not_hold_the_first_cell(self):
        code = 'import os\nif os.fork() == 0:\n    while True: pass\nos._exit(0)'
        self.assertEqual(self.run_cell(code, context_id=self.new_context()).error['name'], 'KernelDied')

    @staticmethod
    def kill(pid):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # the interpreter has ended it

    @staticmethod
    def wait_end(pid):
        """Waits until a process has ended, whether its parent has seen that or not."""
        while True:
            try:
                with open('/proc/%d/stat' % pid) as stat:
                    if stat.read().rpartition(')')[2].split()[0] == 'Z':
                        return
            except OSError:
                return


class Contexts(WithInterpreter):
    def test_the_default_context_exists_and_new_ones_are_last(self):
        listed = json.loads(self.ask('GET', '/contexts')[1])
        self.assertEqual((listed[0]['language'], listed[0]['cwd']), ('python', self.home))
        status, text = self.ask('POST', '/contexts', {'language': 'python', 'cwd': '/tmp'})
        context = json.loads(text)
        self.assertEqual((status, context['language'], context['cwd']), (200, 'python', '/tmp'))
        self.assertEqual(json.loads(self.ask('GET', '/contexts')[1])[-1], context)
        self.assertEqual(self.run_cell('import os; os.getcwd()', context_id=context['id']).text, '/tmp')

    def test_a_missing_directory_is_made(self):
        context = self.new_context(cwd='new/one')
        answer = self.run_cell('import os; os.getcwd()', context_id=context)
        self.assertEqual(answer.text, os.path.join(self.home, 'new/one'))
        status, text = self.ask('POST', '/contexts', {'cwd': '/proc/none'})
        self.assertEqual((status, '/proc/none' in text), (400, True))
        for wrong in ('a\0b', '\ud800'):
            self.assertEqual(self.ask('POST', '/contexts', {'cwd': wrong})[0], 400)
            self.assertEqual(self.ask('POST', '/execute', {'code': '1', 'env_vars': {'A': wrong}})[0], 400)

    def test_names_belong_to_one_context_and_a_restart_ends_them(self):
        one, other = self.new_context(), self.new_context()
        self.run_cell('x = 1', context_id=one)
        self.assertEqual(self.run_cell('x', context_id=other).error['name'], 'NameError')
        self.assertEqual(self.run_cell('x', context_id=one).count, 2)
        self.assertEqual(self.ask('POST', '/contexts/%s/restart' % one), (200, 'null'))
        answer = self.run_cell('x', context_id=one)
        self.assertEqual((answer.error['name'], answer.count), ('NameError', 1))

    def test_a_removed_context_is_unknown(self):
        context = self.new_context()
        self.run_cell('1', context_id=context)
        self.assertEqual(self.ask('DELETE', '/contexts/' + context), (200, 'null'))
        unknown = (404, 'Context %s not found' % context)
        self.assertEqual(self.ask('DELETE', '/contexts/' + context), unknown)
        self.assertEqual(self.ask('POST', '/contexts/%s/restart' % context), unknown)
        self.assertEqual(self.ask('POST', '/execute', {'code': '1', 'context_id': context}), unknown)

    def test_restart_and_removal_end_a_running_cell_with_an_error(self):
        for method, path, name in [('POST', '/restart', 'ContextRestarted'), ('DELETE', '', 'ContextRemoved')]:
            context = self.new_context()
            with self.started('print(1)\nwhile True: pass', context_id=context) as running:
                self.wait_text(running, b'1')
                self.assertEqual(self.ask(method, '/contexts/%s%s' % (context, path))[0], 200)
                self.assertIn(name, running.read().decode())

    def test_the_end_of_a_process_ends_only_its_own_context(self):
        one, other = self.new_context(), self.new_context()
        self.run_cell('x = 1', context_id=other)
        error = self.run_cell('print("last words"); import os; os._exit(3)', context_id=one).error
        self.assertEqual(error['name'], 'KernelDied')
        self.assertIn('ended with code 3', error['value'])
        self.assertEqual(self.run_cell('x', context_id=other).text, '1')
        self.assertEqual(self.run_cell('2', context_id=one).text, '2')
        killed = self.run_cell('import os; os.kill(os.getpid(), 9)', context_id=one)
        self.assertIn('killed by signal 9', killed.error['value'])

    def test_a_copy_of_the_process_ends_after_the_cell(self):
        context = self.new_context()
        answer = self.run_cell('import os\nif os.fork() == 0: pass\nelse: os.wait()\nNone', context_id=context)
        self.assertEqual(answer.error, None)
        self.assertEqual(self.run_cell('3', context_id=context).text, '3')

    def test_a_program_that_outlives_its_kernel_does_not_hold_the_cell(self):
        context = self.new_context()
        code = 'import os\nif os.fork() == 0:\n    while True: pass\nos._exit(0)'
        self.assertEqual(self.run_cell(code, context_id=context).error['name'], 'KernelDied')

    def test_contexts_run_side_by_side(self):
        gate = self.path('side')
        os.mkfifo(gate)
        with self.started('open(%r).read()' % gate, context_id=self.new_context()) as waiting:
            self.assertEqual(self.run_cell('4', context_id=self.new_context()).text, '4')
            with open(gate, 'w') as writer:
                writer.write('opened')
            self.assertIn(b'opened', waiting.read())

    def test_cells_of_one_context_run_in_the_order_in_which_they_came(self):
        context, gate = self.new_context(), self.path('order')
        os.mkfifo(gate)
        with self.started('print(0)\nopen(%r).read()\nx = 1' % gate, context_id=context) as first:
            self.wait_text(first, b'0')
            waiting = self.connect()
            waiting.request('POST', '/execute', json.dumps({'code': 'x += 1; x', 'context_id': context}))
            with open(gate, 'w'):
                pass
            first.read()
            self.assertIn(b'"text":"2"', waiting.getresponse().read())

    def test_a_client_that_goes_away_interrupts_its_cell_and_names_stay(self):
        for code in ['while True: pass', 'import os; os.system("sleep 1000")', '!sleep 1000',
                     'import time; time.sleep(1000)']:
            context = self.new_context()
            self.run_cell('x = 7', context_id=context)
            with self.started('print("runs")\n' + code, context_id=context) as running:
                self.wait_text(running, b'runs')
            self.assertEqual(self.run_cell('x', context_id=context).text, '7', code)

    def test_a_client_that_goes_away_while_it_waits_runs_nothing(self):
        context, gate = self.new_context(), self.path('left')
        os.mkfifo(gate)
        with self.started('print(0)\nopen(%r).read()\nx = 1' % gate, context_id=context) as first:
            self.wait_text(first, b'0')
            waiting = self.connect()
            waiting.request('POST', '/execute', json.dumps({'code': 'x = 2', 'context_id': context}))
            waiting.close()
            with open(gate, 'w'):
                pass
            first.read()
        self.assertEqual(self.run_cell('x', context_id=context).text, '1')


class Ignored(WithInterpreter):
    KILL_SECONDS = 0.5

    def test_a_cell_that_ignores_interrupts_loses_its_process(self):
        context = self.new_context()
        code = 'import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint("runs")\nwhile True: pass'
        with self.started(code, context_id=context) as running:
            self.wait_text(running, b'runs')
        self.assertEqual(self.run_cell('8', context_id=context).text, '8')


class Http(WithInterpreter):
    def test_health_is_ok(self):
        self.assertEqual(self.ask('GET', '/health'), (200, '"OK"'))

    def test_errors_are_texts(self):
        for status, part, method, path, body in [
                (404, 'no such path', 'GET', '/other', None),
                (404, 'no such path', 'DELETE', '/contexts', None),
                (404, 'Context x not found', 'POST', '/execute', {'code': '1', 'context_id': 'x'}),
                (400, 'not both', 'POST', '/execute', {'code': '1', 'context_id': 'x', 'language': 'python'}),
                (400, 'code must be', 'POST', '/execute', {}),
                (400, 'must be a JSON object', 'POST', '/execute', []),
                (400, 'env_vars must be', 'POST', '/execute', {'code': '1', 'env_vars': {'A': 1}}),
                (400, 'env_vars must be', 'POST', '/execute', {'code': '1', 'env_vars': {'A=B': '1'}}),
                (400, 'cwd must be', 'POST', '/contexts', {'cwd': 1}),
                (500, 'language cobol cannot be started', 'POST', '/execute', {'code': '1', 'language': 'cobol'})]:
            answered, text = self.ask(method, path, body)
            self.assertEqual((answered, part in text), (status, True), text)

    def test_a_query_and_a_body_in_chunks_are_accepted(self):
        connection = self.connect()
        body = iter([b'{"code":', b'"1 + 1"}'])
        headers = {'Transfer-Encoding': 'chunked'}
        connection.request('POST', '/execute?source=ci', body, headers, encode_chunked=True)
        self.assertIn(b'"text":"2"', connection.getresponse().read())

    def test_a_connection_serves_several_requests(self):
        connection = self.connect()
        for _ in range(2):
            connection.request('POST', '/execute', '{"code": "1"}')
            self.assertIn(b'end_of_execution', connection.getresponse().read())

    def test_a_client_without_chunks_reads_to_the_end_of_the_connection(self):
        body = b'{"code": "5 + 5"}'
        with socket.create_connection(('127.0.0.1', self.port), SECONDS) as connection:
            connection.sendall(b'POST /execute HTTP/1.0\r\nContent-Length: %d\r\n\r\n%s' % (len(body), body))
            answer = connection.makefile('rb').read()
        self.assertTrue(answer.endswith(b'{"type":"end_of_execution"}\n'), answer)
