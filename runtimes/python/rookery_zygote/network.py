"""Networks of sandboxes: own networks, with access to the outside or with loopback only.

A network with access to the outside has a virtual interface, whose other end is on the host (`network.c`
makes them). The host forwards the packets from there (`network_rules`).
"""

import os
import socket
import struct

from . import network_rules, user_network

#: Message for a start that requests an own network on a machine without network namespaces.
IMPOSSIBLE = "a network of its own is not possible on this machine: network namespaces are not available"
_ONLY_ROOT = "only root can tie a network to that of the host"


class Range:
    """The addresses that sandboxes may have. The first usable one is the host's address for all of them."""

    def __init__(self, text):
        base, _, bits = text.partition("/")
        size = 1 << (32 - int(bits))
        self.text = text
        self.bits = int(bits)
        self.first = _to_number(socket.inet_aton(base)) & -size
        self.last = self.first + size - 1


class Networks:
    """The networks of a zygote's sandboxes. Plain data, which the sandboxes copy."""

    def __init__(self, config):
        """
        `config` has `range`, `always` (every sandbox has an own network) and `setForwarding`.

        None: no own networks.
        """
        self.always = config is not None and config["always"]
        #: Reason why there are no networks; None when there are.
        self.missing = "they are not used here"
        self.range = None
        #: The UserNetwork that forwards for each sandbox of a server that is not root; None if the host
        #: forwards.
        self.of_user = None
        self._config = config
        self._rules = None

    def find(self, layers, try_one, has_found=False):
        """
        Sets up the host for networks and tries one. Sets `missing` to the reason if they are not possible.

        `try_one()` makes a network and returns the reason of a failure, or None. With `has_found` another
        process has already succeeded, and this one uses that set-up.
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
        Returns the descriptors that a sandbox with a network needs from before its namespaces exist
        (`user_network.start`).

        Returns None when nothing is needed. Raises OSError.
        """
        return None if self.of_user is None else user_network.start(self.of_user)

    def facts(self):
        """
        Returns the facts for the native program, which makes the networks (`network.c`).

        None without networks.
        """
        if self.range is None:
            return None
        forbidden = [Range(text) for text in network_rules.FORBIDDEN]
        # Forbids sandboxes of other services. A range of 256 addresses holds only this service's own.
        if not self.range.text.endswith("/24"):
            forbidden.append(self.range)
        return {
            "first": self.range.first,
            "last": self.range.last,
            "gateway": self.range.first + 1,
            "program": None if self.of_user is None else os.path.basename(self.of_user.program),
            # Forbidden addresses for a network without the host's rules.
            "forbidden": [{"first": one.first, "bits": one.bits} for one in forbidden],
        }

    def release(self):
        """Releases the rules. Called when this zygote has no sandbox any more."""
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
        # The program starts together with the sandbox, so it cannot serve a sandbox that gets its network
        # later.
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
