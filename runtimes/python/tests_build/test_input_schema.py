"""Tests the JSON Schemas that type hints of handlers give."""
import enum
import json
import os
import subprocess
import sys
import tempfile
import typing
import unittest

from rookery_build import input_schema

try:
    from dataclasses import dataclass, field
except ImportError:
    dataclass = None
try:
    import pydantic
except ImportError:
    pydantic = None
TypedDict = getattr(typing, 'TypedDict', None)


class Size(enum.Enum):
    SMALL = 's'
    LARGE = 'l'


def schema_of(hint):
    def handle(event, context):
        return context

    handle.__annotations__ = {'event': hint}
    return input_schema.schema_of(handle)


def problem_of(handler):
    try:
        return input_schema.schema_of(handler)
    except input_schema.Unknown as error:
        return str(error)


class Hints(unittest.TestCase):

    def test_hints_of_the_standard_library_become_schemas(self):
        texts = {'type': 'array', 'items': {'type': 'string'}}
        cases = [
            (str, {'type': 'string'}),
            (int, {'type': 'integer'}),
            (float, {'type': 'number'}),
            (bool, {'type': 'boolean'}),
            (None, {'type': 'null'}),
            (dict, {'type': 'object'}),
            (list, {'type': 'array'}),
            (tuple, {'type': 'array'}),
            (typing.List, {'type': 'array'}),
            (typing.Dict, {'type': 'object'}),
            (typing.Dict[str, typing.Any], {'type': 'object'}),
            (typing.List[str], texts),
            (typing.Sequence[str], texts),
            (typing.Tuple[str, ...], texts),
            (typing.Set[str], dict(texts, uniqueItems=True)),
            (typing.Tuple[int, str], {
                'type': 'array', 'prefixItems': [{'type': 'integer'}, {'type': 'string'}], 'minItems': 2, 'maxItems': 2}),
            (typing.Mapping[str, int], {'type': 'object', 'additionalProperties': {'type': 'integer'}}),
            (typing.Optional[int], {'type': ['integer', 'null']}),
            (typing.Union[str, typing.List[str]], {'anyOf': [{'type': 'string'}, texts]}),
            (typing.NewType('Id', str), {'type': 'string'}),
            (Size, {'enum': ['s', 'l']}),
        ]
        for hint, expected in cases:
            self.assertEqual(schema_of(hint), expected, hint)

    @unittest.skipUnless(sys.version_info >= (3, 10), 'needs the hints of Python 3.10')
    def test_hints_of_newer_versions_become_schemas(self):
        cases = [
            (list[int], {'type': 'array', 'items': {'type': 'integer'}}),
            (dict[str, bool], {'type': 'object', 'additionalProperties': {'type': 'boolean'}}),
            (int | None, {'type': ['integer', 'null']}),
            (typing.Literal['a', 1], {'enum': ['a', 1]}),
            (typing.Annotated[int, 'How many.'], {'type': 'integer', 'description': 'How many.'}),
        ]
        for hint, expected in cases:
            self.assertEqual(schema_of(hint), expected, hint)

    def test_hints_without_a_form_in_json_are_refused_with_their_path(self):
        cases = [
            (bytes, 'event: bytes has no form in JSON; expected str, int'),
            (typing.List[typing.Dict[str, bytes]], 'event[]{}: bytes has no form in JSON'),
            (typing.Dict[int, str], 'event: a dict of JSON has keys of type str, got int'),
            (typing.Any, 'the parameter event has no type hint that says what the event is; expected'),
        ]
        for hint, expected in cases:
            with self.assertRaises(input_schema.Unknown) as caught:
                schema_of(hint)
            self.assertIn(expected, str(caught.exception))

    def test_handlers_without_a_hint_are_refused(self):
        self.assertIn('the parameter event has no type hint', problem_of(lambda event, context: event))
        self.assertIn('it has no parameter for the event', problem_of(lambda: 1))


@unittest.skipUnless(TypedDict, 'needs typing.TypedDict')
class TypedDicts(unittest.TestCase):

    def test_keys_are_required_unless_their_class_says_otherwise(self):
        base = TypedDict('Base', {'id': int})
        options = TypedDict('Options', {'note': str}, total=False)
        self.assertEqual(schema_of(base), {
            'type': 'object', 'properties': {'id': {'type': 'integer'}}, 'required': ['id']})
        self.assertEqual(schema_of(options), {'type': 'object', 'properties': {'note': {'type': 'string'}}})

    @unittest.skipUnless(hasattr(typing, 'NotRequired'), 'needs typing.NotRequired')
    def test_keys_that_are_not_required_are_recognized_in_hints_that_are_text(self):
        item = TypedDict('Item', {'sku': 'str', 'count': 'typing.NotRequired[int]'})
        self.assertEqual(schema_of(item)['required'], ['sku'])

    def test_a_class_that_holds_itself_becomes_a_reference(self):
        self.assertEqual(schema_of(Node), {
            '$ref': '#/$defs/Node',
            '$defs': {'Node': {
                'type': 'object',
                'properties': {'below': {'type': 'array', 'items': {'$ref': '#/$defs/Node'}}},
                'required': ['below'],
            }},
        })


if TypedDict:
    Node = TypedDict('Node', {'below': 'typing.List[Node]'})


@unittest.skipUnless(dataclass, 'needs dataclasses')
class Dataclasses(unittest.TestCase):

    def test_fields_without_a_default_are_required(self):
        @dataclass
        class Order:
            """An order."""

            number: int
            size: Size = Size.SMALL
            factor: float = float('inf')
            tags: typing.List[str] = field(default_factory=list)
            hidden: int = field(default=1, init=False)
            shared: typing.ClassVar[int] = 3

        self.assertEqual(schema_of(Order), {
            'type': 'object',
            'properties': {
                'number': {'type': 'integer'},
                'size': {'enum': ['s', 'l'], 'default': 's'},
                'factor': {'type': 'number'},
                'tags': {'type': 'array', 'items': {'type': 'string'}},
            },
            'required': ['number'],
            'description': 'An order.',
        })


@unittest.skipUnless(pydantic, 'needs pydantic')
class Models(unittest.TestCase):

    def test_models_give_their_own_schema_and_its_parts_move_to_the_root(self):
        class Part(pydantic.BaseModel):
            name: str

        class Whole(pydantic.BaseModel):
            parts: typing.List[Part] = pydantic.Field(description='All parts.')
            limit: int = pydantic.Field(10, ge=1)

        found = schema_of(typing.List[Whole])
        self.assertEqual(found['items']['properties']['parts']['items'], {'$ref': '#/$defs/Part'})
        self.assertEqual(found['items']['properties']['limit']['minimum'], 1)
        self.assertEqual(found['items']['required'], ['parts'])
        self.assertEqual(found['$defs']['Part']['required'], ['name'])


class Program(unittest.TestCase):

    def run_on(self, text, handler):
        with tempfile.TemporaryDirectory() as directory:
            with open(os.path.join(directory, 'app.py'), 'w') as file:
                file.write(text)
            command = [sys.executable, '-B', input_schema.__file__, directory, handler]
            done = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            printed, _ = done.communicate(timeout=60)
            return json.loads(printed.decode())

    def test_only_the_schema_is_printed_on_stdout(self):
        text = 'import threading, time\nprint("loading")\n' + (
            'threading.Thread(target=time.sleep, args=(1000,)).start()\ndef handle(event: int, context): pass\n')
        self.assertEqual(self.run_on(text, 'app.handle'), {'schema': {'type': 'integer'}})

    def test_modules_that_cannot_be_imported_are_reported(self):
        self.assertEqual(self.run_on('import absent_module', 'app.handle'), {
            'problem': "it cannot be imported: ModuleNotFoundError: No module named 'absent_module'"})
        self.assertEqual(self.run_on('', 'app.handle'), {
            'problem': "it cannot be imported: AttributeError: module 'app' has no attribute 'handle'"})


if __name__ == '__main__':
    unittest.main()
