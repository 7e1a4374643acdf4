"""Networks of sandboxes: of their own, with the way out or with loopback only.

A network with the way out has one virtual interface whose other end is on the host (`network.c` makes them), and the host passes on what
comes from there (`network_rules`).
"""

import os
import socket
import struct

from . import network_rules, user_network

#: Of a start that asks for one where there is none.
IMPOSSIBLE = "a network of its own is not possible on this machine: network namespaces are not available"
_ONLY_ROOT = "only root can tie a network to that of the host"


class Range:
    """The addresses that sandboxes may have. The first is the host's, towards every one of them."""

    def __init__(self, text):
        base, _, bits = text.partition("/")
        size = 1 << (32 - int(bits))
        self.text = text
        self.bits = int(bits)
        self.first = _to_number(socket.inet_aton(base)) & -size
        self.last = self.first + size - 1


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

    def find(self, layers, try_one, has_found=False):
        """
        Makes what the host needs for them, and tries one: `try_one()` makes it, and gives the reason when that fails. `missing` then says
        what is not possible here. `has_found`: another process did so with success, and what it made is used.
        """
        if self._config is None:
            return
        self.range = Range(self._config["range"])
        self.missing = None if has_found and not layers.has("user") and self._join() else self._find(layers, try_one)
        if self.missing is not None:
            self.always = False
            self.release()

    def passage(self):
        """
        The descriptors of what a sandbox with a network needs that is made while it has no namespace (`user_network.start`); None when
        nothing is. Fails with OSError.
        """
        return None if self.of_user is None else user_network.start(self.of_user)

    def facts(self):
        """For the native program, which makes them (`network.c`)."""
        if self.range is None:
            return None
        forbidden = [Range(text) for text in network_rules.FORBIDDEN]
        # Sandboxes of another service; one of 256 addresses has no more than are its own here.
        if not self.range.text.endswith("/24"):
            forbidden.append(self.range)
        return {
            "first": self.range.first,
            "last": self.range.last,
            "gateway": self.range.first + 1,
            "program": None if self.of_user is None else os.path.basename(self.of_user.program),
            # To a network without the host's rules.
            "forbidden": [{"first": one.first, "bits": one.bits} for one in forbidden],
        }

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

    def _find(self, layers, try_one):
        if not layers.has("net"):
            return "network namespaces are not available"
        if layers.has("user"):
            return self._find_user_network(try_one)
        if os.geteuid() != 0:
            return _ONLY_ROOT
        try:
            network_rules.check_range(self.range)
            self._rules = network_rules.Rules(self.range)
            self._rules.hold()
            network_rules.forward(self._config["setForwarding"])
        except (OSError, network_rules.RulesFailure) as failure:
            return str(failure)
        reason = try_one()
        return None if reason is None else "a network cannot be made: %s" % reason

    def _find_user_network(self, try_one):
        # Its program begins with the sandbox: one that gets its network late would be too late for it.
        if not self.always:
            return _ONLY_ROOT
        reasons = []
        for program in user_network.programs():
            self.of_user = user_network.UserNetwork(self.range, program)
            reason = try_one()
            if reason is None:
                return None
            reasons.append("a network cannot be made: %s" % reason)
        self.of_user = None
        return "%s, and %s" % (_ONLY_ROOT, "; ".join(reasons) or "neither pasta (of the package passt) nor slirp4netns is installed")


def _to_number(address):
    return struct.unpack(">I", address)[0]
