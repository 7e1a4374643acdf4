"""Tests calls and the initialization of a runtime process."""

import os
import re
import unittest

from client import RuntimeProcess, init_message
from rookery_runtime import protocol


class Calls(unittest.TestCase):
    def test_the_value_comes_back_as_json(self):
        with RuntimeProcess({'main.py': 'def handler(event, context):\n    return event\n'}) as runtime:
            data, _ = runtime.init()
            for event in ({'a': [1, 2.5, None, True, 'é\U0001f600']}, 'text', 7, None, [], ''):
                self.assertEqual(data.call(event).value, event)
            self.assertEqual(data.call(body=b' {"a" : 1} \n').value, {'a': 1})
            self.assertEqual(bytes(data.call({'a': 'é', 'b': [1, 2]}).payload[4:]), '{"a":"é","b":[1,2]}'.encode('utf-8'))

    def test_a_large_event_and_a_large_result_pass_whole(self):
        with RuntimeProcess({'main.py': 'def handler(event, context):\n    return event\n'}) as runtime:
            data, _ = runtime.init()
            text = 'x' * (6 * 1024 * 1024 - 2)
            self.assertEqual(data.call(text).value, text)

    def test_an_exception_is_4002_and_its_traceback_has_no_frames_of_the_runtime(self):
        code = '''
            import sys
            class Odd(Exception):
                def __str__(self):
                    raise RuntimeError('no text')
            def handler(event, context):
                kind = event['kind']
                if kind == 'value': raise ValueError('boom')
                if kind == 'empty': raise KeyError()
                if kind == 'exit': sys.exit(3)
                if kind == 'interrupt': raise KeyboardInterrupt()
                if kind == 'memory': raise MemoryError()
                if kind == 'odd': raise Odd()
                if kind == 'stop': raise StopIteration(1)
                if kind == 'deep': return handler(event, context)
                if kind == 'cause':
                    try:
                        raise ValueError('first')
                    except ValueError as error:
                        raise RuntimeError('second') from error
                return 'fine'
        '''
        expected = {
            'value': 'ValueError: boom', 'empty': 'KeyError', 'exit': 'SystemExit: 3', 'interrupt': 'KeyboardInterrupt',
            'memory': 'MemoryError', 'odd': 'Odd: <its text cannot be had: RuntimeError>', 'stop': 'StopIteration: 1',
            'cause': 'RuntimeError: second',
        }
        with RuntimeProcess({'main.py': code}) as runtime:
            data, _ = runtime.init()
            for kind, text in sorted(expected.items()):
                self.assertEqual(data.call({'kind': kind}).error, (4002, 'Fail to run user call handler. err: %s.' % text))
            code, message = data.call({'kind': 'deep'}).error
            self.assertEqual(code, 4002)
            self.assertIn('RecursionError', message)
            self.assertEqual(data.call({'kind': ''}).value, 'fine')
            log = runtime.log()
            self.assertIn('ValueError: boom', log)
            self.assertIn('ValueError: first', log)
            self.assertIn('trace id t-1', log)
            self.assertNotIn('rookery_runtime', log)

    def test_an_exception_whose_own_code_fails_is_answered_too(self):
        code = '''
            class Nameless(type):
                @property
                def __name__(cls):
                    raise RuntimeError('no name')
            class NoName(Exception, metaclass=Nameless):
                pass
            class NoText(Exception):
                def __str__(self):
                    raise NoName()
            class Text(str):
                def __len__(self):
                    raise ValueError('no length')
                def __str__(self):
                    raise ValueError('no text')
            class OddText(Exception):
                def __str__(self):
                    return Text('boom')
            class NoClass(Exception):
                @property
                def __class__(self):
                    raise RuntimeError('no class')
            def handler(event, context):
                if event:
                    raise {'name': NoName, 'text': NoText, 'odd': OddText, 'class': NoClass}[event]()
                return 'fine'
            async def handler_async(event, context):
                return handler(event, context)
        '''
        expected = {
            'name': 'NoName', 'text': 'NoText: <its text cannot be had: NoName>', 'odd': 'OddText: boom', 'class': 'NoClass',
        }
        for name, concurrency in (('handler', 1), ('handler', 2), ('handler_async', 1)):
            with RuntimeProcess({'main.py': code}) as runtime:
                data, _ = runtime.init('main.' + name, concurrency=concurrency)
                for kind, text in sorted(expected.items()):
                    self.assertEqual(data.call(kind).error, (4002, 'Fail to run user call handler. err: %s.' % text))
                self.assertEqual(data.call('').value, 'fine')

    def test_a_result_that_is_not_json_is_4007_with_the_name_of_its_type(self):
        code = '''
            def handler(event, context):
                loop = []
                loop.append(loop)
                deep = []
                for _ in range(200000):
                    deep = [deep]
                return {'nan': float('nan'), 'inf': [float('-inf')], 'set': {1}, 'object': handler, 'bytes': b'x',
                        'key': {(1, 2): 3}, 'loop': loop, 'deep': deep}[event]
        '''
        expected = {
            'nan': 'Out of range', 'inf': 'Out of range', 'set': 'type set', 'object': 'type function', 'bytes': 'type bytes',
            'key': 'keys must be', 'loop': 'contains itself', 'deep': 'nested too deeply',
        }
        with RuntimeProcess({'main.py': code}) as runtime:
            data, _ = runtime.init()
            for kind, text in sorted(expected.items()):
                code, message = data.call(kind).error
                self.assertEqual(code, 4007, message)
                self.assertIn(text, message)

    def test_4007_names_the_place_of_the_part_that_is_not_json(self):
        code = '''
            from decimal import Decimal
            def handler(event, context):
                return {'value': Decimal(1), 'row': {'rows': [1, {'price': Decimal(1)}]}, 'key': {'a b': {'x': (1, {2})}},
                        'nan': [float('nan')], 'inner': {'map': {(1, 2): 3}}}[event]
        '''
        with RuntimeProcess({'main.py': code}) as runtime:
            data, _ = runtime.init()
            for kind, end in (('value', 'objects of type Decimal are not JSON'), ('row', 'type Decimal are not JSON, at $.rows[1].price'),
                              ('key', 'type set are not JSON, at $["a b"].x[1]'), ('nan', ', at $[0]'), ('inner', ', at $.map')):
                code, message = data.call(kind).error
                self.assertEqual(code, 4007)
                self.assertTrue(message.endswith(end), message)

    def test_a_result_escapes_a_lone_surrogate(self):
        with RuntimeProcess({'main.py': 'def handler(event, context):\n    return chr(0xd800)\n'}) as runtime:
            data, _ = runtime.init()
            self.assertEqual(bytes(data.call().payload[4:]), b'"\\ud800"')

    def test_a_result_above_the_limit_is_4004_with_its_size(self):
        with RuntimeProcess({'main.py': 'def handler(event, context):\n    return "x" * event\n'}) as runtime:
            data, _ = runtime.init(maxResultBytes=1000)
            self.assertEqual(data.call(999).error, (4004, 'response body size 1001 exceeds the limit of 1000'))
            self.assertEqual(data.call(998).value, 'x' * 998)

    def test_an_event_that_is_nested_too_deeply_fails_only_its_call(self):
        with RuntimeProcess({'main.py': 'def handler(event, context):\n    return 1\n'}) as runtime:
            data, _ = runtime.init()
            code, message = data.call(body=b'[' * 200000 + b']' * 200000).error
            self.assertEqual(code, 4002)
            self.assertIn('RecursionError', message)
            self.assertEqual(data.call().value, 1)

    def test_handlers_get_as_many_arguments_as_they_accept(self):
        code = '''
            class Callable(object):
                def __call__(self, event, context):
                    return 'object'
            def two(event, context): return 'two'
            def optional(event, context=None): return context is not None
            def one(event): return event
            def none(): return 'none'
            def everything(*values): return len(values)
            def named(event, **kw): return sorted(kw)
            def only_named(**kw): return sorted(kw)
            def keyword(event, *, context): return context is not None
            instance = Callable()
        '''
        expected = {'two': 'two', 'optional': True, 'one': 5, 'none': 'none', 'everything': 2, 'named': ['context'],
                    'only_named': ['context', 'event'], 'keyword': True, 'instance': 'object'}
        for name, value in sorted(expected.items()):
            with RuntimeProcess({'main.py': code}) as runtime:
                data, _ = runtime.init('main.' + name)
                self.assertEqual(data.call(5).value, value, name)

    def test_a_handler_of_three_parameters_is_4001(self):
        with RuntimeProcess({'main.py': 'def handler(event, context, more): pass\n'}) as runtime:
            data, _ = runtime.init()
            self.assertEqual(data.init.error, (
                4001, 'cannot use main.handler: its parameters are (event, context, more), expected (event, context)'))

    def test_a_forked_child_that_comes_back_ends_and_answers_nothing(self):
        code = '''
            import os
            def handler(event, context):
                child = os.fork()
                if child:
                    os.waitpid(child, 0)
                    return 'parent'
                return 'child'
        '''
        with RuntimeProcess({'main.py': code}) as runtime:
            data, _ = runtime.init()
            self.assertEqual([data.call().value for _ in range(3)], ['parent'] * 3)

    CHILDREN = '''
        import asyncio, os, sys
        def end(event):
            if event['how'] == 'exit':
                sys.exit(3)
            if event['how'] == 'text':
                sys.exit('why')
            if event['how'] == 'raise':
                raise ValueError('boom')
            print('printed', end='')
        def wait(child):
            return os.WEXITSTATUS(os.waitpid(child, 0)[1])
        def plain(event, context):
            child = os.fork()
            return wait(child) if child else end(event)
        async def coroutine(event, context):
            child = os.fork()
            return wait(child) if child else end(event)
        def generator(event, context):
            child = os.fork()
            yield wait(child) if child else end(event)
        seen = []
        def start(context):
            child = os.fork()
            if child:
                seen.append(wait(child))
            else:
                sys.exit(3)
        def initialized(event, context):
            return seen
    '''

    def test_a_forked_child_ends_as_a_program_of_python(self):
        for name in ('plain', 'coroutine', 'generator'):
            for concurrency in (1, 2):
                with self.subTest(name, concurrency=concurrency), RuntimeProcess({'main.py': self.CHILDREN}) as runtime:
                    data, _ = runtime.init('main.' + name, concurrency=concurrency)
                    codes = [data.call({'how': how}).value for how in ('exit', 'text', 'raise', 'return')]
                    expected = [3, 1, 1, 0]
                    self.assertEqual(codes, [[code] for code in expected] if name == 'generator' else expected)
                    self.assertNotIn('call failed', runtime.log())
                    for text in ('why', 'ValueError: boom', 'printed'):
                        self.assertIn(text, runtime.log())

    def test_a_child_that_is_forked_before_the_first_call_ends_as_a_program_of_python(self):
        for name, code in (('main.initialized', self.CHILDREN), ('main.handler', '''
            import os, sys
            child = os.fork()
            if not child:
                sys.exit(3)
            seen = [os.WEXITSTATUS(os.waitpid(child, 0)[1])]
            def handler(event, context):
                return seen
        ''')):
            with self.subTest(name), RuntimeProcess({'main.py': code}) as runtime:
                data, _ = runtime.init(name, **({'initializer': 'main.start'} if name == 'main.initialized' else {}))
                self.assertEqual(data.call().value, [3])

    def test_prints_reach_the_log_line_by_line_while_the_handler_runs(self):
        code = '''
            import os, sys, time
            def handler(event, context):
                print('first')
                with open(context.env('LOG')) as file:
                    seen = file.read()
                print('partial', end='')
                sys.stderr.write('error ' + chr(233) + '\\n')
                context.logger.info('value %d', 7)
                return seen
        '''
        with RuntimeProcess({'main.py': code}) as runtime:
            runtime.write('env.py', 'import os\nos.environ["LOG"] = %r\nfrom main import handler\n' % (
                os.path.join(runtime.directory, 'log')))
            data, _ = runtime.init('env.handler')
            self.assertIn('first\n', data.call().value)
            data.call()
            log = runtime.log()
            self.assertIn('partial', log)
            self.assertIn('error é', log)
            self.assertTrue(re.search(r'\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO \[t-1\] value 7', log), log)

    def test_each_of_two_clients_is_served_in_the_order_of_its_calls(self):
        code = '''
            import os
            order = []
            def handler(event, context):
                if event == 'wait':
                    while not os.path.exists(os.path.join(os.path.dirname(__file__), 'go')):
                        os.sched_yield()
                    return None
                if event == 'order':
                    return order
                order.append(event)
        '''
        with RuntimeProcess({'main.py': code}) as runtime:
            first, _ = runtime.init()
            second, _ = runtime.open()
            first.start('wait')
            for number in range(20):
                (first if number % 2 else second).start(number)
            runtime.write('go', '')
            for _ in range(11):
                first.receive()
            for _ in range(10):
                second.receive()
            order = first.call('order').value
            self.assertEqual([number for number in order if number % 2], list(range(1, 20, 2)))
            self.assertEqual([number for number in order if not number % 2], list(range(0, 20, 2)))


class Initialization(unittest.TestCase):
    def fails(self, files, code, *texts, **fields):
        with RuntimeProcess(files) as runtime:
            data, _ = runtime.init(fields.pop('handler', 'main.handler'), **fields)
            self.assertEqual(data.init.error[0], code, data.init.error)
            for text in texts:
                self.assertIn(text, data.init.error[1].replace(runtime.code_path, '<code>'))
            self.assertEqual(data.call().error, data.init.error, 'each call reports it')
            data.send(protocol.INIT, 0, init_message(runtime.code_path, 'main.handler'))
            self.assertEqual(data.receive().error, data.init.error, 'a later INIT too')
            other = runtime.connect()
            self.assertEqual(other.hello.json['state'], 'failed')
            self.assertEqual(other.hello.json['error']['code'], code)
            return runtime.log()

    def test_an_initialization_without_a_handler_is_reported(self):
        self.fails({}, 4201, 'empty user call code', handler='')

    def test_a_handler_without_module_and_function_is_reported(self):
        for handler in ('handler', '.handler', 'main.', 'a b.c', '../x.y', '/x.y', 'a//b.c'):
            self.fails({}, 4001, 'it must have the form module.function', handler=handler)

    def test_a_missing_module_is_reported(self):
        self.fails({}, 4001, 'module main not found: neither <code>/main.py nor <code>/main/__init__.py exists')

    def test_a_module_outside_of_the_code_path_is_not_loaded(self):
        self.fails({}, 4001, 'module json not found', handler='json.dumps')

    def test_a_missing_code_path_or_directory_is_reported(self):
        self.fails({}, 4001, 'codePath is empty', codePath='')
        self.fails({}, 4001, 'the code directory /nowhere does not exist', codePath='/nowhere')

    def test_a_code_directory_that_is_a_file(self):
        self.fails({}, 4001, 'the code directory /etc/passwd is a file and not a directory', codePath='/etc/passwd')

    def test_a_module_that_is_a_broken_link_is_reported(self):
        with RuntimeProcess({}) as runtime:
            os.symlink('/elsewhere/main.py', os.path.join(runtime.code_path, 'main.py'))
            data, _ = runtime.init()
            self.assertIn('main.py is a link to /elsewhere/main.py, which does not exist inside', data.init.error[1])

    def test_a_missing_function_is_reported(self):
        self.fails({'main.py': ''}, 4001, '<code>/main.py has no function handler')

    def test_a_handler_that_is_not_callable_is_reported(self):
        self.fails({'main.py': 'handler = 7'}, 4001, 'not callable but of type int')

    def test_a_syntax_error_is_reported(self):
        self.fails({'main.py': 'x = 1\ndef handler(:\n'}, 4001, '<code>/main.py:2: SyntaxError')

    def test_an_import_error_names_the_line_of_the_users_code(self):
        log = self.fails({'main.py': '\nimport other\n', 'other.py': 'import no_such_module\n'}, 4001,
                         "<code>/other.py:1: ModuleNotFoundError: No module named 'no_such_module'")
        self.assertIn('Traceback', log)
        self.assertNotIn('rookery_runtime', log)

    def test_a_module_that_raises_or_exits_is_reported(self):
        self.fails({'main.py': 'raise SystemExit(4)'}, 4001, '<code>/main.py:1: SystemExit: 4')

    def test_an_initializer_that_raises(self):
        self.fails({'main.py': 'def handler(e, c): pass\ndef start(context): raise ValueError("boom")'}, 4201,
                   'initializer failed: ValueError: boom', initializer='main.start')

    def test_a_missing_initializer_is_reported(self):
        self.fails({'main.py': 'def handler(e, c): pass\n'}, 4201, 'initializer failed: cannot load the initializer main.start',
                   initializer='main.start')

    def test_an_initializer_that_takes_too_long_even_if_it_swallows_the_interrupt(self):
        for body in ('time.sleep(60)', '''
    while True:
        try:
            time.sleep(60)
        except BaseException:
            pass'''):
            self.fails({'main.py': 'import time\ndef handler(e, c): pass\ndef start(context):\n    ' + body}, 4211,
                       'initializer timed out after 0.3 s', initializer='main.start', initTimeoutMs=300)

    def test_a_module_that_loads_too_slowly_is_reported(self):
        self.fails({'main.py': 'import time\ntime.sleep(60)'}, 4001, 'did not load within 0.3 s', initTimeoutMs=300)

    def test_an_initializer_may_have_more_time_than_one_timer_of_the_kernel_waits(self):
        code = 'import time\ndef handler(e, c): return c.state["n"]\ndef start(context):\n    time.sleep(0.2)\n    context.state["n"] = 7\n'
        for milliseconds in (0x7fffffff, 0x7fffffff + 1, 8640000 * 1000):
            with RuntimeProcess({'main.py': code}) as runtime:
                data, _ = runtime.init(initializer='main.start', initTimeoutMs=milliseconds)
                self.assertEqual(data.init.kind, protocol.INIT_OK, data.init)
                self.assertEqual(data.call().value, 7)
                # The thread that enforces the time limit still runs.
                again, _ = runtime.open()
                self.assertEqual(again.call().value, 7)

    def test_the_initializer_runs_once_before_the_first_call_and_shares_the_state(self):
        for start in ('def start(context):', 'async def start(context):', 'def start():'):
            code = '''
                import {0}
                count = []
                %s
                    count.append(1)
                    {1}
                def handler(event, context):
                    context.state['n'] = context.state.get('n', 0) + 1
                    return [len(count), context.state]
            '''.replace('{0}', 'os').replace('{1}', "context.state['n'] = 10" if 'context' in start else 'pass') % start
            with RuntimeProcess({'main.py': code}) as runtime:
                data, _ = runtime.init(initializer='main.start')
                self.assertEqual(data.init.kind, protocol.INIT_OK, data.init)
                data.call()
                self.assertEqual(data.call().value, [1, {'n': 12 if 'context' in start else 2}])

    def test_a_call_before_init_and_a_wrong_init_are_4000(self):
        with RuntimeProcess({'main.py': 'def handler(e, c): return 1\n'}) as runtime:
            data, _ = runtime.open()
            self.assertEqual(data.call().error[0], 4000)
            data, _ = runtime.init(connection=data, concurrency=0)
            self.assertEqual(data.init.error[0], 4000)
            data, _ = runtime.init(connection=data)
            self.assertEqual(data.call().value, 1)

    def test_packages_siblings_and_names_of_the_standard_library(self):
        files = {
            'pkg/__init__.py': '', 'pkg/deep/__init__.py': '',
            'pkg/deep/queue.py': '''
                import queue, shared
                from .near import value
                def handler(event, context):
                    return [value, shared.value, hasattr(queue, 'Queue'), __name__]
            ''',
            'pkg/deep/near.py': 'value = 1\n', 'shared.py': 'value = 2\n',
            'logging.py': 'def handler(event, context):\n    import logging\n    return hasattr(logging, "getLogger")\n',
        }
        with RuntimeProcess(files) as runtime:
            data, _ = runtime.init('pkg.deep.queue.handler')
            self.assertEqual(data.call().value, [1, 2, True, 'pkg.deep.queue'])
        with RuntimeProcess() as runtime:
            for name, text in files.items():
                runtime.write(name, text)
            data, _ = runtime.init('logging.handler')
            self.assertIs(data.call().value, True)
        # A module inside the interpreter that was not imported yet.
        builtin = 'def handler(event, context):\n    import _symtable\n    return hasattr(_symtable, "symtable")\n'
        with RuntimeProcess({'_symtable.py': builtin}) as runtime:
            data, _ = runtime.init('_symtable.handler')
            self.assertIs(data.call().value, True)

    def test_a_signal_ends_a_forked_child_and_leaves_the_instance(self):
        code = '''
            import os, signal, sys, tempfile, threading, time
            def end_of(child):
                for _ in range(2000):
                    pid, status = os.waitpid(child, os.WNOHANG)
                    if pid:
                        return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
                    time.sleep(0.01)
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return 'does not end'
            def fork(run):
                ready, told = os.pipe()
                child = os.fork()
                if child == 0:
                    try:
                        os._exit(run(told))
                    except KeyboardInterrupt:
                        os._exit(130)
                    finally:
                        os._exit(1)
                os.close(told)
                os.read(ready, 1)
                os.close(ready)
                return child
            def wait(told):
                os.write(told, b'.')
                while True:  # one that comes just before a sleep is handled after it
                    time.sleep(0.01)
            def on_usr1(*_ignored):
                pass
            def write_nothing(told):
                signal.signal(signal.SIGUSR1, on_usr1)
                files = [tempfile.TemporaryFile() for _ in range(20)]
                os.kill(os.getpid(), signal.SIGUSR1)
                sizes = [os.fstat(file.fileno()).st_size for file in files]
                os.write(told, b'.')
                return sum(sizes)
            def killed(number, found):
                child = fork(wait)
                os.kill(child, number)
                found.append(end_of(child))
            def handler(event, context):
                found = []
                killed(signal.SIGTERM, found)
                thread = threading.Thread(target=killed, args=(signal.SIGTERM, found))
                thread.start()
                thread.join()
                killed(signal.SIGINT, found)
                found.append(end_of(fork(write_nothing)))
                return found
        '''
        with RuntimeProcess({'main.py': code}) as runtime:
            data, _ = runtime.init()
            self.assertEqual(data.call(None).value, [-15, -15, 130, 0])
            # The instance continues and still handles its own signals.
            self.assertEqual(data.call(None).value, [-15, -15, 130, 0])
            runtime.process.terminate()
            self.assertEqual(runtime.process.wait(30), 0)

    def test_main_is_an_empty_module_and_children_of_multiprocessing_work(self):
        code = '''
            import __main__, multiprocessing, pickle, inspect, sys
            def double(x): return 2 * x
            def handler(event, context):
                pool = multiprocessing.get_context(event).Pool(1)
                try:
                    result = pool.apply_async(double, (21,)).get(20)
                finally:
                    pool.terminate()
                    pool.join()
                return [getattr(__main__, '__file__', None), pickle.loads(pickle.dumps(double))(1), result, sys.argv]
        '''
        with RuntimeProcess({'main.py': code}) as runtime:
            data, _ = runtime.init()
            for method in ('spawn', 'fork'):
                self.assertEqual(data.call(method).value, [None, 2, 42, ['']])


if __name__ == '__main__':
    unittest.main()
