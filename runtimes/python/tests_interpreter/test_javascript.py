"""Tests contexts of JavaScript."""
import os
import shutil
import unittest

from interpreter import WithInterpreter


@unittest.skipIf(shutil.which('node') is None, 'contexts of JavaScript need node')
class JavaScript(WithInterpreter):
    def run_script(self, code, **fields):
        return self.run_cell(code, **dict({'language': 'javascript'}, **fields))

    def test_the_value_and_the_output_of_a_cell(self):
        answer = self.run_script('console.log("Hello, World!")\n1 + 1')
        self.assertEqual((answer.output(), answer.text), ('Hello, World!\n', '2'))
        self.assertEqual(self.run_script('"a\\u20acb"').text, 'a\u20acb')
        self.assertEqual(self.run_script('{a: [1, 2]}').text, '{ a: [ 1, 2 ] }')
        self.assertEqual(self.run_script('undefined').results, [])

    def test_names_stay_and_can_be_declared_again(self):
        self.run_script('const one = 1; var two = 2')
        self.assertEqual(self.run_script('one + two', language='js').text, '3')
        self.assertEqual(self.run_script('const one = 5\none').text, '5')
        context = self.new_context(language='javascript')
        answer = self.run_cell('one', context_id=context)
        self.assertEqual((answer.error['name'], answer.error['value']), ('ReferenceError', 'one is not defined'))

    def test_await_and_imports_work_outside_of_functions(self):
        code = 'import { join } from "node:path"\nimport * as fs from "node:fs"\njoin("a", typeof fs.readFileSync)'
        self.assertEqual(self.run_script(code).text, 'a/function')
        self.assertEqual(self.run_script('const later = await Promise.resolve(7)\nlater').text, '7')

    def test_errors_have_their_names(self):
        error = self.run_script('throw new TypeError("no")').error
        self.assertEqual((error['name'], error['value']), ('TypeError', 'no'))
        self.assertEqual(self.run_script('let = (').error['name'], 'SyntaxError')
        self.assertEqual(self.run_script('await Promise.reject(new RangeError("x"))').error['name'], 'RangeError')
        self.assertEqual(self.run_script('process.exit(3)').error['name'], 'KernelDied')

    def test_directory_and_variables_are_those_of_the_request(self):
        context = self.new_context(language='js', cwd='/tmp')
        self.assertEqual(self.run_cell('process.cwd()', context_id=context).text, '/tmp')
        answer = self.run_cell('process.env.OF_CELL', context_id=context, env_vars={'OF_CELL': 'a'})
        self.assertEqual(answer.text, 'a')
        self.assertEqual(self.run_cell('process.env.OF_CELL', context_id=context).results, [])

    def test_a_client_that_goes_away_interrupts_its_cell_and_names_stay(self):
        context = self.new_context(language='js')
        for code in ['while (true) {}', 'await new Promise(done => setTimeout(done, 1e6))']:
            self.run_cell('var kept = 7', context_id=context)
            with self.started('console.log("runs")\n' + code, context_id=context) as running:
                while b'runs' not in running.readline():
                    pass
            self.assertEqual(self.run_cell('kept', context_id=context).text, '7')

    def test_the_default_context_is_listed(self):
        self.assertIn('"javascript"', self.ask('GET', '/contexts')[1])
        self.assertEqual(os.path.realpath(self.run_script('process.cwd()').text), self.home)


if __name__ == '__main__':
    unittest.main()
