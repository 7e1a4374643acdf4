# Made by `npm run generate` from runtimes/python/rookery_build/input_schema.py.
"""
Prints the JSON Schema of the event of a handler, made from its type hints.

    python input_schema.py <directory of the code> <module.function>

Prints `{"schema": …}` or `{"problem": "…"}`. Imports the code, so the packages that it imports must be installed
for this interpreter. What the code itself prints goes to stderr.
"""
import enum
import importlib
import inspect
import json
import math
import os
import sys
import typing

PLAIN = {str: 'string', int: 'integer', float: 'number', bool: 'boolean', type(None): 'null'}
LISTS = {'list', 'List', 'Sequence', 'MutableSequence', 'Iterable', 'Collection'}
SETS = {'set', 'Set', 'frozenset', 'FrozenSet'}
TUPLES = {'tuple', 'Tuple'}
MAPS = {'dict', 'Dict', 'Mapping', 'MutableMapping'}
UNIONS = {'Union', 'UnionType', 'Optional'}
FORMS = 'str, int, float, bool, None, list, tuple, set, dict, Literal, Enum, TypedDict, a dataclass or a pydantic model'


class Unknown(Exception):
    """A hint that has no schema, or a handler without a hint. The text is for the author of the handler."""


def schema_of(handler):
    """Returns the schema of the first parameter of a handler. Raises Unknown."""
    function = inspect.unwrap(handler)
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    positional = [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    if not positional:
        raise Unknown('it has no parameter for the event; expected one with a type hint, such as a TypedDict')
    name = positional[0].name
    try:
        hint = _hints(function).get(name)
    except Exception as error:
        raise Unknown('its type hints cannot be read: %s: %s' % (type(error).__name__, error))
    if hint is None or hint in (typing.Any, object):
        raise Unknown('the parameter %s has no type hint that says what the event is; expected %s' % (name, FORMS))
    schemas = _Schemas()
    schema = schemas.of(hint, name)
    if schemas.parts:
        schema = dict(schema, **{'$defs': schemas.parts})
    return schema


def _hints(of):
    try:
        return typing.get_type_hints(of, include_extras=True)  # novm
    except TypeError:
        # Python 3.8 and older.
        return typing.get_type_hints(of)


class _Schemas:
    """Makes the schemas of one event. `parts` has those that refer to themselves, and the parts of pydantic models."""

    def __init__(self):
        self.parts = {}
        self._open = []
        self._recursive = set()

    def of(self, hint, path):
        """Returns the schema of a hint; `path` names the hint in problems."""
        if hint is None:
            hint = type(None)
        if hint in (typing.Any, object):
            return {}
        if isinstance(hint, type) and hint in PLAIN:
            return {'type': PLAIN[hint]}
        if hasattr(hint, '__supertype__'):
            return self.of(hint.__supertype__, path)
        if hasattr(hint, '__metadata__'):
            return self._annotated(hint, path)
        if _is_record(hint):
            return self._class(hint, path)
        if isinstance(hint, type) and issubclass(hint, enum.Enum):
            return self._choice(list(hint), path)
        return self._generic(_word(hint), [each for each in getattr(hint, '__args__', None) or ()], hint, path)

    def _generic(self, word, given, hint, path):
        # Python 3.8 and older have type variables in place of absent arguments.
        args = [] if any(isinstance(each, typing.TypeVar) for each in given) else given
        if word in UNIONS and args:
            return self._union([self.of(each, path) for each in args])
        if word == 'Literal':
            return self._choice(args, path)
        if word in ('Required', 'NotRequired', 'ReadOnly'):
            return self.of(args[0], path)
        if word in LISTS or word in SETS or (word in TUPLES and args[1:] == [Ellipsis]):
            schema = self._with('items', args[:1], path + '[]', {'type': 'array'})
            return dict(schema, uniqueItems=True) if word in SETS else schema
        if word in TUPLES:
            items = [self.of(each, '%s[%d]' % (path, at)) for at, each in enumerate(args) if each != ()]
            size = {'prefixItems': items, 'minItems': len(items), 'maxItems': len(items)} if items else {}
            return dict({'type': 'array'}, **size)
        if word in MAPS:
            if args and args[0] not in (str, typing.Any):
                raise Unknown('%s: a dict of JSON has keys of type str, got %s' % (path, _shown(args[0])))
            return self._with('additionalProperties', args[1:2], path + '{}', {'type': 'object'})
        raise Unknown('%s: %s has no form in JSON; expected %s' % (path, _shown(hint), FORMS))

    def _with(self, keyword, args, path, schema):
        inner = self.of(args[0], path) if args else {}
        return dict(schema, **{keyword: inner}) if inner else schema

    def _union(self, members):
        if all(list(each) == ['type'] and isinstance(each['type'], str) for each in members):
            return {'type': [each['type'] for each in members]}
        return {'anyOf': members}

    def _choice(self, values, path):
        choices = [_plain(value) for value in values]
        if not all(_is_scalar(value) for value in choices):
            raise Unknown('%s: its choices must be str, int, float, bool or None' % path)
        return {'enum': choices}

    def _annotated(self, hint, path):
        schema = self.of(hint.__origin__, path)
        text = next((each for each in hint.__metadata__ if isinstance(each, str)), None)
        return schema if text is None else dict(schema, description=text)

    def _class(self, cls, path):
        if cls in self._open:
            self._recursive.add(cls)
            return {'$ref': '#/$defs/' + cls.__name__}
        self._open.append(cls)
        schema = self._model(cls) if _is_model(cls) else self._record(cls, path)
        self._open.pop()
        if cls not in self._recursive:
            return schema
        self._keep(cls.__name__, schema, path)
        return {'$ref': '#/$defs/' + cls.__name__}

    def _record(self, cls, path):
        try:
            hints = _hints(cls)
        except Exception as error:
            raise Unknown('%s: the type hints of %s cannot be read: %s' % (path, cls.__name__, error))
        fields = getattr(cls, '__dataclass_fields__', None)
        if fields is None:
            defaults = {}
            required = [name for name in hints if _is_required(cls, name, hints[name])]
        else:
            hints = {name: hints[name] for name in hints if name in fields and _is_parameter(fields[name])}
            defaults = _defaults(fields)
            required = [name for name in hints if name not in defaults]
        properties = {}
        for name in hints:
            properties[name] = self.of(hints[name], '%s.%s' % (path, name))
            default = _plain(defaults.get(name, list))
            if _is_scalar(default):
                properties[name] = dict(properties[name], default=default)
        schema = {'type': 'object', 'properties': properties}
        if required:
            schema['required'] = required
        doc = cls.__dict__.get('__doc__')
        if doc and not doc.startswith(cls.__name__ + '('):
            schema['description'] = inspect.cleandoc(doc)
        return schema

    def _model(self, cls):
        make = getattr(cls, 'model_json_schema', None) or cls.schema
        schema = dict(make(ref_template='#/$defs/{model}'))
        for keyword in ('$defs', 'definitions'):
            for name, part in schema.pop(keyword, {}).items():
                self._keep(name, part, cls.__name__)
        return schema

    def _keep(self, name, schema, path):
        if self.parts.setdefault(name, schema) != schema:
            raise Unknown('%s: two different classes have the name %s; rename one' % (path, name))


def _is_model(cls):
    return hasattr(cls, 'model_json_schema') or (hasattr(cls, '__fields__') and hasattr(cls, 'schema'))


def _is_record(hint):
    """Returns whether a hint is a TypedDict, a dataclass or a model of pydantic."""
    if not isinstance(hint, type):
        return False
    is_dict = issubclass(hint, dict) and hasattr(hint, '__total__')
    return is_dict or hasattr(hint, '__dataclass_fields__') or _is_model(hint)


def _word(hint):
    """Returns the name of a generic type: `list` for `List[int]`, `Union` for `int | str`."""
    if type(hint).__name__ == 'UnionType':
        return 'Union'
    origin = getattr(hint, '__origin__', None) or hint
    return getattr(origin, '_name', None) or getattr(origin, '__name__', None) or str(origin).rpartition('.')[2]


def _plain(value):
    return value.value if isinstance(value, enum.Enum) else value


def _is_scalar(value):
    """Returns whether a value has a form in JSON and is neither a list nor a dict."""
    return value is None or (isinstance(value, (str, int, float)) and (isinstance(value, str) or math.isfinite(value)))


def _shown(hint):
    return hint.__name__ if isinstance(hint, type) else str(hint)


def _is_parameter(field):
    """Returns whether a field of a dataclass is a parameter of its constructor; a ClassVar is none."""
    return field.init and field._field_type.name != '_FIELD_CLASSVAR'


def _defaults(fields):
    """Returns the defaults of the fields of a dataclass that have one, or the factory that makes it."""
    found = {}
    for name, field in fields.items():
        for default in (field.default, field.default_factory):
            if type(default).__name__ != '_MISSING_TYPE':
                found[name] = default
    return found


def _is_required(cls, name, hint):
    """Returns whether a TypedDict needs a key. A hint that is text hides `NotRequired` from the class itself."""
    word = _word(hint)
    if word in ('Required', 'NotRequired'):
        return word == 'Required'
    keys = getattr(cls, '__required_keys__', None)
    return cls.__total__ if keys is None else name in keys


def main(directory, name):
    """Returns the object to print."""
    # The module must not find the files beside this program.
    sys.path[:] = [directory] + [path for path in sys.path if path != os.path.dirname(os.path.abspath(__file__))]
    path, _, symbol = name.rpartition('.')
    try:
        handler = getattr(importlib.import_module(path.replace('/', '.')), symbol)
    except BaseException as error:  # SystemExit too: a module may raise anything while it loads
        if isinstance(error, KeyboardInterrupt):
            raise
        return {'problem': 'it cannot be imported: %s: %s' % (type(error).__name__, error)}
    try:
        return {'schema': schema_of(handler)}
    except Unknown as error:
        return {'problem': str(error)}


if __name__ == '__main__':
    answer = os.fdopen(os.dup(1), 'w')
    os.dup2(2, 1)
    answer.write(json.dumps(main(os.path.abspath(sys.argv[1]), sys.argv[2]), default=str))
    answer.flush()
    # The module may have started threads that never end.
    os._exit(0)
