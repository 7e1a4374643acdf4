"""Prepares the process around user code: its streams, its random state, its __main__."""
import io
import os
import random
import sys
import time
import types


def after_fork():
    """
    Renews all state that two processes forked from one parent must not share.

    For zygotes that import this package once and fork. Called in the child, before any user code.
    """
    if sys.version_info < (3, 7):
        # Later versions reseed at each fork. A second time would cost each instance memory pages of its own.
        random.seed()
    modules = sys.modules
    uuid = modules.get('uuid')
    if uuid is not None:
        uuid._last_timestamp = None
        if getattr(uuid, '_node', None) is not None and (uuid._node >> 40) & 1:  # a random node id
            uuid._node = None
    ssl = modules.get('ssl')
    if ssl is not None and ssl.OPENSSL_VERSION_INFO < (1, 1, 1):
        # Later versions of OpenSSL detect a fork and read fresh random bytes from the kernel.
        ssl.RAND_add(os.urandom(32), 32.0)
    numpy_random = modules.get('numpy.random')
    if numpy_random is not None:
        numpy_random.seed()
    multiprocessing = modules.get('multiprocessing.process')
    if multiprocessing is not None:  # the key lets processes of a single family connect to each other
        multiprocessing.current_process().authkey = os.urandom(32)


def make_standard_streams():
    """
    Makes stdout and stderr line-buffered UTF-8 streams, so that each line reaches the log at once.

    Replaces a closed descriptor by /dev/null. Returns the `flush` methods of the two streams.
    """
    for name, descriptor in (('stdout', 1), ('stderr', 2)):
        try:
            os.fstat(descriptor)
        except OSError:
            setattr(sys, name, open(os.devnull, 'w'))
            continue
        raw = io.FileIO(descriptor, 'w', closefd=False)
        raw.name = '<%s>' % name
        stream = io.TextIOWrapper(
            io.BufferedWriter(raw, 64 * 1024), encoding='utf-8', errors='backslashreplace', line_buffering=True)
        stream.mode = 'w'
        setattr(sys, name, stream)
        setattr(sys, '__%s__' % name, stream)
    return sys.stdout.flush, sys.stderr.flush


def make_main_module():
    """
    Installs an empty `__main__`, as in an interactive session.

    Otherwise pickle, inspect and the children of multiprocessing would find the program that started the
    runtime.
    """
    make_main_module.kept = sys.modules.get('__main__')  # its globals are still in use
    main = types.ModuleType('__main__')
    main.__dict__['__builtins__'] = __builtins__
    sys.modules['__main__'] = main
    sys.argv = ['']
    if hasattr(sys, 'orig_argv'):  # novermin: Python 3.10
        sys.orig_argv = [sys.executable]  # novermin


def read_environment():
    """
    Applies variables that the interpreter reads at its start and that a forked interpreter did not have then.
    """
    if os.environ.get('TZ'):
        time.tzset()
    if os.environ.get('PYTHONDONTWRITEBYTECODE'):
        sys.dont_write_bytecode = True
