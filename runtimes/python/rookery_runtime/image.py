"""
Starts the runtime in a container: `python3.N image.py ORDERS`, by the path of this file.

Uses the image's own `rookery_runtime` if it speaks this version of the protocol, otherwise the package around
this file. The user's code does not see that package, neither in its path nor in its environment.
"""
import json
import os
import socket
import sys

_PACKAGE = 'rookery_runtime'
_PROTOCOL_VERSION = 1
_BACKLOG = 128
#: Exit codes by which the control plane recognizes the reason of a failed start.
_EXIT_OTHER_PYTHON = 79
_EXIT_NO_PROGRAM = 80


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    # The interpreter has put the directory of this file first.
    sys.path[:] = [path for path in sys.path if path != here]
    with open(sys.argv[1]) as source:
        orders = json.load(source)
    if orders['version'] is not None and orders['version'] != '%d.%d' % sys.version_info[:2]:
        os._exit(_EXIT_OTHER_PYTHON)
    # The file holds the secret.
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
    """
    Imports the package and returns it.

    In mode `python` the image's own copy is preferred. The bridge to HTTP always uses the package around this
    file.
    """
    if mode == 'python':
        try:
            protocol = __import__(_PACKAGE + '.protocol', fromlist=['VERSION'])
            if protocol.VERSION == _PROTOCOL_VERSION:
                return __import__(_PACKAGE)
        except Exception:  # whatever is wrong with the image's copy, the other one is used
            pass
        for name in [name for name in sys.modules if name == _PACKAGE or name.startswith(_PACKAGE + '.')]:
            del sys.modules[name]
    sys.path.insert(0, ours)
    try:
        return __import__(_PACKAGE)
    finally:
        sys.path.remove(ours)


def _listen(path):
    """Returns a listening socket. Its file appears at `path` only when connections are accepted."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path + '.new')
    # The control plane often runs as another user. The directory's mode and the secret protect the socket.
    os.chmod(path + '.new', 0o666)
    listener.listen(_BACKLOG)
    os.rename(path + '.new', path)
    return listener


if __name__ == '__main__':
    main()
