"""Handlers that the tests of sandboxes run inside. Each follows its event and returns its observation."""
import ctypes
import json
import os
import socket
import struct
import subprocess
import sys
import time

state = {'count': 0}


def echo(event, context):
    return event


def count(event, context):
    state['count'] += 1
    return state['count']


def exit(event, context):
    os._exit(event['code'])


def kill_self(event, context):
    os.kill(os.getpid(), event['signal'])
    time.sleep(30)


def print_lines(event, context):
    for number in range(event['from'], event['to']):
        print('%s%d' % (event.get('text', 'line '), number))
    return event['to'] - event['from']


def print_and_exit(event, context):
    for number in range(1, event['to'] + 1):
        print('line %d' % number, flush=True)
    os._exit(event['code'])


def flood(event, context):
    block = ('x' * 1023 + '\n') * 1024
    for _ in range(event['megabytes']):
        sys.stdout.write(block)
    sys.stdout.flush()
    return 'printed'


def environment(event, context):
    return dict(os.environ)


def process(event, context):
    with open('/proc/self/status') as source:
        status = dict(line.rstrip('\n').split(':\t', 1) for line in source if ':\t' in line)
    mask = os.umask(0)
    os.umask(mask)
    return {
        'pid': os.getpid(),
        'uid': os.getuid(),
        'gid': os.getgid(),
        'groups': sorted(os.getgroups()),
        'directory': os.getcwd(),
        'umask': mask,
        'descriptors': sorted(int(name) for name in os.listdir('/proc/self/fd')),
        'capabilities': [status['CapEff'], status['CapPrm'], status['CapBnd'], status['CapInh']],
        'noNewPrivs': status['NoNewPrivs'],
        'seccomp': status.get('Seccomp'),
        'session': os.getsid(0) == os.getpid(),
    }


def attempt(event, context):
    """Runs lines of code, the last of which is an expression. Returns its value as text, or `<error name>: <text>`."""
    names = {'os': os, 'socket': socket, 'subprocess': subprocess, 'sys': sys, 'syscall': syscall, 'knock': knock}
    lines = event['code'].split('\n')
    try:
        exec('\n'.join(lines[:-1]), names)
        return str(eval(lines[-1], names))
    except Exception as error:
        return '%s: %s' % (type(error).__name__, error)


def knock(top, instance):
    """Sends a request to the sockets of zygotes and of this instance. Returns the answers by socket name, as JSON."""
    order = b'{"op":"stats"}'
    replies = {}
    for directory, _names, files in os.walk(top):
        for name in files:
            if not name.endswith('.sock') or name == 'runtime.sock' or (name == 'init.sock' and instance not in directory):
                continue
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                connection.settimeout(10)
                connection.connect(os.path.join(directory, name))
                connection.sendall(struct.pack('>I', len(order)) + order)
                replies[name] = connection.recv(4096)[4:].decode()
            except OSError as error:
                replies[name] = type(error).__name__
            finally:
                connection.close()
    return json.dumps(replies)


def syscall(number, *arguments):
    """Returns the result of a raw system call of x86_64. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    result = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(one) if isinstance(one, int) else one for one in arguments])
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def write(event, context):
    with open(event['path'], 'w') as target:
        target.write(event['text'])
    return os.stat(event['path']).st_uid


def read(event, context):
    with open(event['path']) as source:
        return source.read()


def eat_memory(event, context):
    held = []
    while True:
        held.append(bytearray(16 * 1024 * 1024))


def fork_bomb(event, context):
    while True:
        try:
            if os.fork() == 0:
                while True:
                    try:
                        os.fork()
                    except OSError:
                        time.sleep(0.01)
        except OSError:
            return 'no more'


def spin(event, context):
    """Returns the CPU seconds that this process got in `seconds` of real time."""
    end = time.monotonic() + event['seconds']
    before = time.process_time()
    while time.monotonic() < end:
        pass
    return time.process_time() - before


def sleep(event, context):
    time.sleep(event['seconds'])


def leave_children(event, context):
    """Leaves unreaped children running in their own sessions."""
    for _ in range(3):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(600)
            os._exit(0)
    return 'left'


def ignore_term(event, context):
    import signal

    signal.signal(signal.SIGTERM, signal.SIG_IGN)
