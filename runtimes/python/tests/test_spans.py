"""Tests the spans of a runtime process."""
import json
import unittest

from client import RuntimeProcess
from rookery_runtime import protocol, spans

CODE = '''
    import asyncio
    import threading
    def nested(event, context):
        with context.span('outer', {'n': 1, 'text': 'a'}) as outer:
            with context.span('inner'):
                outer.set('late', True)
        with context.span('next'):
            return event
    def failing(event, context):
        try:
            with context.span('caught'):
                raise KeyError('a')
        except KeyError:
            pass
        with context.span('open'):
            raise ValueError('b' * 1000)
    async def tasks(event, context):
        async def part(name):
            async with context.span(name):
                await asyncio.sleep(0)
                with context.span(name + '-inner'):
                    await asyncio.sleep(0)
        async with context.span('all'):
            await asyncio.gather(part('a'), part('b'))
    def threads(event, context):
        def part():
            with context.span('thread'):
                pass
        with context.span('main'):
            thread = threading.Thread(target=part)
            thread.start()
            thread.join()
    def values(event, context):
        class Odd(object):
            def __str__(self):
                raise ValueError('no text')
        given = {'nothing': None, 'list': [1], 'long': 'x' * 1000, 'nan': float('nan'), 'big': 10 ** 400, 7: 'seven',
                 'odd': Odd(), 'k' * 100: 1}
        with context.span('n' * 1000, given):
            pass
    def many(event, context):
        for number in range(event['spans']):
            with context.span('s', {'a%d' % at: 'x' * event['chars'] for at in range(event['attributes'])}):
                pass
    def unfinished(event, context):
        context.span('open').__enter__()
    def plain(event, context):
        return event
    def initialize(context):
        with context.span('no call', {'a': 1}):
            pass
'''


class SpansTest(unittest.TestCase):
    def answer(self, handler, event=None, **init):
        """Returns the spans of a call, None without SPANS, and the type of its answer."""
        with RuntimeProcess({'main.py': CODE}) as runtime:
            data = runtime.connect(spans=init.pop('takes_spans', 1))
            runtime.init('main.' + handler, data, **init)
            frame = data.call(event)
            if frame.kind != protocol.SPANS:
                return None, frame.kind
            answer = data.receive()
            self.assertEqual(answer.call_id, frame.call_id)
            return frame.json, answer.kind

    def test_nested_spans_name_their_parents_and_precede_the_result(self):
        message, kind = self.answer('nested')
        self.assertEqual(kind, protocol.RESULT)
        self.assertEqual(message['dropped'], 0)
        outer, inner, following = message['spans']
        self.assertEqual((outer['name'], outer['attributes']), ('outer', {'n': 1, 'text': 'a', 'late': True}))
        self.assertEqual((inner['name'], inner['parent']), ('inner', 0))
        self.assertNotIn('parent', following)
        self.assertLessEqual(outer['startMicros'], inner['startMicros'])
        self.assertLessEqual(inner['micros'], outer['micros'])
        self.assertGreaterEqual(following['startMicros'], outer['startMicros'] + outer['micros'])

    def test_exceptions_mark_their_spans_and_spans_precede_the_error(self):
        message, kind = self.answer('failing')
        self.assertEqual(kind, protocol.ERROR)
        caught, opened = message['spans']
        self.assertEqual(caught['error'], "KeyError: 'a'")
        self.assertEqual(opened['error'], ('ValueError: ' + 'b' * 1000)[:spans.MAX_VALUE_CHARS])

    def test_tasks_nest_in_the_span_in_which_they_started(self):
        message, _ = self.answer('tasks', concurrency=4)
        parents = {span['name']: span.get('parent') for span in message['spans']}
        names = [span['name'] for span in message['spans']]
        self.assertIsNone(parents['all'])
        if spans.ContextVar is not None:
            self.assertEqual([names[parents[name]] for name in ('a', 'b', 'a-inner', 'b-inner')], ['all', 'all', 'a', 'b'])

    def test_a_new_thread_adds_spans_to_the_call(self):
        message, _ = self.answer('threads')
        self.assertEqual([span['name'] for span in message['spans']], ['main', 'thread'])

    def test_attributes_are_texts_and_numbers_within_limits(self):
        message, _ = self.answer('values')
        span = message['spans'][0]
        self.assertEqual(span['name'], 'n' * spans.MAX_NAME_CHARS)
        self.assertEqual(span['attributes'], {
            'list': '[1]', 'long': 'x' * spans.MAX_VALUE_CHARS, 'nan': 'nan', 'big': str(10 ** 400)[:spans.MAX_VALUE_CHARS],
            '7': 'seven', 'odd': '<ValueError>'})
        self.assertEqual(message['dropped'], 1)

    def test_spans_and_attributes_above_the_limits_are_dropped_and_counted(self):
        message, _ = self.answer('many', {'spans': spans.MAX_SPANS + 2, 'attributes': 1, 'chars': 1})
        self.assertEqual((len(message['spans']), message['dropped']), (spans.MAX_SPANS, 2))
        message, _ = self.answer('many', {'spans': 1, 'attributes': spans.MAX_ATTRIBUTES + 3, 'chars': 1})
        self.assertEqual((len(message['spans'][0]['attributes']), message['dropped']), (spans.MAX_ATTRIBUTES, 3))
        message, _ = self.answer('many', {'spans': 100, 'attributes': 10, 'chars': 200})
        self.assertLess(len(json.dumps(message)), 256 * 1024)
        self.assertGreater(message['dropped'], 0)

    def test_a_span_that_never_ends_ends_with_the_call(self):
        message, kind = self.answer('unfinished')
        self.assertEqual((message['spans'][0]['name'], kind), ('open', protocol.RESULT))

    def test_calls_without_spans_and_spans_of_an_initializer_send_none(self):
        self.assertEqual(self.answer('plain', initializer='main.initialize'), (None, protocol.RESULT))

    def test_a_client_that_does_not_accept_spans_gets_none(self):
        self.assertEqual(self.answer('nested', takes_spans=0), (None, protocol.RESULT))


if __name__ == '__main__':
    unittest.main()
