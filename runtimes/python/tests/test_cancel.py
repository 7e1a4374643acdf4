"""Tests cancels and interrupts of calls in a runtime process."""

import os
import unittest

from client import RuntimeProcess
from rookery_runtime import protocol


CODE = '''
    import asyncio, os, time
    from rookery_runtime import CallCancelled
    def touch(name):
        open(os.path.join(os.path.dirname(__file__), name), 'w').close()
    def handler(event, context):
        if event == 'sleep':
            touch('begun')
            time.sleep(60)
        if event == 'spin':
            touch('begun')
            while True:
                pass
        if event == 'stubborn':
            count = 0
            while count < 2:
                try:
                    if not count:
                        touch('begun')
                    time.sleep(60)
                except CallCancelled:
                    count += 1
            return count
        if event == 'graceful':
            try:
                touch('begun')
                time.sleep(60)
            except CallCancelled as error:
                return str(error)
        if event == 'wait':
            touch('begun')
            while not os.path.exists(os.path.join(os.path.dirname(__file__), 'go')):
                time.sleep(0.01)
        return event
    async def handler_async(event, context):
        if event == 'sleep':
            touch('begun')
            await asyncio.sleep(60)
        if event == 'block':
            touch('begun')
            time.sleep(60)
        if event == 'graceful':
            try:
                touch('begun')
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                return 'cancelled'
        return event
'''


def cancel(control, call_id, reason):
    control.send(protocol.CANCEL, call_id, {'reason': reason})


class Cancel(unittest.TestCase):
    def begun(self, runtime):
        runtime.wait_for('begun')
        os.unlink(os.path.join(runtime.code_path, 'begun'))

    def test_a_cancel_interrupts_the_running_call_also_in_a_system_call_and_spares_the_next_call(self):
        for handler, events, concurrency in (
                ('handler', ('sleep', 'spin', 'stubborn'), 1), ('handler', ('spin',), 2),
                ('handler_async', ('sleep', 'block'), 1), ('handler_async', ('sleep',), 3)):
            with RuntimeProcess({'main.py': CODE}) as runtime:
                data, control = runtime.init('main.' + handler, concurrency=concurrency)
                for event in events:
                    for reason, code in (('timeout', 4010), ('caller', 4002), ('interrupt', 4002)):
                        call_id = data.start(event)
                        self.begun(runtime)
                        cancel(control, call_id, reason)
                        answer = data.receive()
                        if event == 'stubborn' and reason == 'interrupt':
                            self.assertEqual(answer.value, 2)
                        else:
                            self.assertEqual(answer.error[0], code, (handler, event, reason))
                        cancel(control, call_id, reason)
                        self.assertEqual(data.call('next').value, 'next')

    def test_a_queued_call_is_answered_at_once_and_never_runs(self):
        with RuntimeProcess({'main.py': CODE}) as runtime:
            data, control = runtime.init()
            first = data.start('wait')
            self.begun(runtime)
            second = data.start('sleep')
            third = data.start('third')
            cancel(control, second, 'timeout')
            answer = data.receive()
            self.assertEqual((answer.call_id, answer.error[0]), (second, 4010))
            runtime.write('go', '')
            self.assertEqual(data.receive().call_id, first)
            answer = data.receive()
            self.assertEqual((answer.call_id, answer.value), (third, 'third'))

    def test_a_cancel_that_overtakes_its_call_holds(self):
        with RuntimeProcess({'main.py': CODE}) as runtime:
            data, control = runtime.init()
            reasons = ('caller', 'timeout', 'interrupt')
            for call_id, reason in enumerate(reasons, 1):
                cancel(control, call_id, reason)
            control.send(protocol.PING, 0)
            control.receive()
            errors = [data.call(reason).error for reason in reasons]
            self.assertEqual([code for code, _ in errors], [4002, 4010, 4002])
            for (_, message), text in zip(errors, ('the caller went away', 'timed out', 'was interrupted')):
                self.assertIn(text, message)
            self.assertEqual(data.call('second').value, 'second')

    def test_an_interrupted_handler_may_answer_and_a_timed_out_one_may_not(self):
        for handler, value in (('handler', 'the call was interrupted'), ('handler_async', 'cancelled')):
            with RuntimeProcess({'main.py': CODE}) as runtime:
                data, control = runtime.init('main.' + handler)
                call_id = data.start('graceful')
                self.begun(runtime)
                cancel(control, call_id, 'interrupt')
                self.assertEqual(data.receive().value, value)
                call_id = data.start('graceful')
                self.begun(runtime)
                cancel(control, call_id, 'timeout')
                self.assertEqual(data.receive().error[0], 4010)

    def test_a_cancel_interrupts_only_its_own_call(self):
        code = '''
            def handler(event, context):
                try:
                    return sum(range(event))
                except Exception:
                    return 'an exception'
        '''
        for concurrency, rounds in ((1, 1500), (4, 1500)):
            with RuntimeProcess({'main.py': code}) as runtime:
                data, control = runtime.init(concurrency=concurrency)
                answered = 0
                for number in range(rounds):
                    call_id = data.start(number * 3 % 4000)
                    cancel(control, call_id, 'caller')
                    other = data.start(5)
                    answers = sorted((data.receive() for _ in range(2)), key=lambda answer: answer.call_id)
                    self.assertEqual([answer.call_id for answer in answers], [call_id, other])
                    self.assertEqual(answers[1].value, 10)
                    if answers[0].kind == protocol.RESULT:
                        answered += 1
                    else:
                        self.assertEqual(answers[0].error[0], 4002)
                self.assertNotIn('Traceback', runtime.log())

    def test_the_end_of_a_data_connection_cancels_its_calls_and_the_state_stays(self):
        code = '''
            import time
            count = []
            def handler(event, context):
                count.append(event)
                if event == 'sleep':
                    time.sleep(60)
                return count
            async def handler_async(event, context):
                return handler('async', context)
        '''
        for concurrency in (1, 2):
            with RuntimeProcess({'main.py': code}) as runtime:
                data, control = runtime.init(concurrency=concurrency)
                data.call('first')
                data.start('sleep')
                if concurrency == 1:
                    data.start('dropped')
                control.wait_for_running(1)
                data.close()
                control.close()
                if concurrency == 2:
                    continue  # a thread in a system call ends with the call
                data, _ = runtime.open()
                self.assertEqual(data.hello.json['state'], 'ready')
                self.assertEqual(data.call('last').value, ['first', 'sleep', 'last'])


if __name__ == '__main__':
    unittest.main()
