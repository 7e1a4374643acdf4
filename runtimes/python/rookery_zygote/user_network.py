"""Own networks for sandboxes of an ordinary user, who may not connect an interface to the host's network.

A program of that user (pasta of the package passt, or slirp4netns) takes packets from an interface inside the
sandbox. It passes their content on over its own sockets.

The program is no child of the sandbox, and no process inside sees it. The kernel kills it when the sandbox's
init ends for any reason, through a pipe whose other end only init has.
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
#: A command of fcntl that Python lacks. The number is the same on all supported architectures.
_F_SETSIG = 10


class UserNetwork:
    """The facts that are the same for all sandboxes of a zygote. Plain data."""

    def __init__(self, addresses, program):
        """Every sandbox uses the first 256 addresses of the Range `addresses` inside. `program` is a path."""
        self.range = addresses
        self.program = program

    @property
    def name_server(self):
        """The address at which the program accepts questions to the host's name servers."""
        return self._address(3)

    def _address(self, number):
        return socket.inet_ntoa(struct.pack(">I", self.range.first + number))

    def command(self, pid):
        """Returns the program's command line, for the network namespace of process `pid`."""
        if os.path.basename(self.program) == "pasta":
            # Forwards no port in either direction, and maps no inside address to the host's loopback.
            options = ["--no-map-gw", "-t", "none", "-u", "none", "-T", "none", "-U", "none", "-4", "--no-dhcp", "-q", "-f"]
            options += ["--config-net", "-I", _INSIDE, "-a", self._address(100), "-n", "24", "-g", self._address(2)]
            options += ["-m", "65520", "--dns-forward", self.name_server, str(pid)]
            return [self.program] + options
        options = ["--disable-host-loopback", "--enable-seccomp", "--configure", "--mtu=65520", "--netns-type=path"]
        options += ["--cidr=%s/24" % self._address(0), "--userns-path=/proc/%d/ns/user" % pid]
        return [self.program] + options + ["/proc/%d/ns/net" % pid, _INSIDE]


def start(user_network):
    """
    Starts a program for one sandbox, which has no namespace yet, because the program needs those of the host.

    Returns three descriptors for the sandbox's first process: one to write its pid to; the tie, whose closing
    ends the program; and the pipe of the program's errors, which must stay open. Raises OSError.
    """
    # Two pipes are needed. The kernel may signal a write after its bytes were read, and a signal of the tie
    # kills.
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
    """Returns the paths of the installed programs, the better one first."""
    found = [shutil.which(name, path=_PATH) for name in ("pasta", "slirp4netns")]
    return [path for path in found if path is not None]


def _become_program(user_network, told, tie, failed):
    pid = os.read(told, 32)
    if not pid:
        return
    nothing = os.open(os.devnull, os.O_RDWR)
    # The program keeps its standard input open, whatever else it closes.
    os.dup2(tie, 0)
    os.dup2(nothing, 1)
    # Once the network exists, no process reads the program's errors, so its writes must not block.
    os.set_blocking(failed, False)
    os.dup2(failed, 2)
    process.close_all_but([0, 1, 2])
    # Python ignores SIGPIPE, and pasta treats that as its own failure.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    fcntl.fcntl(0, _F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(0, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(0, fcntl.F_SETFL, fcntl.fcntl(0, fcntl.F_GETFL) | os.O_ASYNC)
    # The kernel sends no signal if the other end was closed just before.
    if _says_or_has_ended(0):
        return
    command = user_network.command(int(pid))
    os.execve(command[0], command, {"PATH": _PATH, "LANG": "C.UTF-8"})


def _says_or_has_ended(descriptor):
    """Returns True if the other end of a pipe has written or closed."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))
