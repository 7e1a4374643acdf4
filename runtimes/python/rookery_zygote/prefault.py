"""Which pages every instance uses until it has answered its first call: a worker copies those that will be written to, and maps those of files,
while nobody waits for it (`populate` in `runtimes/native/fork/fork.c`). The instance would else come to each in a fault of its own.

A process with the memory of all workers, a *scout*, lives the life of an instance and is looked at when it has answered. All workers are forks of
the same process, so what it wrote they write too. A fork inherits no page of a file that it only reads, so what the scout has there it has read.
"""

import json
import os
import signal
import socket
import struct
import sys

import rookery_runtime
from rookery_runtime import protocol

from . import frames, process, rehearsal, user_process

_PAGE = os.sysconf("SC_PAGESIZE")
_ENTRY = struct.Struct("@Q")
#: Of the kernel's Documentation/admin-guide/mm/pagemap.rst: bits of an entry, which are there without rights too.
_IS_OWN, _IS_OF_FILE, _IS_PRESENT = 1 << 56, 1 << 61, 1 << 63
#: Which of them count, and how they stand, in what a process writes to and in what it reads of a file.
_WRITTEN = (_IS_PRESENT | _IS_OWN | _IS_OF_FILE, _IS_PRESENT | _IS_OWN)
_READ = (_IS_PRESENT | _IS_OF_FILE, _IS_PRESENT | _IS_OF_FILE)
#: A bound for a machine that stands still: no start is served before.
_SECONDS = 3
#: In the machine's own namespaces the user's processes may be many already.
_LIMITS = dict(rehearsal.ORDERS["limits"], maxProcesses=1 << 20)


def find(plan):
    """
    As (address, bytes, whether it is written to), in the process that workers will be forked from. Empty where the kernel does not say, or when
    something goes wrong: then instances come to their pages themselves. Leaves no process and no descriptor.
    """
    # The scout is in no sandbox. Without one of these code that runs as the same user could reach into it.
    if not any(map(plan.layers.has, ("pid", "user", "user_limits"))):
        return []
    try:
        return [tuple(run) for run in _hear(plan)]
    except Exception as error:
        _log(error)
        return []


def _hear(plan):
    """What the client says; a third process, since pages that it writes to are not the scout's alone: this one has them still."""
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            client = os.fork()
            if client == 0:
                ours.close()
                _tell(theirs, plan)
            # Here too, whoever is first: it is ended with the scout as one.
            _lead(client)
        ours.settimeout(_SECONDS)
        try:
            said = frames.read(ours)
        finally:
            os.killpg(client, signal.SIGKILL)
            _reap(client)
    return json.loads(said.decode()) if said else []


def _tell(connection, plan):
    """The life of the client. Never returns."""
    try:
        _lead(os.getpid())
        connection.sendall(frames.packed(json.dumps(_ask(plan)).encode()))
    except Exception as error:
        _log(error)
    finally:
        os._exit(0)


def _lead(pid):
    try:
        os.setpgid(pid, pid)
    except OSError:
        # It has ended.
        pass


def _reap(group):
    """A scout whose client was killed is this process's."""
    while True:
        try:
            os.waitpid(-group, 0)
        except ChildProcessError:
            return


def _log(error):
    try:
        os.write(2, ("pages are not copied beforehand: %s: %s\n" % (type(error).__name__, error)).encode("utf-8", "replace"))
    except OSError:
        # A full disk.
        pass


def runs(pid):
    """
    What a process does not share with the one that forked it any more, and what it has read of programs and libraries, as [address, bytes, whether
    it was written to]. Fails with OSError where the kernel does not say.
    """
    found = []
    with open("/proc/%s/maps" % pid) as maps, open("/proc/%s/pagemap" % pid, "rb", 0) as pages:
        for line in maps:
            place, rights, _offset, _device, inode = line.split()[:5]
            is_written = rights[1] == "w"
            is_read_file = rights[:2] == "r-" and inode != "0"
            if rights[3] != "p" or not (is_written or is_read_file):
                continue
            mask, wanted = _WRITTEN if is_written else _READ
            start, end = (int(number, 16) for number in place.split("-"))
            pages.seek(start // _PAGE * _ENTRY.size)
            entries = pages.read((end - start) // _PAGE * _ENTRY.size)
            # Of one mapping, since the next one may go.
            run = None
            for offset in range(0, len(entries), _ENTRY.size):
                (entry,) = _ENTRY.unpack_from(entries, offset)
                if entry & mask != wanted:
                    run = None
                    continue
                if run is None:
                    run = [start + offset // _ENTRY.size * _PAGE, 0, is_written]
                    found.append(run)
                run[1] += _PAGE
    return found


def _ask(plan):
    """Has a scout live, as its client, and looks at it."""
    secret = os.urandom(16).hex()
    identity = user_process.plain_identity(plan.root_identity, plan.layers)
    orders = dict(rehearsal.ORDERS, secret=secret, identity=identity, limits=_LIMITS)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(_SECONDS)
        _connect(listener, client, plan.workers)
        ours, theirs = socket.socketpair()
        scout = os.fork()
        if scout == 0:
            _live(plan, listener.detach(), theirs.detach())
        try:
            # With its end all of it is over.
            theirs.close()
            listener.close()
            with ours:
                frames.write_message(ours, orders)
                ours.sendall(user_process.GO)
            _call(client, secret)
            return runs(scout)
        finally:
            os.kill(scout, signal.SIGKILL)
            os.waitpid(scout, 0)


def _connect(listener, client, directory):
    """Where nobody else may look, and for this moment only."""
    held = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    path = "/proc/self/fd/%d/scout-%d" % (held, os.getpid())
    try:
        listener.bind(path)
        try:
            listener.listen(1)
            client.connect(path)
        finally:
            os.unlink(path)
    finally:
        os.close(held)


def _live(plan, listener, orders):
    """The scout. Never returns."""
    # Out of the way first.
    moved = [os.dup(listener), os.dup(orders)]
    for descriptor, place in zip(moved, (user_process.LISTENER, user_process.ORDERS)):
        os.dup2(descriptor, place)
    process.close_all_but([0, 1, 2, user_process.LISTENER, user_process.ORDERS])
    sys.dont_write_bytecode = True
    rookery_runtime.after_fork()
    # Nobody's code runs here, and where the filter comes last only a worker may put it on itself.
    user_process.obey(plan.layers, plan.title)


def _call(client, secret):
    hello = {"version": protocol.VERSION, "secret": secret, "client": "rehearsal", "role": "data"}
    client.sendall(protocol.json_frame(protocol.HELLO, 0, hello) + protocol.json_frame(protocol.INIT, 0, rehearsal.INIT))
    for expected in (protocol.HELLO_OK, protocol.INIT_OK):
        _expect(client, expected)
    client.sendall(protocol.frame(protocol.CALL, 1, b"\0\2{}null"))
    _expect(client, protocol.RESULT)


def _expect(client, kind):
    size, found, _call_id = protocol.read_header(_receive(client, protocol.HEADER_BYTES))
    payload = _receive(client, size + 4 - protocol.HEADER_BYTES)
    if found != kind:
        raise ValueError("a frame of type %d and not %d: %s" % (found, kind, payload.decode("utf-8", "replace")))


def _receive(client, size):
    data = b""
    while len(data) < size:
        more = client.recv(size - len(data))
        if not more:
            raise EOFError("the scout has ended")
        data += more
    return data
