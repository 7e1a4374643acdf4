"""Tests the syntax of notebooks and the forms of values, without a process."""
import math
import unittest

from rookery_interpreter import cell, display


class Syntax(unittest.TestCase):
    def test_python_stays_as_it_is(self):
        for source in ['a = 1\nb = (a\n% 2)\n', "text = '''\n!ls\n%cd x\n'''", 'f"{x!r}"', '']:
            self.assertEqual(cell.python_of(source), source)

    def test_commands_and_magics_become_calls(self):
        for source, python in [
                ('!ls -l', "get_ipython().system('ls -l')"),
                ('if x:\n    !pwd', "if x:\n    get_ipython().system('pwd')"),
                ('%cd /tmp', "get_ipython().run_line_magic('cd', '/tmp')"),
                ('a = !ls', "a = get_ipython().getoutput('ls')"),
                ('a = %pwd', "a = get_ipython().run_line_magic('pwd', '')"),
                ('!!ls', "get_ipython().getoutput('ls')"),
                ('!echo a \\\n  b', "get_ipython().system('echo a   b')"),
                ('%%bash -e\necho 1\n', "get_ipython().run_cell_magic('bash', '-e', 'echo 1\\n')\n")]:
            self.assertEqual(cell.python_of(source), python)

    def test_lines_inside_of_strings_and_brackets_are_not_magics(self):
        source = "!ls\ntext = '''\n!ls ' \"\n'''\nx = (1 # (\n% 2)\ny = 'a\\'' # '\n!pwd"
        expected = source.replace('!ls\ntext', "get_ipython().system('ls')\ntext").replace(
            '!pwd', "get_ipython().system('pwd')")
        self.assertEqual(cell.python_of(source), expected)

    def test_the_indentation_of_the_first_line_is_removed(self):
        self.assertEqual(cell.python_of('\n    a = 1\n    if a:\n        b\n  # c'), '\na = 1\nif a:\n    b\n  # c')

    def test_a_semicolon_at_the_end_hides_the_value(self):
        for source, is_quiet in [('1;', True), ('1; # x', True), ('1 # ;', False), ('";"', False), ('a = 1;', False)]:
            self.assertEqual(cell.Compiled(source, '<cell>', 0).is_quiet, is_quiet, source)


class Value(object):
    """A value with these methods of display."""

    def __init__(self, **forms):
        for name, data in forms.items():
            setattr(self, '_repr_%s_' % name, self._returning(name, data))

    @staticmethod
    def _returning(name, data):
        def form():
            return data
        form.__name__ = '_repr_%s_' % name
        return form

    def __repr__(self):
        return 'Value'


class Results(unittest.TestCase):
    def test_a_quoted_string_loses_its_quotes(self):
        self.assertEqual(display.result_of('a\nb', True)['text'], 'a\\nb')
        self.assertEqual(display.result_of("it's", True)['text'], "it's")
        self.assertEqual(display.result_of([''], True)['text'], "['']")

    def test_each_form_has_its_key(self):
        value = Value(html='<b>', markdown='*a*', svg='<svg>', png=b'\x89PNG', jpeg=b'\xff', latex='x', json={'a': 1})
        self.assertEqual(display.result_of(value, False), {
            'type': 'result', 'is_main_result': False, 'extra': {}, 'text': 'Value', 'html': '<b>', 'markdown': '*a*',
            'svg': '<svg>', 'png': 'iVBORw==', 'jpeg': '/w==', 'latex': 'x', 'json': {'a': 1}})

    def test_unknown_types_become_extra_and_only_existing_forms_are_shown(self):
        bundle = {'text/html': 'a', 'application/x-own': {'b': (1, float('nan'))}}
        self.assertEqual(display.result_of_bundle(bundle, False), {
            'type': 'result', 'is_main_result': False, 'html': 'a', 'extra': {'application/x-own': {'b': [1, None]}}})

    def test_a_form_that_fails_or_returns_none_is_left_out(self):
        self.assertEqual(
            display.result_of(Value(html=None), True),
            {'type': 'result', 'is_main_result': True, 'extra': {}, 'text': 'Value'})
        self.assertEqual(display.result_of(Value, True)['text'], repr(Value))

    def test_json_has_no_value_that_clients_cannot_read(self):
        self.assertEqual(display.json_of({1: [math.inf, b'a', object], 'b': {None}})['1'][:2], [None, 'YQ=='])
