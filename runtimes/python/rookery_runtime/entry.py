"""Loads the callable that `module.function` names below the code directory."""
import importlib
import importlib.machinery
import importlib.util
import inspect
import os
import re
import sys
import traceback
import types
from importlib import _bootstrap

from .failures import CallFailure, is_foreign, log_exception, text_of
from .forked import leave_child
from .protocol import CODE_LOAD

_ASYNC = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
#: Allowed names of files, between dots and slashes.
_PART = re.compile(r'[\w$@-]+\Z')
_PACKAGE = __name__.split('.', 1)[0]


def prepare_path(code_path):
    """
    Puts the code directory first on `sys.path`, followed by the directories of PYTHONPATH.

    A forked interpreter has not read PYTHONPATH itself.
    """
    paths = [code_path] + [path for path in os.environ.get('PYTHONPATH', '').split(os.pathsep) if path]
    sys.path[:] = paths + [path for path in sys.path if path not in paths]
    for path in paths:
        # The cached finders may predate the user's code. Finders of other directories detect changes
        # themselves.
        sys.path_importer_cache.pop(path, None)
    _forget_namesakes(code_path)


def load(entry, code_path, kind):
    """
    Returns the function that `entry` names.

    Its module must be below `code_path`; a file of that name in another directory does not count. Raises
    CallFailure with code 4001, whose text names the file and the reason.
    """
    given_name, _, symbol = entry.rpartition('.')
    # `src/app` names the same module as `import src.app`.
    module_name = given_name.replace('/', '.')
    if not symbol or not all(part.isidentifier() or _PART.match(part) for part in module_name.split('.')):
        raise _failure(kind, entry, 'it must have the form module.function')
    if not code_path:
        raise _failure(kind, entry, 'codePath is empty, so there is no directory to look for %s in' % given_name)
    if not os.path.isdir(code_path):
        why = 'is a file and not a directory: unpack it, and mount the directory' if os.path.exists(code_path) else (
            'does not exist')
        raise _failure(kind, entry, 'the code directory %s %s' % (code_path, why))
    path = _find(module_name, code_path)
    if path is None:
        parts = os.path.join(code_path, *module_name.split('.'))
        raise _failure(kind, entry, 'module %s not found: %s' % (given_name, _broken_link(parts, code_path) or (
            'neither %s.py nor %s/__init__.py exists' % (parts, parts))))
    try:
        module = _import(module_name, path)
    except SyntaxError as error:
        leave_child(error)
        log_exception('cannot load the %s %s' % (kind, entry), error)
        where = '%s:%s' % (error.filename or path, error.lineno)
        raise _failure(kind, entry, '%s: %s: %s' % (where, type(error).__name__, error.msg))
    except CallFailure:
        raise
    except BaseException as error:  # SystemExit too: a module may raise anything while it loads
        if type(error).__name__ == 'CallCancelled':
            raise
        leave_child(error)
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
    """
    Returns the handler as `f(event, context)`. The handler itself may take both parameters, one or none.

    Raises CallFailure with code 4001 if the parameters do not fit.
    """
    forms = (
        ((1, 1), (), None),
        ((1,), ('context',), lambda event, context: function(event, context=context)),
        ((1,), (), lambda event, context: function(event)),
        ((), ('event', 'context'), lambda event, context: function(event=event, context=context)),
        ((), (), lambda event, context: function()),
    )
    return _adapt(function, entry, forms, 'event, context')


def adapt_hook(function, entry):
    """
    Returns an initializer or pre_stop as `f(context)`.

    Raises CallFailure with code 4001 if the parameters do not fit.
    """
    forms = (
        ((1,), (), None),
        ((), ('context',), lambda context: function(context=context)),
        ((), (), lambda context: function()),
    )
    return _adapt(function, entry, forms, 'context')


def is_async(function):
    """Returns True if a call of the function returns a coroutine or an async generator."""
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
    Returns True if the function needs no call of `inspect`.

    `inspect` writes to 256 KiB of memory that instances would otherwise share.
    """
    return type(function) is types.FunctionType and not function.__dict__


def _takes(function, count):
    """Returns True if it is a plain function that accepts `count` positional arguments."""
    if not _is_plain(function):
        return False
    code = function.__code__
    needed = code.co_argcount - len(function.__defaults__ or ())
    most = sys.maxsize if code.co_flags & inspect.CO_VARARGS else code.co_argcount
    return needed <= count <= most and code.co_kwonlyargcount == len(function.__kwdefaults__ or ())


def _adapt(function, entry, forms, expected):
    if _takes(function, len(forms[0][0])):  # the first form needs no adapter
        return function
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a builtin without a signature
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
    """Returns the path of the module's file below the code directory, or None."""
    base = os.path.join(code_path, *module_name.split('.'))
    suffixes = importlib.machinery.all_suffixes()
    for suffix in suffixes:
        if os.path.isfile(os.path.join(base, '__init__' + suffix)):
            return os.path.join(base, '__init__' + suffix)
    for suffix in suffixes:
        if os.path.isfile(base + suffix):
            return base + suffix
    return None


def _broken_link(base, code_path):
    """Returns a sentence about the first dangling link on the path of a module, or None if there is none."""
    paths = [base + '.py', base + '/__init__.py', base]
    while os.path.dirname(paths[-1]).startswith(code_path.rstrip('/') + '/'):
        paths.append(os.path.dirname(paths[-1]))
    for path in paths:
        if os.path.islink(path) and not os.path.exists(path):
            return '%s is a link to %s, which does not exist inside the sandbox' % (path, os.readlink(path))
    return None


def _import(module_name, path):
    if '.' not in module_name and module_name not in sys.modules and module_name not in sys.builtin_module_names:
        # Same as an import, but without the search for the file, which `_find` has done. The finders are half
        # of the code of an import, and executed code is written to, so that its memory is no longer shared.
        module = _bootstrap._load(_spec(module_name, path))
    else:
        module = _import_dotted(module_name)
    if _same_file(module, path):
        return module
    # The name belongs to a module of the standard library, which other modules continue to import by that
    # name.
    spec = _spec(module_name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _import_dotted(module_name):
    """
    Returns the imported module, or None if a package of that name hides the directory of the user's file.
    """
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name + '.').startswith(error.name + '.'):
            return None
        raise


class _Uncached(importlib.machinery.SourceFileLoader):
    """
    Loader that neither looks for bytecode nor writes it.

    The lookup alone takes a tenth of the load time of a small module.
    """

    def path_stats(self, path):
        # Without the times of the source the base class does not use bytecode.
        raise OSError


def _spec(module_name, path):
    directory = os.path.dirname(path)
    search = [directory] if os.path.basename(path).startswith('__init__.') else None
    loader = None if _may_have_bytecode(directory) or not path.endswith('.py') else _Uncached(module_name, path)
    return importlib.util.spec_from_file_location(module_name, path, loader=loader, submodule_search_locations=search)


def _may_have_bytecode(directory):
    """Returns True if the directory may hold bytecode, now or after this import."""
    return (getattr(sys, 'pycache_prefix', None) is not None or os.path.isdir(os.path.join(directory, '__pycache__'))
            or os.access(directory, os.W_OK))


def _same_file(module, path):
    try:
        return os.path.samefile(module.__file__, path)
    except (AttributeError, TypeError, OSError):
        return False


def _forget_namesakes(code_path):
    """
    Removes modules from `sys.modules` that have the name of a file in the code directory.

    Site-packages' .pth files, for example, import such modules before the user's code exists. Modules of the
    standard library stay.
    """
    try:
        names = set(name.split('.', 1)[0] for name in os.listdir(code_path))
    except OSError:
        return
    standard = os.path.dirname(os.__file__) + os.sep
    # A set's intersection would touch every module. Each touch writes to a page that forked processes share.
    for name in [name for name in names if name in sys.modules]:
        path = getattr(sys.modules[name], '__file__', None)
        if name in (_PACKAGE, '__main__') or path is None:
            continue
        if path.startswith(standard) and 'site-packages' not in path and 'dist-packages' not in path:
            continue
        for loaded in [other for other in sys.modules if other == name or other.startswith(name + '.')]:
            del sys.modules[loaded]


def _where(error, path):
    """Returns `file:line` of the innermost frame of user code in the traceback, or the module's file."""
    directory = os.path.dirname(path)
    where = path
    for frame in traceback.extract_tb(error.__traceback__):
        if is_foreign(frame.filename) and frame.filename.startswith(directory):
            where = '%s:%d' % (frame.filename, frame.lineno)
    return where
