"""Finds the pages that every instance uses until it has answered its first call.

A worker copies the pages that will be written to, and maps those of files, before its orders arrive
(`populate` in `runtimes/native/fork/fork.c`). Otherwise the instance would take a page fault for each.

To find them, a process with the memory of all workers, a *scout*, runs the session of an instance. Its pages
are inspected after its answer. All workers are forks of the same process, so they write to the same pages as
the scout. A fork inherits no page of a file that it only reads, so the scout has read all such pages that it
has.
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
#: Bits of an entry, from the kernel's Documentation/admin-guide/mm/pagemap.rst. They are visible without
#: rights too.
_IS_OWN, _IS_OF_FILE, _IS_PRESENT = 1 << 56, 1 << 61, 1 << 63
#: (mask, value) of these bits for a page that a process writes to, and for a page of a file that it reads.
_WRITTEN = (_IS_PRESENT | _IS_OWN | _IS_OF_FILE, _IS_PRESENT | _IS_OWN)
_READ = (_IS_PRESENT | _IS_OF_FILE, _IS_PRESENT | _IS_OF_FILE)
#: Time limit in case the machine stalls. No start is served before the search ends.
_SECONDS = 3
#: Limits of the scout. In the machine's own namespaces the user may already have many processes.
_LIMITS = dict(rehearsal.ORDERS["limits"], maxProcesses=1 << 20)


def find(plan):
    """
    Returns runs of pages as (address, bytes, is written to). Called in the process from which workers are
    forked.

    Returns an empty list if the kernel gives no information or the search fails: instances then take the page
    faults. Leaves no process and no descriptor.
    """
    # The scout is in no sandbox. Without one of these layers, code of the same user could access it.
    if not any(map(plan.layers.has, ("pid", "user", "user_limits"))):
        return []
    try:
        return [tuple(run) for run in _hear(plan)]
    except Exception as error:
        _log(error)
        return []


def _hear(plan):
    """
    Runs the client in a third process and returns its result.

    The client must be a separate process: this process shares its pages with the scout, so pages that it
    writes to would be misjudged.
    """
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            client = os.fork()
            if client == 0:
                ours.close()
                _tell(theirs, plan)
            # Done here too, because either process may run first. The group lets the scout be killed with the
            # client.
            _lead(client)
        ours.settimeout(_SECONDS)
        try:
            said = frames.read(ours)
        finally:
            os.killpg(client, signal.SIGKILL)
            _reap(client)
    return json.loads(said.decode()) if said else []


def _tell(connection, plan):
    """Runs the client and sends its result. Never returns."""
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
        # The process has ended.
        pass


def _reap(group):
    """
    Waits for all processes of the group.

    A scout whose client was killed becomes a child of this process.
    """
    while True:
        try:
            os.waitpid(-group, 0)
        except ChildProcessError:
            return


def _log(error):
    try:
        os.write(2, ("pages are not copied beforehand: %s: %s\n" % (type(error).__name__, error)).encode("utf-8", "replace"))
    except OSError:
        # The disk is full.
        pass


def runs(pid):
    """
    Returns runs of pages as [address, bytes, is written to].

    These are the pages that a process no longer shares with its parent, and those that it has read of
    programs and libraries. Raises OSError if the kernel gives no information.
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
            # A run stays within one mapping, since the next one may be unmapped.
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
    """Starts a scout, is its client for one call, and inspects its pages."""
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
            # The end of the scout then closes both connections.
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
    """Connects the two sockets at a path in a private directory, which exists for this moment only."""
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
    """Runs the scout. Never returns."""
    # Moves the descriptors away first, in case they occupy the target numbers.
    moved = [os.dup(listener), os.dup(orders)]
    for descriptor, place in zip(moved, (user_process.LISTENER, user_process.ORDERS)):
        os.dup2(descriptor, place)
    process.close_all_but([0, 1, 2, user_process.LISTENER, user_process.ORDERS])
    sys.dont_write_bytecode = True
    rookery_runtime.after_fork()
    # No user code runs here. If the filter is installed last, only a worker may install it.
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
