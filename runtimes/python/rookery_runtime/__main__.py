"""Starts the runtime as a separate program: `python -m rookery_runtime --socket PATH`."""
import argparse
import os
import socket
import sys

import rookery_runtime
from rookery_runtime import unix_path

_BACKLOG = 128


def _listen_unix(path):
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    listener = unix_path.listen(path, _BACKLOG)
    # The control plane often runs as another user. The directory's mode and the secret protect the socket.
    os.chmod(path, 0o666)
    return listener


def _listen_tcp(address):
    host, _, port = address.rpartition(':')
    family = socket.AF_INET6 if ':' in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host.strip('[]'), int(port)))
    listener.listen(_BACKLOG)
    return listener


def main():
    parser = argparse.ArgumentParser(
        prog='python -m rookery_runtime', description='Serves one Rookery instance.',
        epilog='The secret comes from the environment: ROOKERY_RUNTIME_SECRET.')
    where = parser.add_mutually_exclusive_group()
    where.add_argument('--socket', metavar='PATH', help='listen on a unix socket (default: $ROOKERY_RUNTIME_SOCKET)')
    where.add_argument('--fd', metavar='N', type=int, help='serve on an inherited listening socket')
    where.add_argument('--tcp', metavar='HOST:PORT', help='listen on TCP')
    what = parser.add_mutually_exclusive_group()
    what.add_argument('--http', action='store_true', help='serve PROGRAM, a server of HTTP on 127.0.0.1:8000')
    what.add_argument('--program', action='store_true',
                      help='serve PROGRAM, which makes the unix socket itself, or is a server as with --http')
    parser.add_argument('argv', metavar='PROGRAM', nargs='*', help='the program and its arguments')
    arguments = parser.parse_args()
    if bool(arguments.argv) != (arguments.http or arguments.program):
        parser.error('a PROGRAM comes with --http or --program, and they with it')
    path = os.environ.pop('ROOKERY_RUNTIME_SOCKET', None)
    secret = os.environ.pop('ROOKERY_RUNTIME_SECRET', '')
    if not secret:
        parser.error('ROOKERY_RUNTIME_SECRET is not set: it must hold the secret that connections open with')
    if arguments.program:
        _serve_program(parser, arguments.socket or path, secret, arguments.argv)
    if arguments.fd is not None:
        listener = socket.socket(fileno=arguments.fd) if sys.version_info >= (3, 7) else socket.fromfd(
            arguments.fd, socket.AF_UNIX, socket.SOCK_STREAM)
        os.set_inheritable(listener.fileno(), False)
    elif arguments.tcp is not None:
        listener = _listen_tcp(arguments.tcp)
    elif arguments.socket or path:
        listener = _listen_unix(arguments.socket or path)
    else:
        parser.error('one of --socket, --fd and --tcp, or ROOKERY_RUNTIME_SOCKET, is needed')
    if arguments.http:
        # Imported here only: the other modes do not need this module.
        from rookery_runtime import http_bridge

        http_bridge.serve(listener, secret, arguments.argv)
    rookery_runtime.serve(listener, secret)


def _serve_program(parser, path, secret, argv):
    if not path:
        parser.error('--program needs --socket or ROOKERY_RUNTIME_SOCKET')
    from rookery_runtime import program_bridge

    program_bridge.serve(path, secret, argv, {'ROOKERY_RUNTIME_SOCKET': path, 'ROOKERY_RUNTIME_SECRET': secret})


if __name__ == '__main__':
    main()
