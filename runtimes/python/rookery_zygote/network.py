"""Networks of sandboxes: of their own, with the way out or with loopback only.

A network with the way out has one virtual interface whose other end is on the host, and the host passes on what comes from there
(`network_rules`). Those ends are named after their address, and the kernel refuses a name twice: so it is the kernel that gives the
addresses out, to any number of zygotes and servers at once, and nothing has to be remembered. Both ends go with the network, and
the network with the last process in it.
"""

import errno
import os
import socket
import struct

from . import network_rules, syscalls, user_network
from .layers import enter_user_namespace
from .network_link import Netlink

_INSIDE = "eth0"
#: Of loopback, in every network.
_LOOPBACK = 1
_TRIES = 64
_ONLY_ROOT = "only root can tie a network to that of the host"


class Range:
    """The addresses that sandboxes may have. The first is the host's, towards every one of them."""

    def __init__(self, text):
        base, _, bits = text.partition("/")
        size = 1 << (32 - int(bits))
        self.text = text
        self.first = _to_number(socket.inet_aton(base)) & -size
        self.last = self.first + size - 1
        self.gateway = _to_bytes(self.first + 1)

    def any(self):
        # Not from a generator: sandboxes are forks of one process and would all have the same one.
        return self.first + 2 + _to_number(os.urandom(4)) % (self.last - self.first - 2)


class Networks:
    """Those of one zygote. Plain data: its sandboxes have copies."""

    def __init__(self, config):
        """`config` has `range`, `always` (every sandbox has one) and `setForwarding`; None: there are none."""
        self.always = config is not None and config["always"]
        #: Why there are none; None when there are.
        self.missing = "they are not used here"
        self.range = None
        #: For a server that is not root: what passes on for each sandbox (UserNetwork); None where the host does.
        self.of_user = None
        self._config = config
        self._rules = None

    def find(self, layers, has_found=False):
        """
        Makes what the host needs for them, and tries one. `missing` then says what is not possible here. `has_found`: another process
        did so with success, and what it made is used.
        """
        if self._config is None:
            return
        self.range = Range(self._config["range"])
        self.missing = None if has_found and not layers.has("user") and self._join() else self._find(layers)
        if self.missing is not None:
            self.always = False
            self.release()

    def passage(self):
        """What a sandbox with a network needs that is made while it has no namespace; None when nothing is. Fails with OSError."""
        return None if self.of_user is None else user_network.Passage(self.of_user)

    def enter(self, passage):
        """Moves this process into a network that reaches out. Its address on the host, or None when it has none. Fails with OSError."""
        if passage is None:
            return enter(self.range)
        passage.enter()
        return None

    def release(self):
        """This zygote has no sandbox any more."""
        if self._rules is not None:
            self._rules.release()
            self._rules = None

    def _join(self):
        rules = network_rules.Rules(self.range)
        if not rules.join():
            return False
        self._rules = rules
        return True

    def _find(self, layers):
        if not layers.has("net"):
            return "network namespaces are not available"
        if layers.has("user"):
            return self._find_user_network()
        if os.geteuid() != 0:
            return _ONLY_ROOT
        try:
            network_rules.check_range(self.range)
            self._rules = network_rules.Rules(self.range)
            self._rules.hold()
            network_rules.forward(self._config["setForwarding"])
            _in_child(lambda: enter(self.range))
        except (OSError, network_rules.RulesFailure) as failure:
            return str(failure)
        return None


    def _find_user_network(self):
        # Its program begins with the sandbox: one that gets its network late would be too late for it.
        if not self.always:
            return _ONLY_ROOT
        reasons = []
        for program in user_network.programs():
            found = user_network.UserNetwork(self.range, program)
            try:
                _in_child(lambda found=found: _enter_as_user(found))
            except OSError as error:
                reasons.append(error.strerror or str(error))
                continue
            self.of_user = found
            return None
        return "%s, and %s" % (_ONLY_ROOT, "; ".join(reasons) or "neither pasta (of the package passt) nor slirp4netns is installed")


def _enter_as_user(found):
    passage = user_network.Passage(found)
    enter_user_namespace(os.geteuid(), os.getegid(), 0, 0)
    passage.enter()


def isolate():
    """Moves this process into a new network namespace whose loopback is up. Fails with OSError."""
    syscalls.unshare(syscalls.CLONE_NEWNET)
    with Netlink() as inside:
        inside.set_up(_LOOPBACK)


def enter(addresses):
    """
    Moves this process into a new network that reaches out, with an address of the Range `addresses`: returns it. The network that it
    is in must be the host's. Fails with OSError.
    """
    with Netlink() as outside:
        syscalls.unshare(syscalls.CLONE_NEWNET)
        name, address = _tie(outside, addresses)
        with Netlink() as inside:
            index = inside.find(_INSIDE)
            inside.forgo_ipv6(index)
            inside.add_address(index, address, addresses.gateway)
            inside.set_up(_LOOPBACK)
            inside.set_up(index)
            host_end = outside.find(name)
            outside.forgo_ipv6(host_end)
            outside.add_address(host_end, addresses.gateway, address)
            outside.set_up(host_end)
            inside.add_default_route(index, addresses.gateway)
    return socket.inet_ntoa(address)


def _tie(outside, addresses):
    for _ in range(_TRIES):
        number = addresses.any()
        name = "%s%08x" % (network_rules.INTERFACE_BEGINNING, number)
        try:
            # By the number that this process has for itself, whichever pid namespace it is in.
            outside.add_pair(name, _INSIDE, os.getpid())
            return name, _to_bytes(number)
        except OSError as error:
            if error.errno != errno.EEXIST:
                raise
    raise OSError(errno.EADDRNOTAVAIL, "none of %d addresses of %s was free" % (_TRIES, addresses.text))


def _in_child(call):
    """In a child, which takes the network with it. Fails with OSError."""
    receiver, sender = os.pipe()
    child = os.fork()
    if child == 0:
        said = b"."
        try:
            call()
        except OSError as error:
            said = (error.strerror or str(error)).encode() or b"?"
        finally:
            os.write(sender, said)
            os._exit(0)
    os.close(sender)
    said = os.read(receiver, 4096)
    os.close(receiver)
    os.waitpid(child, 0)
    if said != b".":
        raise OSError(errno.EIO, "a network cannot be made: %s" % said.decode("utf-8", "replace"))


def _to_number(address):
    return struct.unpack(">I", address)[0]


def _to_bytes(number):
    return struct.pack(">I", number)
