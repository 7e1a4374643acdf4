"""Tests the stop, the connections, the context object and forks of a runtime process."""

import os
import random
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import uuid

from client import HERE, SECRET, Connection, RuntimeProcess, init_message, wait_until
import rookery_runtime
from rookery_runtime import protocol

PRE_STOP = '''
    import asyncio, os, time, atexit
    atexit.register(lambda: print('exit function'))
    def handler(event, context):
        if event == 'sleep':
            time.sleep(60)
        context.state['n'] = event
    async def handler_async(event, context):
        if event == 'sleep':
            await asyncio.sleep(60)
        context.state['n'] = event
    def stop(context):
        print('stopped with', context.state, context.name)
    def stop_plain():
        print('stopped')
    async def stop_async(context):
        print('stopped with', context.state, context.name)
    def stop_broken():
        raise ValueError('boom')
    def stop_slow():
        time.sleep(60)
'''


class Stop(unittest.TestCase):
    def stop(self, control, grace_ms=10000):
        control.send(protocol.STOP, 0, {'graceMs': grace_ms})
        return control.receive()

    def test_pre_stop_runs_once_after_the_calls_and_the_runtime_exits_with_0(self):
        for name in ('stop', 'stop_plain', 'stop_async'):
            with RuntimeProcess({'main.py': PRE_STOP}) as runtime:
                data, control = runtime.init(preStop='main.' + name)
                data.call(5)
                stopped = self.stop(control)
                self.assertEqual((stopped.kind, stopped.json), (protocol.STOPPED, {}))
                self.assertEqual(runtime.wait(), 0)
                self.assertEqual(runtime.log(), (
                    'stopped\n' if name == 'stop_plain' else "stopped with {'n': 5} agent\n") + 'exit function\n')

    def test_running_calls_are_cancelled_and_queued_ones_refused(self):
        with RuntimeProcess({'main.py': PRE_STOP}) as runtime:
            data, control = runtime.init(preStop='main.stop_plain')
            running = data.start('sleep')
            queued = data.start(1)
            control.wait_for_running(1)
            stopped = self.stop(control)
            self.assertEqual(stopped.json, {})
            answers = dict((answer.call_id, answer.error[0]) for answer in (data.receive(), data.receive()))
            self.assertEqual(answers, {running: 4002, queued: 4000})
            self.assertEqual(runtime.wait(), 0)

    def test_a_stop_may_come_over_the_data_connection(self):
        for handler, concurrency in (('main.handler', 1), ('main.handler', 4), ('main.handler_async', 1)):
            for pre_stop, said in (('', ''), ('main.stop', "stopped with {'n': 5} agent\n")):
                with RuntimeProcess({'main.py': PRE_STOP}) as runtime:
                    data = runtime.connect()
                    self.assertIs(data.hello.json['stopsOverData'], True)
                    runtime.init(handler, data, concurrency=concurrency, preStop=pre_stop)
                    data.call(5)
                    stopped = self.stop(data)
                    self.assertEqual((stopped.kind, stopped.json), (protocol.STOPPED, {}))
                    self.assertEqual(runtime.wait(), 0)
                    self.assertEqual(runtime.log(), said + 'exit function\n')

    def test_a_stop_over_either_connection_ends_running_calls_within_the_same_limit(self):
        with RuntimeProcess({'main.py': PRE_STOP}) as runtime:
            data, _ = runtime.init('main.handler_async', concurrency=2, preStop='main.stop_slow')
            other = runtime.connect()
            running = other.start('sleep')
            self.wait_for_a_call(runtime, other.client)
            error = self.stop(data, 200).json['error']
            self.assertEqual(error, {'code': 4009, 'message': 'pre_stop timed out after 0.2 s'})
            answer = other.receive()
            self.assertEqual((answer.call_id, answer.error[0]), (running, 4002))
            self.assertEqual(runtime.wait(), 0)

    def test_exit_functions_have_a_time_limit(self):
        for over_data in (False, True):
            with RuntimeProcess({'main.py': PRE_STOP + '    atexit.register(time.sleep, 60)\n'}) as runtime:
                data, control = runtime.init()
                self.assertEqual(self.stop(data if over_data else control, 200).json['error']['code'], 4009)
                self.assertEqual(runtime.wait(), 0)

    def wait_for_a_call(self, runtime, client):
        """Waits until a call of this client runs."""
        runtime.connect('control', client).wait_for_running(1)

    def test_a_waiting_stop_is_answered_when_another_stop_ends_its_call(self):
        with RuntimeProcess({'main.py': PRE_STOP}) as runtime:
            data, control = runtime.init()
            running = data.start('sleep')
            self.wait_for_a_call(runtime, data.client)
            data.send(protocol.STOP, 0, {'graceMs': 60000})
            self.assertEqual(self.stop(control).json, {})
            answer = data.receive()
            self.assertEqual((answer.call_id, answer.error[0]), (running, 4002))
            self.assertEqual((data.receive().kind, runtime.wait()), (protocol.STOPPED, 0))

    def test_an_invalid_stop_ends_only_its_data_connection(self):
        with RuntimeProcess({'main.py': PRE_STOP}) as runtime:
            data, _ = runtime.init()
            other = runtime.connect()
            data.send(protocol.STOP, 0, {'graceMs': 'soon'})
            self.assertTrue(data.at_end())
            self.assertEqual(other.call(1).value, None)

    def test_a_pre_stop_that_fails_is_missing_or_takes_too_long_is_4009_and_in_the_log(self):
        for name, text in (('stop_broken', 'ValueError: boom'), ('stop_missing', 'has no function stop_missing'),
                           ('stop_slow', 'pre_stop timed out after 0.2 s')):
            with RuntimeProcess({'main.py': PRE_STOP}) as runtime:
                data, control = runtime.init(preStop='main.' + name)
                self.assertEqual(data.init.kind, protocol.INIT_OK)
                error = self.stop(control, 200 if name == 'stop_slow' else 10000).json['error']
                self.assertEqual(error['code'], 4009)
                self.assertIn(text, error['message'])
                self.assertEqual(runtime.wait(), 0)
                self.assertIn(text, runtime.log())

    def test_a_new_runtime_and_a_failed_one_stop_without_pre_stop(self):
        with RuntimeProcess() as runtime:
            _, control = runtime.open()
            self.assertEqual(self.stop(control).json, {})
            self.assertEqual(runtime.wait(), 0)
        with RuntimeProcess({'main.py': PRE_STOP}) as runtime:
            _, control = runtime.init('main.nothing', preStop='main.stop')
            self.assertEqual(self.stop(control).json, {})
            self.assertEqual(runtime.wait(), 0)
            self.assertNotIn('stopped', runtime.log())

    def test_sigterm_is_a_stop(self):
        for name in ('handler', 'handler_async'):
            code = PRE_STOP + '    async def handler_async(event, context): pass\n'
            with RuntimeProcess({'main.py': code}) as runtime:
                runtime.init('main.' + name, preStop='main.stop_plain')
                runtime.process.send_signal(signal.SIGTERM)
                self.assertEqual(runtime.wait(), 0)
                self.assertIn('stopped\n', runtime.log())


class Robust(unittest.TestCase):
    def test_an_exception_of_a_signal_handler_between_two_calls_ends_nothing(self):
        code = '''
            import os, signal
            def handler(event, context):
                def fail(number, frame):
                    open(os.path.join(os.path.dirname(__file__), 'rung'), 'w').close()
                    raise TimeoutError('a late alarm')
                signal.signal(signal.SIGALRM, fail)
                if event:
                    signal.setitimer(signal.ITIMER_REAL, 0.05)
                return event
            async def handler_async(event, context):
                return handler(event, context)
        '''
        for name in ('handler', 'handler_async'):
            with RuntimeProcess({'main.py': code}) as runtime:
                data, _ = runtime.init('main.' + name)
                self.assertEqual(data.call(1).value, 1)
                runtime.wait_for('rung')
                self.assertEqual(data.call(0).value, 0)
                self.assertIn('a late alarm', runtime.log())

    def test_code_that_closes_every_descriptor_ends_its_instance(self):
        code = 'import os\ndef handler(event, context):\n    os.closerange(3, 256)\n'
        with RuntimeProcess({'main.py': code}) as runtime:
            data, control = runtime.init()
            data.start()
            self.assertEqual(runtime.wait(), 1)


class Connections(unittest.TestCase):
    def test_a_wrong_hello_is_4000_and_the_end(self):
        with RuntimeProcess() as runtime:
            for fields in ({'secret': 'wrong'}, {'secret': None}, {'version': 2}, {'role': 'other'}):
                connection = runtime.connect(**fields)
                self.assertEqual(connection.hello.error[0], 4000)
                self.assertNotIn(SECRET, connection.hello.error[1])
                self.assertTrue(connection.at_end())
            self.assertEqual(runtime.connect().hello.kind, protocol.HELLO_OK)

    def test_a_frame_that_is_too_large_or_out_of_place_closes_its_connection_only(self):
        with RuntimeProcess({'main.py': 'def handler(event, context):\n    return 1\n'}) as runtime:
            data, control = runtime.init()
            for broken in (struct.pack('>IBI', 7 * 1024 * 1024 + 1, protocol.CALL, 1), struct.pack('>IBI', 4, 5, 1),
                           protocol.frame(protocol.PING, 0), protocol.frame(protocol.CALL, 1, b'\xff\xff{}'),
                           protocol.frame(protocol.CALL, 0, b'\0\2{}1'), protocol.frame(99, 1)):
                other, _ = runtime.open()
                other.socket.sendall(broken)
                self.assertTrue(other.at_end())
            control.send(protocol.STOP, 0, {'graceMs': 'x'})
            self.assertTrue(control.at_end())
            self.assertEqual(data.call().value, 1)

    def test_frames_may_come_in_pieces_and_together(self):
        with RuntimeProcess({'main.py': 'def handler(event, context):\n    return event\n'}) as runtime:
            data, _ = runtime.init()
            whole = b''.join(
                protocol.frame(protocol.CALL, number, b'\0\2{}' + str(number).encode('ascii')) for number in range(1, 4))
            for offset in range(len(whole)):
                data.socket.sendall(whole[offset:offset + 1])
            self.assertEqual([data.receive().value for _ in range(3)], [1, 2, 3])
            data.socket.sendall(whole)
            self.assertEqual([data.receive().value for _ in range(3)], [1, 2, 3])

    def test_the_environment_keeps_no_secret(self):
        code = 'import os\ndef handler(event, context):\n    return sorted(k for k in os.environ if k.startswith("ROOKERY"))\n'
        with RuntimeProcess({'main.py': code}, {'ROOKERY_TENANT': 't'}) as runtime:
            data, _ = runtime.init()
            self.assertEqual(data.call().value, ['ROOKERY_TENANT'])

    def test_an_idle_runtime_uses_no_processor_time_and_leaves_no_descriptors_behind(self):
        for name in ('handler', 'handler_async'):
            code = 'def handler(e, c): pass\nasync def handler_async(e, c): pass\n'
            with RuntimeProcess({'main.py': code}) as runtime:
                data, control = runtime.init('main.' + name)

                def settled():
                    for connection in runtime.open():
                        connection.close()
                    control.send(protocol.PING, 0)
                    control.receive()
                    data.call()
                    return len(os.listdir('/proc/%d/fd' % runtime.process.pid))

                before = settled()
                for _ in range(50):
                    settled()
                deadline = time.monotonic() + 20
                while settled() > before + 2:
                    self.assertLess(time.monotonic(), deadline, 'descriptors pile up')
                ticks = self.ticks(runtime)
                wait_until(lambda: self.switches(runtime) == self.switches(runtime))
                self.assertLessEqual(self.ticks(runtime) - ticks, 1)

    def ticks(self, runtime):
        with open('/proc/%d/stat' % runtime.process.pid) as file:
            return sum(int(field) for field in file.read().rsplit(')', 1)[1].split()[11:13])

    def switches(self, runtime):
        total = 0
        for task in os.listdir('/proc/%d/task' % runtime.process.pid):
            with open('/proc/%d/task/%s/status' % (runtime.process.pid, task)) as file:
                total += sum(int(line.split()[1]) for line in file if 'ctxt_switches' in line)
        return total


class ContextObject(unittest.TestCase):
    def test_the_context_names_the_call_and_the_instance(self):
        code = '''
            import logging, time
            def handler(event, context):
                return {
                    'texts': [context.trace_id, context.request_id, context.session_id, context.instance_id, context.tenant,
                              context.namespace, context.name, context.function_name, context.version],
                    'camel': [context.getTraceID(), context.getRequestID(), context.getSessionID(), context.getInstanceID(),
                              context.getTenantID(), context.getNamespace(), context.getName(), context.getFunctionName(),
                              context.getVersion()],
                    'numbers': [context.memory_mb, context.cpu_millis, context.getMemorySize(), context.getCPUNumber()],
                    'package': context.getPackage(), 'headers': context.headers,
                    'user': [context.getUserData('COLOUR'), context.env('NONE', 'x'), context.getUserData('NONE')],
                    'remaining': [context.remaining_ms(), context.getRemainingTimeInMilliSeconds()],
                    'deadline': context.deadline - time.time(), 'traceparent': [context.traceparent, context.traceparent],
                    'logger': isinstance(context.getLogger(), logging.Logger),
                }
        '''
        with RuntimeProcess({'main.py': code}, {'COLOUR': 'red'}) as runtime:
            data, _ = runtime.init()
            value = data.call(sessionId='s-1', headers={'x-a': 'b'}).value
            self.assertEqual(value['texts'], ['t-1', 'r-1', 's-1', 'i-1', 'default', 'ns', 'agent', '0@shop@order', '$latest'])
            self.assertEqual(value['camel'], value['texts'])
            self.assertEqual(value['numbers'], [256, 500, 256, 500])
            self.assertEqual((value['package'], value['headers']), ('shop', {'x-a': 'b'}))
            self.assertEqual(value['user'], ['red', 'x', None])
            for remaining in value['remaining']:
                self.assertTrue(0 < remaining <= 60000, remaining)
            self.assertTrue(0 < value['deadline'] <= 60)
            self.assertEqual(value['traceparent'][0], value['traceparent'][1])
            self.assertRegex(value['traceparent'][0], '^00-1{32}-[0-9a-f]{16}-01$')
            self.assertNotIn('2' * 16, value['traceparent'][0])
            self.assertIs(value['logger'], True)


class Fork(unittest.TestCase):
    def test_random_state_is_fresh_in_every_child(self):
        # The parent has begun to use this random state already.
        seen = {ssl.RAND_bytes(16).hex()}
        for _ in range(4):
            read_end, write_end = os.pipe()
            child = os.fork()
            if not child:
                rookery_runtime.after_fork()
                values = (random.random(), uuid.uuid4(), ssl.RAND_bytes(16).hex())
                os.write(write_end, ('%s %s %s' % values).encode('ascii'))
                os._exit(0)
            os.close(write_end)
            seen.update(os.read(read_end, 200).decode('ascii').split())
            os.close(read_end)
            os.waitpid(child, 0)
        self.assertEqual(len(seen), 13)

    def test_code_given_at_the_start_loads_once_before_the_first_connection(self):
        directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, directory)
        with open(os.path.join(directory, 'main.py'), 'w') as code:
            code.write('import os\nos.mkfifo(__file__ + ".loaded")\ndef handler(event, context): return event\n')
        message = init_message(directory, 'main.handler')
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with listener:
            listener.bind(os.path.join(directory, 'runtime.sock'))
            listener.listen(4)
            child = os.fork()
            if not child:
                try:
                    rookery_runtime.after_fork()
                    rookery_runtime.serve(listener, SECRET, message)
                finally:
                    os._exit(1)
        self.addCleanup(os.waitpid, child, 0)
        self.addCleanup(os.kill, child, signal.SIGKILL)
        wait_until(lambda: os.path.exists(os.path.join(directory, 'main.py.loaded')))
        # A second load would fail, because the file exists.
        connection = Connection(os.path.join(directory, 'runtime.sock'))
        self.addCleanup(connection.close)
        hello = {'version': 1, 'secret': SECRET, 'client': 'one', 'role': 'data'}
        connection.send(protocol.HELLO, 0, hello)
        self.assertEqual(connection.receive().kind, protocol.HELLO_OK)
        connection.send(protocol.INIT, 0, message)
        self.assertEqual(connection.receive().kind, protocol.INIT_OK)
        self.assertEqual(connection.call([1]).value, [1])

    def test_importing_starts_no_thread_opens_nothing_and_imports_what_serving_needs(self):
        code = '''
import os, sys, threading
before = os.listdir('/proc/self/fd')
import rookery_runtime
assert threading.active_count() == 1
assert len(os.listdir('/proc/self/fd')) == len(before)
assert 'asyncio' in sys.modules
'''
        environment = dict(os.environ, PYTHONPATH=os.path.dirname(HERE))
        self.assertEqual(subprocess.call([sys.executable, '-c', code], env=environment), 0)


if __name__ == '__main__':
    unittest.main()
