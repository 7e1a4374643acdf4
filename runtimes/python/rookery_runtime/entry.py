"""From `module.function` below the code directory to something that can be called."""
import importlib
import importlib.machinery
import importlib.util
import inspect
import os
import sys
import traceback
import types
from importlib import _bootstrap

from .failures import CallFailure, is_foreign, log_exception, text_of
from .protocol import CODE_LOAD

_ASYNC = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_PACKAGE = __name__.split('.', 1)[0]


def prepare_path(code_path):
    """Puts the code directory first on `sys.path`, behind it PYTHONPATH, which a forked interpreter has not read."""
    paths = [code_path] + [path for path in os.environ.get('PYTHONPATH', '').split(os.pathsep) if path]
    sys.path[:] = paths + [path for path in sys.path if path not in paths]
    for path in paths:
        # What was there before the user's code was. Of other directories each finder sees by itself that they have changed.
        sys.path_importer_cache.pop(path, None)
    _forget_namesakes(code_path)


def load(entry, code_path, kind):
    """
    The function that `entry` names. Its module must be below `code_path`; a file of that name elsewhere does not count.
    Fails with CallFailure 4001, whose text says which file and why.
    """
    module_name, _, symbol = entry.rpartition('.')
    if not module_name or not symbol or not all(part.isidentifier() for part in module_name.split('.')):
        raise _failure(kind, entry, 'it must have the form module.function')
    if not code_path:
        raise _failure(kind, entry, 'codePath is empty, so there is no directory to look for %s in' % module_name)
    if not os.path.isdir(code_path):
        raise _failure(kind, entry, 'the code directory %s does not exist' % code_path)
    path = _find(module_name, code_path)
    if path is None:
        parts = os.path.join(code_path, *module_name.split('.'))
        raise _failure(kind, entry, 'module %s not found: neither %s.py nor %s/__init__.py exists' % (
            module_name, parts, parts))
    try:
        module = _import(module_name, path)
    except SyntaxError as error:
        log_exception('cannot load the %s %s' % (kind, entry), error)
        where = '%s:%s' % (error.filename or path, error.lineno)
        raise _failure(kind, entry, '%s: %s: %s' % (where, type(error).__name__, error.msg))
    except CallFailure:
        raise
    except BaseException as error:  # SystemExit too: a module may say anything while it loads
        if type(error).__name__ == 'CallCancelled':
            raise
        log_exception('cannot load the %s %s' % (kind, entry), error)
        raise _failure(kind, entry, '%s: %s' % (_where(error, path), text_of(error)))
    function = getattr(module, symbol, None)
    if function is None:
        raise _failure(kind, entry, '%s has no function %s' % (path, symbol))
    if not callable(function):
        raise _failure(kind, entry, '%s in %s is not callable but of type %s' % (
            symbol, path, type(function).__name__))
    return function


def adapt_handler(function, entry):
    """The handler as `f(event, context)`, whichever of the two its parameters take."""
    forms = (
        ((1, 1), (), None),
        ((1,), ('context',), lambda event, context: function(event, context=context)),
        ((1,), (), lambda event, context: function(event)),
        ((), ('event', 'context'), lambda event, context: function(event=event, context=context)),
        ((), (), lambda event, context: function()),
    )
    return _adapt(function, entry, forms, 'event, context')


def adapt_hook(function, entry):
    """An initializer or pre_stop as `f(context)`."""
    forms = (
        ((1,), (), None),
        ((), ('context',), lambda context: function(context=context)),
        ((), (), lambda context: function()),
    )
    return _adapt(function, entry, forms, 'context')


def is_async(function):
    """Whether calling it gives a coroutine or an async generator."""
    if _is_plain(function):
        return bool(function.__code__.co_flags & _ASYNC)
    while hasattr(function, 'func') and hasattr(function, 'keywords'):  # functools.partial
        function = function.func
    for candidate in (function, getattr(type(function), '__call__', None)):
        if inspect.iscoroutinefunction(candidate) or inspect.isasyncgenfunction(candidate):
            return True
    return False


def _is_plain(function):
    """
    Nothing has to be asked of `inspect` then, which writes to a quarter of a megabyte that instances would share otherwise.
    """
    return type(function) is types.FunctionType and not function.__dict__


def _takes(function, count):
    """Whether it is a plain function that takes so many values by position."""
    if not _is_plain(function):
        return False
    code = function.__code__
    needed = code.co_argcount - len(function.__defaults__ or ())
    most = sys.maxsize if code.co_flags & inspect.CO_VARARGS else code.co_argcount
    return needed <= count <= most and code.co_kwonlyargcount == len(function.__kwdefaults__ or ())


def _adapt(function, entry, forms, expected):
    if _takes(function, len(forms[0][0])):  # the first form is the one that needs nothing adapted
        return function
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a builtin that does not tell
        return function
    for positional, names, adapted in forms:
        try:
            signature.bind(*positional, **dict.fromkeys(names))
        except TypeError:
            continue
        return function if adapted is None else adapted
    raise CallFailure(CODE_LOAD, 'cannot use %s: its parameters are %s, expected (%s)' % (entry, signature, expected))


def _failure(kind, entry, why):
    return CallFailure(CODE_LOAD, 'cannot load the %s %s: %s' % (kind, entry, why))


def _find(module_name, code_path):
    """The module's file below the code directory, or None."""
    base = os.path.join(code_path, *module_name.split('.'))
    suffixes = importlib.machinery.all_suffixes()
    for suffix in suffixes:
        if os.path.isfile(os.path.join(base, '__init__' + suffix)):
            return os.path.join(base, '__init__' + suffix)
    for suffix in suffixes:
        if os.path.isfile(base + suffix):
            return base + suffix
    return None


def _import(module_name, path):
    if '.' not in module_name and module_name not in sys.modules and module_name not in sys.builtin_module_names:
        # As an import, without its search for what was found already: the finders are half of its code, and what runs is written to.
        module = _bootstrap._load(_spec(module_name, path))
    else:
        module = importlib.import_module(module_name)
    if _same_file(module, path):
        return module
    # The name belongs to a module of the standard library, which stays what others import by it.
    spec = _spec(module_name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class _Uncached(importlib.machinery.SourceFileLoader):
    """Neither looks for bytecode nor writes it down: the finding out alone is a tenth of the load of a small module."""

    def path_stats(self, path):
        # Whose times are not known has no bytecode that would be its own.
        raise OSError


def _spec(module_name, path):
    directory = os.path.dirname(path)
    search = [directory] if os.path.basename(path).startswith('__init__.') else None
    loader = None if _may_have_bytecode(directory) or not path.endswith('.py') else _Uncached(module_name, path)
    return importlib.util.spec_from_file_location(module_name, path, loader=loader, submodule_search_locations=search)


def _may_have_bytecode(directory):
    """Whether there may be some of a module in it, or could be afterwards."""
    return (getattr(sys, 'pycache_prefix', None) is not None or os.path.isdir(os.path.join(directory, '__pycache__'))
            or os.access(directory, os.W_OK))


def _same_file(module, path):
    try:
        return os.path.samefile(module.__file__, path)
    except (AttributeError, TypeError, OSError):
        return False


def _forget_namesakes(code_path):
    """
    Modules that were imported before the user's code was there (by site-packages' .pth files, say) must not stand in for
    the user's files of the same name. The standard library's names stay the standard library's.
    """
    try:
        names = set(name.split('.', 1)[0] for name in os.listdir(code_path))
    except OSError:
        return
    standard = os.path.dirname(os.__file__) + os.sep
    # Not by a set's intersection, which looks at every module there is: each look is a write to a page that a fork shares.
    for name in [name for name in names if name in sys.modules]:
        path = getattr(sys.modules[name], '__file__', None)
        if name in (_PACKAGE, '__main__') or path is None:
            continue
        if path.startswith(standard) and 'site-packages' not in path and 'dist-packages' not in path:
            continue
        for loaded in [other for other in sys.modules if other == name or other.startswith(name + '.')]:
            del sys.modules[loaded]


def _where(error, path):
    """`file:line` of the user's innermost line before the exception left for the libraries; else the module's file."""
    directory = os.path.dirname(path)
    where = path
    for frame in traceback.extract_tb(error.__traceback__):
        if is_foreign(frame.filename) and frame.filename.startswith(directory):
            where = '%s:%d' % (frame.filename, frame.lineno)
    return where
