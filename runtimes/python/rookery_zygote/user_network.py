"""A network of its own for a sandbox of an ordinary user, who may tie no interface to the host's: a program of that user takes the packets
from an interface inside and passes on what they say over sockets of its own (pasta of the package passt, or slirp4netns).

The program is no child of the sandbox and nobody inside sees it. The kernel kills it when the sandbox's init ends, whatever ended
that: it learns of the end over a pipe whose other end only that process has.
"""

import errno
import fcntl
import os
import select
import shutil
import signal
import socket
import struct
import time

from . import network_rules, process, syscalls
from .network_link import Netlink

_INSIDE = "eth0"
_LOOPBACK = 1
_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
_READY_SECONDS = 10
_LOOK_SECONDS = 0.002
#: Python does not name it; it is the same on all architectures that matter here.
_F_SETSIG = 10
_ROUTES = "/proc/self/net/route"
_NO_IPV6 = "/proc/sys/net/ipv6/conf/default/disable_ipv6"
_LONGEST_MESSAGE = 2048


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


class Passage:
    """One program, for one sandbox. Made before the sandbox has a namespace, since the program needs those of the host."""

    def __init__(self, user_network):
        """Fails with OSError."""
        self._network = user_network
        # Two pipes: the kernel may still be about to signal a write when its reader has the bytes already, and a signal of the tie kills.
        told, self._teller = os.pipe()
        receiver, self._tie = os.pipe()
        self._failure, failed = os.pipe()
        if os.fork() == 0:
            try:
                process.close_all_but([told, receiver, failed])
                _become_program(user_network, told, receiver, failed)
            finally:
                os._exit(1)
        for descriptor in (told, receiver, failed):
            os.close(descriptor)

    def enter(self):
        """Moves this process, which has the sandbox's namespaces by now, into the network. Fails with OSError."""
        syscalls.unshare(syscalls.CLONE_NEWNET)
        _forgo_ipv6()
        # As the host counts: its /proc is still the one in sight.
        os.write(self._teller, os.readlink("/proc/self").encode())
        self._close_teller()
        deadline = time.monotonic() + _READY_SECONDS
        said = b""
        while not _has_default_route():
            # It may say something and go on: where the host asks a name server on its loopback, pasta warns of that.
            if _says_or_has_ended(self._failure):
                news = os.read(self._failure, _LONGEST_MESSAGE)
                said = (said + news)[-_LONGEST_MESSAGE:]
                if not news:
                    name = os.path.basename(self._network.program)
                    words = said.decode("utf-8", "replace").strip().replace("\n", "; ")
                    raise OSError(errno.EIO, "%s has ended: %s" % (name, words or "without a word"))
            if time.monotonic() > deadline:
                raise OSError(errno.ETIMEDOUT, "%s was not ready in time" % os.path.basename(self._network.program))
            time.sleep(_LOOK_SECONDS)
        with Netlink() as inside:
            inside.set_up(_LOOPBACK)
            for forbidden in network_rules.FORBIDDEN:
                inside.add_prohibition(forbidden)
            # Sandboxes of another service; one of 256 addresses has no more than are its own here.
            if not self._network.range.text.endswith("/24"):
                inside.add_prohibition(self._network.range.text)

    @property
    def descriptors(self):
        """
        By their names for init. The program ends when nobody holds the tie any more; and its last words must not find the other end of
        their pipe closed, which would end it too.
        """
        return {"networkTie": self._tie, "networkWords": self._failure}

    def end(self):
        """Nobody needs the network any more."""
        self._close_teller()
        os.close(self._tie)
        os.close(self._failure)
        self._tie = self._failure = -1

    def _close_teller(self):
        if self._teller != -1:
            os.close(self._teller)
            self._teller = -1


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


def _has_default_route():
    with open(_ROUTES) as table:
        return any(line.split()[1] == "00000000" for line in table)


def _forgo_ipv6():
    """The interface gets no link-local address when it comes. A machine without IPv6 has no use for it."""
    try:
        with open(_NO_IPV6, "w") as setting:
            setting.write("1")
    except OSError:
        pass
