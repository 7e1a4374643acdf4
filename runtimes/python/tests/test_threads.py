"""Tests parallel calls of a plain handler in the pool of threads."""
import glob
import os
import threading
import time
import unittest

from client import RuntimeProcess, protocol

CODE = '''
    import os, signal, threading, time
    HERE = os.path.dirname(__file__)
    barrier = threading.Barrier(4)
    lock = threading.Lock()
    running = []
    most = []
    def there(name):
        return os.path.exists(os.path.join(HERE, name))
    def touch(name):
        open(os.path.join(HERE, name), 'w').close()
    def handler(event, context):
        if event == 'meet':
            return barrier.wait(20) >= 0
        if event == 'wait':
            touch('begun')
            while not there('go'):
                time.sleep(0.002)
        if event == 'spin':
            touch('begun')
            while True:
                pass
        if event == 'alarm':
            os.kill(os.getpid(), signal.SIGALRM)
        if event == 'main':
            return threading.current_thread() is threading.main_thread()
        if isinstance(event, list):
            with lock:
                running.append(1)
                most.append(len(running))
            time.sleep(event[0] / 1e6)
            with lock:
                running.pop()
                event.append(max(most))
        return event
        if event == 'storm':
            signal.setitimer(signal.ITIMER_REAL, 0.0003, 0.0003)
        if event == 'calm':
            signal.setitimer(signal.ITIMER_REAL, 0)
    def initializer(context):
        def fail(number, frame):
            touch('rung')
            raise TimeoutError('a late alarm')
        signal.signal(signal.SIGALRM, fail)
'''


class Threads(unittest.TestCase):
    def warm(self, data):
        """Makes many short calls, one after the other."""
        for number in range(100):
            self.assertEqual(data.call(number).value, number)

    def test_calls_that_wait_for_each_other_run_at_once_whatever_ran_before(self):
        with RuntimeProcess({'main.py': CODE}) as runtime:
            data, _ = runtime.init(concurrency=4)
            for _ in range(5):
                ids = set(data.start('meet') for _ in range(4))
                for _ in range(4):
                    answer = data.receive()
                    self.assertIs(answer.value, True)
                    ids.remove(answer.call_id)
                self.warm(data)

    def test_a_call_that_gets_long_holds_up_nothing(self):
        for event in ('wait', 'spin'):
            with RuntimeProcess({'main.py': CODE}) as runtime:
                data, control = runtime.init(concurrency=3)
                other, _ = runtime.open()
                self.warm(data)
                long = data.start(event)
                runtime.wait_for('begun')
                self.assertEqual(data.call('next').value, 'next')
                self.assertEqual(other.call('of another').value, 'of another')
                control.send(protocol.PING, 0)
                self.assertEqual(control.receive().json, {'running': 1, 'queued': 0})
                if event == 'wait':
                    runtime.write('go', '')
                    self.assertEqual(data.receive().value, event)
                else:
                    control.send(protocol.CANCEL, long, {'reason': 'timeout'})
                    self.assertEqual(data.receive().error[0], 4010)
                self.warm(data)

    def test_a_queued_call_is_cancelled_at_once_while_all_threads_are_busy(self):
        with RuntimeProcess({'main.py': CODE}) as runtime:
            data, control = runtime.init(concurrency=2)
            self.warm(data)
            busy = {data.start('wait'), data.start('wait')}
            runtime.wait_for('begun')
            waiting = data.start('never')
            control.send(protocol.CANCEL, waiting, {'reason': 'timeout'})
            answer = data.receive()
            self.assertEqual((answer.call_id, answer.error[0]), (waiting, 4010))
            runtime.write('go', '')
            self.assertEqual({data.receive().call_id, data.receive().call_id}, busy)
            self.warm(data)

    def test_short_and_long_calls_of_two_connections_are_each_answered_once_and_never_too_many_run(self):
        with RuntimeProcess({'main.py': CODE}) as runtime:
            data, _ = runtime.init(concurrency=3)
            other, _ = runtime.open()

            def ask(connection, failures):
                try:
                    pauses = [3000 if number % 37 == 0 else 400 if number % 11 == 0 else 0 for number in range(600)]
                    open_calls = {}
                    while pauses or open_calls:
                        while pauses and len(open_calls) < 8:
                            pause = pauses.pop()
                            open_calls[connection.start([pause])] = pause
                        answer = connection.receive()
                        pause, most = answer.value
                        if pause != open_calls.pop(answer.call_id) or most > 3:
                            failures.append(answer)
                except Exception as error:
                    failures.append(error)

            failures = []
            asking = [threading.Thread(target=ask, args=(connection, failures)) for connection in (data, other)]
            for thread in asking:
                thread.start()
            for thread in asking:
                thread.join()
            self.assertEqual(failures, [])

    def test_calls_run_outside_of_the_main_thread_and_survive_exceptions_of_signal_handlers(self):
        with RuntimeProcess({'main.py': CODE}) as runtime:
            data, control = runtime.init(concurrency=2, initializer='main.initializer')
            self.warm(data)
            self.assertIs(data.call('main').value, False)
            for _ in range(3):
                self.assertEqual(data.call('alarm').value, 'alarm')
            runtime.wait_for('rung')
            self.warm(data)
            another, _ = runtime.open()
            self.warm(another)
            control.send(protocol.STOP, 0, {'graceMs': 5000})
            self.assertEqual(control.receive().json, {})
            self.assertEqual(runtime.wait(), 0)
            self.assertIn('a late alarm', runtime.log())

    def test_a_storm_of_such_exceptions_ends_nothing(self):
        with RuntimeProcess({'main.py': CODE}) as runtime:
            data, control = runtime.init(concurrency=2, initializer='main.initializer')
            self.assertEqual(data.call('storm').value, 'storm')
            for _ in range(10):
                self.warm(data)
            self.assertEqual(data.call('calm').value, 'calm')
            another, _ = runtime.open()
            self.warm(another)
            control.send(protocol.STOP, 0, {'graceMs': 5000})
            self.assertEqual(control.receive().json, {})

    def test_an_idle_runtime_has_no_watching_thread(self):
        with RuntimeProcess({'main.py': CODE}) as runtime:
            data, _ = runtime.init(concurrency=4)
            self.warm(data)
            for _ in range(100):
                before = self.switches(runtime)
                time.sleep(0.1)
                if self.switches(runtime) == before:
                    return
            self.fail('threads wake up although nothing runs')

    def switches(self, runtime):
        count = 0
        for path in glob.glob('/proc/%d/task/*/status' % runtime.process.pid):
            with open(path) as file:
                count += sum(int(line.split()[1]) for line in file if line.startswith('voluntary'))
        return count


if __name__ == '__main__':
    unittest.main()
