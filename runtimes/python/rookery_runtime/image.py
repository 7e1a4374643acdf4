"""
Starts the runtime in a container: `python3.N image.py ORDERS`, by the path of this file.

The image's own `rookery_runtime` is used when it has one that speaks this version of the protocol, else the package that this file is
in. Where that is, the user's code does not see: neither on its path nor in its environment.
"""
import json
import os
import socket
import sys

_PACKAGE = 'rookery_runtime'
_PROTOCOL_VERSION = 1
_BACKLOG = 128
#: Told to the control plane by the exit code, in place of words.
_EXIT_OTHER_PYTHON = 79
_EXIT_NO_PROGRAM = 80


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    # The interpreter put it first because this file is there.
    sys.path[:] = [path for path in sys.path if path != here]
    with open(sys.argv[1]) as source:
        orders = json.load(source)
    if orders['version'] is not None and orders['version'] != '%d.%d' % sys.version_info[:2]:
        os._exit(_EXIT_OTHER_PYTHON)
    # It holds the secret.
    os.unlink(sys.argv[1])
    if orders['argv'] and not (os.path.isfile(orders['argv'][0]) and os.access(orders['argv'][0], os.X_OK)):
        os._exit(_EXIT_NO_PROGRAM)
    for name in orders['unset']:
        os.environ.pop(name, None)
    runtime = _find_runtime(os.path.dirname(here), orders['mode'])
    path, secret = orders['socket'], orders['secret']
    if orders['mode'] == 'program':
        from rookery_runtime import program_bridge

        variables = {'ROOKERY_RUNTIME_SOCKET': path, 'ROOKERY_RUNTIME_SECRET': secret}
        program_bridge.serve(path, secret, orders['argv'], variables)
    elif orders['mode'] == 'http':
        from rookery_runtime import http_bridge

        http_bridge.serve(_listen(path), secret, orders['argv'])
    else:
        runtime.serve(_listen(path), secret)


def _find_runtime(ours, mode):
    """The package, imported. The image's own copy serves its Python; the bridge to HTTP is always ours."""
    if mode == 'python':
        try:
            protocol = __import__(_PACKAGE + '.protocol', fromlist=['VERSION'])
            if protocol.VERSION == _PROTOCOL_VERSION:
                return __import__(_PACKAGE)
        except Exception:  # whatever is wrong with it, ours is there
            pass
        for name in [name for name in sys.modules if name == _PACKAGE or name.startswith(_PACKAGE + '.')]:
            del sys.modules[name]
    sys.path.insert(0, ours)
    try:
        return __import__(_PACKAGE)
    finally:
        sys.path.remove(ours)


def _listen(path):
    """A socket that is at `path` only when it can be connected to."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path + '.new')
    # The directory's mode and the secret decide who may connect: the control plane is often another user.
    os.chmod(path + '.new', 0o666)
    listener.listen(_BACKLOG)
    os.rename(path + '.new', path)
    return listener


if __name__ == '__main__':
    main()
