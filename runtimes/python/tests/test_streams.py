"""Tests streams and concurrent calls of a runtime process."""

import struct
import threading
import unittest

from client import RuntimeProcess
from rookery_runtime import protocol


CODE = '''
    import asyncio
    import threading
    def values(event, context):
        yield 'text'
        yield None
        yield {'a': 1}
        return 'end'
    async def values_async(event, context):
        yield 'text'
        await asyncio.sleep(0)
        yield None
        yield {'a': 1}
    def write(event, context):
        stream = context.get_stream()
        for part in event:
            stream.write(part)
        return 'end'
    async def write_async(event, context):
        stream = context.getStream()
        for part in event:
            await stream.awrite(part)
        return 'end'
    def endless(event, context):
        while True:
            yield 'x' * 100
    def broken(event, context):
        yield 'one'
        raise ValueError('boom')
    def coroutine(event, context):
        async def later():
            await asyncio.sleep(0)
            return event
        return later()
    kept = []
    def keep(event, context):
        if event == 'late':
            kept[0].write('late')
        else:
            kept.append(context.get_stream())
    left = []
    def leave(event, context):
        if event == 'ended':
            for thread in left:
                thread.join(30)
            return not any(thread.is_alive() for thread in left)
        stream = context.get_stream()
        begun = threading.Event()
        def write():
            try:
                while True:
                    stream.write('x')
                    begun.set()
            except RuntimeError:
                pass
        left.append(threading.Thread(target=write, daemon=True))
        left[-1].start()
        begun.wait()
'''


class Streams(unittest.TestCase):
    def read(self, data):
        """Returns the chunks before the answer, and the answer."""
        chunks = []
        while True:
            frame = data.receive()
            if frame.kind != protocol.CHUNK:
                return chunks, frame
            chunks.append(frame.payload.decode('utf-8'))

    def each(self, *handlers):
        for name in handlers:
            for concurrency in (1, 3):
                with RuntimeProcess({'main.py': CODE}) as runtime:
                    data, control = runtime.init('main.' + name, concurrency=concurrency)
                    yield name, data, control

    def test_a_generators_values_are_chunks_and_its_return_value_the_result(self):
        for name, data, _ in self.each('values', 'values_async'):
            data.start(stream=True, credit=1000)
            chunks, answer = self.read(data)
            self.assertEqual(chunks, ['text', '{"a":1}'])
            self.assertEqual(answer.value, None if name == 'values_async' else 'end')

    def test_a_generator_without_a_stream_answers_an_array(self):
        for _, data, _ in self.each('values', 'values_async'):
            self.assertEqual(data.call().value, ['text', None, {'a': 1}])

    def test_bytes_of_a_generator_fail_with_4007_with_and_without_a_stream(self):
        code = '''
            def plain(event, context):
                yield b'x'
            async def coroutine(event, context):
                yield b'x'
        '''
        for name in ('plain', 'coroutine'):
            with RuntimeProcess({'main.py': code}) as runtime:
                data, _ = runtime.init('main.' + name)
                self.assertEqual(data.call().error[0], 4007)
                data.start(stream=True, credit=1000)
                chunks, answer = self.read(data)
                self.assertEqual((chunks, answer.error[0]), ([], 4007))

    def test_an_endless_generator_without_a_stream_is_too_large(self):
        with RuntimeProcess({'main.py': CODE}) as runtime:
            data, _ = runtime.init('main.endless', maxResultBytes=1000)
            self.assertEqual(data.call().error, (4004, 'response body size 1031 exceeds the limit of 1000'))

    def test_get_stream_fails_when_the_caller_takes_none(self):
        for _, data, _ in self.each('write', 'write_async'):
            self.assertIn('RuntimeError: there is no stream', data.call(['a']).error[1])

    def test_a_writer_waits_for_credit_and_overdraws_by_one_chunk_at_most(self):
        for name, data, control in self.each('write', 'write_async'):
            call_id = data.start(['12345'] * 6, stream=True, credit=6)
            received = [data.receive() for _ in range(2)]
            self.assertEqual([bytes(frame.payload) for frame in received], [b'12345'] * 2)
            control.send(protocol.PING, 0)
            self.assertEqual(control.receive().json['running'], 1)
            data.socket.setblocking(False)
            self.assertRaises(BlockingIOError, data.socket.recv, 1)
            data.socket.settimeout(30)
            control.send(protocol.CREDIT, call_id, struct.pack('>I', 4))  # the credit is overdrawn by 4
            control.send(protocol.CREDIT, call_id, struct.pack('>I', 1))
            self.assertEqual(bytes(data.receive().payload), b'12345')
            control.send(protocol.CREDIT, call_id, struct.pack('>I', 1000))
            chunks, answer = self.read(data)
            self.assertEqual((chunks, answer.value), (['12345'] * 3, 'end'))

    def test_a_writer_that_waits_for_credit_is_cancelled(self):
        for name, data, control in self.each('write', 'write_async', 'endless'):
            call_id = data.start(['12345'] * 3, stream=True, credit=1)
            data.receive()
            control.send(protocol.CANCEL, call_id, {'reason': 'timeout'})
            self.assertEqual(data.receive().error[0], 4010)

    def test_a_generator_that_raises_is_4002_after_its_chunks(self):
        with RuntimeProcess({'main.py': CODE}) as runtime:
            data, _ = runtime.init('main.broken')
            data.start(stream=True, credit=1000)
            chunks, answer = self.read(data)
            self.assertEqual((chunks, answer.error[0]), (['one'], 4002))

    def test_a_plain_function_may_return_a_coroutine(self):
        for _, data, _ in self.each('coroutine'):
            self.assertEqual([data.call(number).value for number in range(3)], [0, 1, 2])

    def test_a_stream_ends_with_its_call(self):
        with RuntimeProcess({'main.py': CODE}) as runtime:
            data, _ = runtime.init('main.keep')
            data.call('keep', stream=True, credit=10)
            self.assertIn('the stream has ended', data.call('late').error[1])

    def test_an_abandoned_thread_sends_no_chunk_after_the_answer(self):
        for _, data, _ in self.each('leave'):
            for _ in range(200):
                call_id = data.start(stream=True, credit=1 << 30)
                frame = data.receive()
                while frame.kind == protocol.CHUNK:
                    self.assertEqual(frame.call_id, call_id)
                    frame = data.receive()
            self.assertTrue(data.call('ended').value)

    def test_a_thread_that_was_left_behind_waits_for_no_credit(self):
        for _, data, _ in self.each('leave'):
            data.start(stream=True, credit=1)
            self.read(data)
            self.assertTrue(data.call('ended').value)


class Concurrency(unittest.TestCase):
    def test_the_concurrency_limits_the_calls_that_run_at_once(self):
        code = '''
            import asyncio, os, threading, time
            lock = threading.Lock()
            running = []
            most = []
            def beside(name):
                return os.path.join(os.path.dirname(__file__), name)
            def go():
                return os.path.exists(beside('go'))
            def begin():
                with lock:
                    running.append(1)
                    most.append(len(running))
                    open(beside('begun-%d' % len(most)), 'w').close()
            def end():
                with lock:
                    running.pop()
                    return max(most)
            def handler(event, context):
                begin()
                while not go():
                    time.sleep(0.005)
                return end()
            async def handler_async(event, context):
                begin()
                while not go():
                    await asyncio.sleep(0.005)
                return end()
        '''
        for name in ('handler', 'handler_async'):
            with RuntimeProcess({'main.py': code}) as runtime:
                data, control = runtime.init('main.' + name, concurrency=3)
                for _ in range(7):
                    data.start()
                # The other calls wait in the runtime, or in the kernel when no thread is free to read them.
                self.assertEqual(control.wait_for_running(3), 3)
                # A call counts as running before its handler has begun.
                runtime.wait_for('begun-3')
                runtime.write('go', '')
                self.assertEqual([data.receive().value for _ in range(7)], [3] * 7)

    def test_more_waiting_calls_than_are_read_ahead_are_all_answered_in_order(self):
        for name, concurrency in (('handler', 1), ('handler', 2), ('handler_async', 2)):
            code = '''
                def handler(event, context): return event
                async def handler_async(event, context): return event
            '''
            with RuntimeProcess({'main.py': code}) as runtime:
                data, _ = runtime.init('main.' + name, concurrency=concurrency)
                runtime.open()
                writer = threading.Thread(target=lambda: [data.start(number) for number in range(3000)])
                writer.start()
                values = [data.receive().value for _ in range(3000)]
                writer.join()
                if concurrency == 2:
                    values.sort()
                self.assertEqual(values, list(range(3000)))


if __name__ == '__main__':
    unittest.main()
