"""Tests cells in a running interpreter."""
import os
import sys
import unittest

from interpreter import WithInterpreter


class Cells(WithInterpreter):
    def test_the_last_expression_is_the_result_and_names_stay(self):
        self.assertEqual(self.run_cell('x = 5').results, [])
        self.assertEqual(self.run_cell('x += 1\nx').text, '6')
        self.assertEqual(self.run_cell('x;').results, [])
        self.assertEqual(self.run_cell('None').results, [])
        self.assertEqual(self.run_cell("'a' 'b'").text, 'ab')

    def test_output_comes_after_the_number_of_the_execution(self):
        answer = self.run_cell('print("a"); print("b", end="")')
        self.assertEqual(answer.output(), 'a\nb')
        self.assertEqual(answer.messages[0]['type'], 'number_of_executions')

    def test_output_of_python_and_of_commands_keeps_its_order(self):
        answer = self.run_cell('import os\nprint(1)\nos.system("echo 2")\n!echo 3\nprint(4)\nos.write(1, b"5")\nNone')
        self.assertEqual(answer.output(), '1\n2\n3\n4\n5')

    def test_output_arrives_while_the_cell_runs(self):
        gate = self.path('gate')
        os.mkfifo(gate)
        with self.started('print("first")\nopen(%r).read()\nprint("second")' % gate) as answer:
            answer.readline()
            self.assertIn(b'"text":"first\\n"', answer.readline())
            with open(gate, 'w'):
                pass
            self.assertIn(b'second', answer.read())

    def test_stderr_is_apart(self):
        answer = self.run_cell('import sys; print(1, file=sys.stderr); print("\\u20ac", "\\ud800")')
        self.assertEqual((answer.output(), answer.output('stderr')), ('\u20ac \\ud800\n', '1\n'))

    def test_errors_have_name_value_and_a_traceback_of_the_cell_only(self):
        error = self.run_cell('def f():\n    raise ValueError("no")\nf()').error
        self.assertEqual((error['name'], error['value']), ('ValueError', 'no'))
        self.assertIn('raise ValueError("no")', error['traceback'])
        self.assertNotIn('rookery_interpreter', error['traceback'])
        self.assertEqual(self.run_cell('def f(:').error['name'], 'SyntaxError')
        self.assertEqual(self.run_cell('import sys; sys.exit(3)').error['name'], 'SystemExit')
        self.assertEqual(self.run_cell('%no_such').error['name'], 'UsageError')

    @unittest.skipIf(sys.version_info < (3, 8), 'Python 3.8 and newer have await outside of functions')
    def test_await_works_outside_of_functions(self):
        self.assertEqual(self.run_cell('import asyncio\nawait asyncio.sleep(0)\nawait asyncio.sleep(0, 7)').text, '7')
        self.assertEqual(self.run_cell('await asyncio.sleep(0, 8)').text, '8')

    def test_commands_get_values_of_names(self):
        answer = self.run_cell('name = "x"\n!echo $name {name * 2} $HOME; exit 3\n_exit_code')
        self.assertEqual((answer.output(), answer.text), ('x xx %s\n' % self.home, '3'))
        self.assertEqual(self.run_cell('a = !printf "1\\n2"\na').text, "['1', '2']")
        self.assertEqual(self.run_cell('%%bash\necho $((1 + 2))').output(), '3\n')

    def test_the_directory_changes_for_later_cells(self):
        context = self.new_context()
        os.mkdir(self.path('below'))
        self.assertEqual(self.run_cell('!pwd', context_id=context).output().strip(), self.home)
        self.assertEqual(self.run_cell('%cd below', context_id=context).error, None)
        self.assertEqual(self.run_cell('import os; os.getcwd()', context_id=context).text, self.path('below'))

    def test_displayed_values_are_results_that_are_not_main(self):
        code = 'from IPython.display import HTML, display as shown\n' \
            'shown(HTML("<b>"), 1)\ndisplay({"text/latex": "x"}, raw=True)\n2'
        answer = self.run_cell(code)
        self.assertEqual([result['is_main_result'] for result in answer.results], [False, False, False, True])
        self.assertEqual(answer.results[0]['html'], '<b>')
        self.assertNotIn('text', answer.results[2])
        self.assertEqual(answer.text, '2')

    def test_variables_hold_for_one_execution(self):
        code = 'import os; [os.getenv(name) for name in ("OF_SANDBOX", "OF_CELL")]'
        self.assertEqual(self.run_cell(code).text, "['sandbox', None]")
        given = {'OF_SANDBOX': 'cell', 'OF_CELL': 'a=b'}
        self.assertEqual(self.run_cell(code, env_vars=given).text, "['cell', 'a=b']")
        self.assertEqual(self.run_cell('!echo $OF_CELL', env_vars=given).output(), 'a=b\n')
        self.assertEqual(self.run_cell(code).text, "['sandbox', None]")

    def test_a_mebibyte_of_output_and_result_arrives_whole(self):
        answer = self.run_cell('print("a" * 2 ** 20)\n"b" * 2 ** 20')
        self.assertEqual((len(answer.output()), len(answer.text)), (2 ** 20 + 1, 2 ** 20))

    def test_input_finds_no_text_and_pickle_finds_classes(self):
        self.assertEqual(self.run_cell('input()').error['name'], 'EOFError')
        code = 'import pickle\nclass A: pass\ntype(pickle.loads(pickle.dumps(A()))) is A'
        self.assertEqual(self.run_cell(code).text, 'True')

    def test_a_module_of_the_directory_does_not_replace_a_module_of_the_interpreter(self):
        with open(self.path('json.py'), 'w') as module:
            module.write('answer = 42\n')
        with open(self.path('own_module.py'), 'w') as module:
            module.write('answer = 43\n')
        self.assertEqual(self.run_cell('import own_module\nown_module.answer', context_id=self.new_context()).text, '43')

    def test_a_program_in_the_background_never_blocks(self):
        code = 'import subprocess\nbackground = subprocess.Popen("head -c 300000 /dev/zero; echo done > over", shell=True)'
        self.run_cell(code)
        self.assertEqual(self.run_cell('background.wait(100)').text, '0')


if __name__ == '__main__':
    unittest.main()
