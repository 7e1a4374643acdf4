"""A network of its own for a sandbox of an ordinary user, who may tie no interface to the host's: a program of that user takes the packets
from an interface inside and passes on what they say over sockets of its own (pasta of the package passt, or slirp4netns).

The program is no child of the sandbox and nobody inside sees it. The kernel kills it when the sandbox's init ends, whatever ended
that: it learns of the end over a pipe whose other end only that process has.
"""

import fcntl
import os
import select
import shutil
import signal
import socket
import struct

from . import process

_INSIDE = "eth0"
_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
#: Python does not name it; it is the same on all architectures that matter here.
_F_SETSIG = 10


class UserNetwork:
    """What is the same for all sandboxes of a zygote. Plain data."""

    def __init__(self, addresses, program):
        """`addresses`: the first 256 of this Range are those inside, the same for every sandbox. `program`: its path."""
        self.range = addresses
        self.program = program

    @property
    def name_server(self):
        """What the program takes for a question to the name servers of the host."""
        return self._address(3)

    def _address(self, number):
        return socket.inet_ntoa(struct.pack(">I", self.range.first + number))

    def command(self, pid):
        """Of the program, for the network that process `pid` is in."""
        if os.path.basename(self.program) == "pasta":
            # No port of either side is forwarded, and no address inside is the host's loopback.
            options = ["--no-map-gw", "-t", "none", "-u", "none", "-T", "none", "-U", "none", "-4", "--no-dhcp", "-q", "-f"]
            options += ["--config-net", "-I", _INSIDE, "-a", self._address(100), "-n", "24", "-g", self._address(2)]
            options += ["-m", "65520", "--dns-forward", self.name_server, str(pid)]
            return [self.program] + options
        options = ["--disable-host-loopback", "--enable-seccomp", "--configure", "--mtu=65520", "--netns-type=path"]
        options += ["--cidr=%s/24" % self._address(0), "--userns-path=/proc/%d/ns/user" % pid]
        return [self.program] + options + ["/proc/%d/ns/net" % pid, _INSIDE]


def start(user_network):
    """
    Starts one program, for one sandbox: before that has a namespace, since the program needs those of the host. Returns three descriptors for its
    first process: where the program waits for its pid; the tie, without which the program ends; and its last words, which must not find the other
    end of their pipe closed. Fails with OSError.
    """
    # Two pipes: the kernel may still be about to signal a write when its reader has the bytes already, and a signal of the tie kills.
    told, teller = os.pipe()
    receiver, tie = os.pipe()
    failure, failed = os.pipe()
    if os.fork() == 0:
        try:
            process.close_all_but([told, receiver, failed])
            _become_program(user_network, told, receiver, failed)
        finally:
            os._exit(1)
    for descriptor in (told, receiver, failed):
        os.close(descriptor)
    return [teller, tie, failure]


def programs():
    """Paths of those that are installed, the better one first."""
    found = [shutil.which(name, path=_PATH) for name in ("pasta", "slirp4netns")]
    return [path for path in found if path is not None]


def _become_program(user_network, told, tie, failed):
    pid = os.read(told, 32)
    if not pid:
        return
    nothing = os.open(os.devnull, os.O_RDWR)
    # The program keeps its standard input, whatever else it closes.
    os.dup2(tie, 0)
    os.dup2(nothing, 1)
    # Once the network is there nobody reads what it says; then it must not wait for that.
    os.set_blocking(failed, False)
    os.dup2(failed, 2)
    process.close_all_but([0, 1, 2])
    # Python ignores it, and pasta takes that for a failure of its own.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    fcntl.fcntl(0, _F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(0, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(0, fcntl.F_SETFL, fcntl.fcntl(0, fcntl.F_GETFL) | os.O_ASYNC)
    # One that has ended just before tells nothing any more.
    if _says_or_has_ended(0):
        return
    command = user_network.command(int(pid))
    os.execve(command[0], command, {"PATH": _PATH, "LANG": "C.UTF-8"})


def _says_or_has_ended(descriptor):
    """Of the other end of a pipe."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))
