"""Which pages every instance writes to until it has answered its first call: a worker copies them while nobody waits for it (`copy_pages` in
`runtimes/native/fork/fork.c`), where the instance would else copy each in a fault of its own.

A process with the memory of all workers, a *scout*, lives the life of an instance and is looked at when it has answered. All workers are forks of
the same process, so what it wrote they write too.
"""

import json
import os
import signal
import socket
import struct

import rookery_runtime
from rookery_runtime import protocol

from . import frames, rehearsal, user_process

_PAGE = os.sysconf("SC_PAGESIZE")
_ENTRY = struct.Struct("@Q")
#: Of the kernel's Documentation/admin-guide/mm/pagemap.rst: bits of an entry, which are there without rights too.
_IS_OWN, _IS_OF_FILE, _IS_PRESENT = 1 << 56, 1 << 61, 1 << 63
#: A bound for a machine that stands still.
_SECONDS = 10


def find(layers, title, identity):
    """
    As (address, bytes), in the process that workers will be forked from. Empty where the kernel does not say, or when something goes wrong: then
    instances copy for themselves. Leaves no process and no descriptor.
    """
    ours, theirs = socket.socketpair()
    with ours:
        # A third process is the client: what it writes to is not the scout's alone, since this one has it still.
        client = os.fork()
        if client == 0:
            ours.close()
            _tell(theirs, lambda: _ask(layers, title, identity))
        theirs.close()
        ours.settimeout(_SECONDS)
        try:
            said = frames.read(ours)
        except (OSError, frames.FrameError) as error:
            said = None
            os.write(2, _why_not(error))
        _end(client, os.killpg)
    return [tuple(run) for run in json.loads(said.decode())] if said else []


def runs(pid):
    """What a process does not share with the one that forked it any more, as [address, bytes]. Fails with OSError where the kernel does not say."""
    found = []
    with open("/proc/%s/maps" % pid) as maps, open("/proc/%s/pagemap" % pid, "rb", 0) as pages:
        for line in maps:
            place, rights = line.split(None, 2)[:2]
            if rights[1] != "w" or rights[3] != "p":
                continue
            start, end = (int(number, 16) for number in place.split("-"))
            pages.seek(start // _PAGE * _ENTRY.size)
            entries = pages.read((end - start) // _PAGE * _ENTRY.size)
            for offset in range(0, len(entries), _ENTRY.size):
                (entry,) = _ENTRY.unpack_from(entries, offset)
                if entry & (_IS_PRESENT | _IS_OWN | _IS_OF_FILE) != _IS_PRESENT | _IS_OWN:
                    continue
                address = start + offset // _ENTRY.size * _PAGE
                if found and sum(found[-1]) == address:
                    found[-1][1] += _PAGE
                else:
                    found.append([address, _PAGE])
    return found


def _tell(connection, find_runs):
    """The life of the client. Never returns."""
    try:
        # With the scout it is ended as one.
        os.setsid()
        connection.sendall(frames.packed(json.dumps(find_runs()).encode()))
    except Exception as error:
        os.write(2, _why_not(error))
    finally:
        os._exit(0)


def _why_not(error):
    return ("pages are not copied beforehand: %s: %s\n" % (type(error).__name__, error)).encode("utf-8", "replace")


def _ask(layers, title, identity):
    """Has a scout live, as its client, and looks at it."""
    secret = os.urandom(16).hex()
    orders = dict(rehearsal.ORDERS, secret=secret, identity=user_process.plain_identity(identity, layers))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        # Without a file. Who connects there knows no secret.
        listener.bind("\0rookery-%s" % os.urandom(16).hex())
        listener.listen(1)
        client.settimeout(_SECONDS)
        client.connect(listener.getsockname())
        ours, theirs = socket.socketpair()
        scout = os.fork()
        if scout == 0:
            _live(layers, title, listener.detach(), theirs.detach(), (client.detach(), ours.detach()))
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
            _end(scout, os.kill)


def _live(layers, title, listener, orders, others):
    """The scout. Never returns."""
    for descriptor in others:
        os.close(descriptor)
    # Out of the way first.
    moved = [os.dup(listener), os.dup(orders)]
    for descriptor, place in zip(moved, (user_process.LISTENER, user_process.ORDERS)):
        os.dup2(descriptor, place)
    rookery_runtime.after_fork()
    # Nobody's code runs here, and where the filter comes last only a worker may put it on itself.
    user_process.obey(layers, title)


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


def _end(pid, kill):
    try:
        kill(pid, signal.SIGKILL)
    except OSError:
        # It has ended.
        pass
    os.waitpid(pid, 0)

