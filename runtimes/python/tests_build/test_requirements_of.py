"""Tests the conversion of a pyproject.toml and its lock for pip."""
import unittest

from rookery_build import requirements_of


class Wanted(unittest.TestCase):

    def test_dependencies_of_a_project_are_used_unchanged(self):
        project = {'project': {'dependencies': ['six>=1', 'idna ; python_version > "3"']}}
        self.assertEqual(requirements_of._wanted(project), ['six>=1', 'idna ; python_version > "3"'])

    def test_requirements_of_poetry_are_written_in_the_common_form(self):
        cases = {
            '^1.2.3': 'x>=1.2.3,<2',
            '^0.2.3': 'x>=0.2.3,<0.3',
            '^0.0.3': 'x>=0.0.3,<0.0.4',
            '^0': 'x>=0,<1',
            '~1.2.3': 'x>=1.2.3,<1.3',
            '~1': 'x>=1,<2',
            '>=1,<3': 'x>=1,<3',
            '~=1.4': 'x~=1.4',
            '1.2': 'x==1.2',
            '1.*': 'x==1.*',
            '*': 'x',
        }
        for text, expected in cases.items():
            project = {'tool': {'poetry': {'dependencies': {'python': '^3.8', 'x': text}}}}
            self.assertEqual(requirements_of._wanted(project), [expected], text)

    def test_extras_markers_and_repositories_of_poetry_are_kept(self):
        wanted = requirements_of._wanted({'tool': {'poetry': {'dependencies': {
            'a': {'version': '^1.0', 'extras': ['b', 'c']},
            'd': {'version': '2.0', 'python': '<3.9'},
            'e': {'git': 'https://example.com/e.git', 'tag': 'v1'},
            'f': {'version': '1.0', 'optional': True},
            'g': [{'version': '1.0', 'markers': "sys_platform == 'linux'"}, {'version': '2.0'}],
        }}}})
        self.assertEqual(wanted, [
            'a[b,c]>=1.0,<2',
            "d==2.0 ; python_version < '3.9'",
            'e @ git+https://example.com/e.git@v1',
            "g==1.0 ; sys_platform == 'linux'",
            'g==2.0',
        ])

    def test_a_path_and_dependencies_that_only_a_build_knows_are_refused(self):
        for project in (
            {'tool': {'poetry': {'dependencies': {'x': {'path': '../x'}}}}},
            {'tool': {'uv': {'sources': {'x': {'workspace': True}}}}},
            {'project': {'dynamic': ['dependencies']}},
        ):
            with self.assertRaises(SystemExit):
                requirements_of._wanted(project)


class Constraints(unittest.TestCase):

    def test_each_package_is_held_to_its_version(self):
        lock = {'package': [{'name': 'b', 'version': '2'}, {'name': 'a', 'version': '1', 'source': {'registry': 'r'}}]}
        self.assertEqual(requirements_of._constraints(lock), ['a==1', 'b==2'])

    def test_the_project_itself_and_what_is_no_package_of_an_index_are_left_out(self):
        lock = {'package': [
            {'name': 'own', 'version': '1', 'source': {'editable': '.'}},
            {'name': 'git', 'version': '1', 'source': {'git': 'https://example.com'}},
        ]}
        self.assertEqual(requirements_of._constraints(lock), [])

    def test_markers_tell_versions_of_one_package_apart(self):
        lock = {'package': [
            {'name': 'a', 'version': '1', 'resolution-markers': ["python_version < '3.9'", "os_name == 'nt'"]},
            {'name': 'a', 'version': '2', 'markers': "python_version >= '3.9'"},
            {'name': 'b', 'version': '1'},
            {'name': 'b', 'version': '2'},
        ]}
        self.assertEqual(requirements_of._constraints(lock), [
            "a==1 ; (python_version < '3.9') or (os_name == 'nt')",
            "a==2 ; (python_version >= '3.9')",
        ])


if __name__ == '__main__':
    unittest.main()
