"""
The requests of rtnetlink that connect two networks, for the networks that tests build.

The product's requests are in `runtimes/native/src/netlink.c`. A sandbox stays in its network, but these test
processes also enter others.
"""

import fcntl
import os
import socket
import struct

from rookery_zygote import network_rules, syscalls

_REPLY_BYTES = 65536
_REPLY_SECONDS = 5

_RTM_NEWLINK, _RTM_NEWADDR, _RTM_NEWROUTE = 16, 20, 24
_SIOCGIFINDEX = 0x8933
_NLMSG_ERROR = 2
_NLM_F_REQUEST, _NLM_F_ACK, _NLM_F_EXCL, _NLM_F_CREATE = 0x1, 0x4, 0x200, 0x400
_IFLA_IFNAME, _IFLA_LINKINFO, _IFLA_NET_NS_PID = 3, 18, 19
_IFLA_NUM_TX_QUEUES, _IFLA_NUM_RX_QUEUES = 31, 32
_IFLA_INFO_KIND, _IFLA_INFO_DATA, _VETH_INFO_PEER = 1, 2, 1
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_RTA_OIF, _RTA_GATEWAY = 4, 5
_RT_TABLE_MAIN, _RTPROT_STATIC, _RT_SCOPE_UNIVERSE, _RTN_UNICAST = 254, 4, 0, 1
_IFF_UP = 0x1


class Netlink:
    """
    A socket in the network namespace in which it is created, even if the process enters another one later.
    """

    def __init__(self):
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
        self._socket.settimeout(_REPLY_SECONDS)
        self._sequence = 0

    def close(self):
        self._socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_ignored):
        self.close()

    def set_up(self, index):
        self._ask(_RTM_NEWLINK, 0, _link(index, _IFF_UP))

    def add_pair(self, name, peer_name, pid):
        """
        Creates `name` here and its other end, `peer_name`, in the network of process `pid`.

        Raises OSError (EEXIST).
        """
        # By default the kernel would create a queue for each processor, and a directory for each queue.
        queues = _number(_IFLA_NUM_TX_QUEUES, 1) + _number(_IFLA_NUM_RX_QUEUES, 1)
        peer = _link(0, 0) + _text(_IFLA_IFNAME, peer_name) + _number(_IFLA_NET_NS_PID, pid) + queues
        info = _attribute(_IFLA_INFO_KIND, b"veth")
        info += _attribute(_IFLA_INFO_DATA, _attribute(_VETH_INFO_PEER, peer))
        content = _link(0, 0) + _text(_IFLA_IFNAME, name) + queues + _attribute(_IFLA_LINKINFO, info)
        self._ask(_RTM_NEWLINK, _NLM_F_CREATE | _NLM_F_EXCL, content)

    def find(self, name):
        """Returns the index of an interface. Raises OSError."""
        # Avoids rtnetlink, which has a single lock for the whole machine.
        request = struct.pack("=16s24x", name.encode())
        (index,) = struct.unpack_from("=i", fcntl.ioctl(self._socket.fileno(), _SIOCGIFINDEX, request), 16)
        return index

    def add_address(self, index, own, other):
        """Gives an interface the address `own`, and a route to `other` at its other end."""
        header = struct.pack("=BBBBI", socket.AF_INET, 32, 0, 0, index)
        self._ask(
            _RTM_NEWADDR,
            _NLM_F_CREATE | _NLM_F_EXCL,
            header + _attribute(_IFA_LOCAL, own) + _attribute(_IFA_ADDRESS, other),
        )

    def add_default_route(self, index, gateway):
        header = struct.pack(
            "=BBBBBBBBI", socket.AF_INET, 0, 0, 0, _RT_TABLE_MAIN, _RTPROT_STATIC, _RT_SCOPE_UNIVERSE, _RTN_UNICAST, 0
        )
        content = header + _attribute(_RTA_GATEWAY, gateway) + _number(_RTA_OIF, index)
        self._ask(_RTM_NEWROUTE, _NLM_F_CREATE | _NLM_F_EXCL, content)

    def _ask(self, kind, flags, content):
        """Sends a request and waits for its answer. Raises OSError with the kernel's error."""
        self._sequence += 1
        flags |= _NLM_F_REQUEST | _NLM_F_ACK
        self._socket.send(struct.pack("=IHHII", 16 + len(content), kind, flags, self._sequence, 0) + content)
        reply = self._socket.recv(_REPLY_BYTES)
        kind, number = struct.unpack_from("=4xH10xi", reply)
        if kind == _NLMSG_ERROR and number != 0:
            raise OSError(-number, os.strerror(-number))


def enter(addresses):
    """
    Moves this process into a new network with access to the outside, as `tie_network` of `network.c` does for
    a sandbox.

    Returns its address, the second one that the Range has for sandboxes. The process must be in the host's
    network before.
    """
    gateway, number = addresses.first + 1, addresses.first + 3
    own, host = (struct.pack(">I", one) for one in (number, gateway))
    name = "%s%08x" % (network_rules.INTERFACE_BEGINNING, number)
    with Netlink() as outside:
        syscalls.unshare(syscalls.CLONE_NEWNET)
        outside.add_pair(name, "eth0", os.getpid())
        with Netlink() as inside:
            index, host_end = inside.find("eth0"), outside.find(name)
            inside.add_address(index, own, host)
            inside.set_up(1)
            inside.set_up(index)
            outside.add_address(host_end, host, own)
            outside.set_up(host_end)
            inside.add_default_route(index, host)
    return socket.inet_ntoa(own)


def _link(index, flags):
    """Returns the header of a link message that sets `flags` and leaves other flags unchanged."""
    return struct.pack("=BBHiII", socket.AF_UNSPEC, 0, 0, index, flags, flags)


def _attribute(kind, content):
    length = 4 + len(content)
    return struct.pack("=HH", length, kind) + content + b"\0" * (-length % 4)


def _text(kind, text):
    return _attribute(kind, text.encode() + b"\0")


def _number(kind, number):
    return _attribute(kind, struct.pack("=I", number))
