"""The few requests of rtnetlink that tie two networks together; Python has the socket for it and not the messages."""

import errno
import fcntl
import os
import socket
import struct

_REPLY_BYTES = 65536
_REPLY_SECONDS = 5

_RTM_NEWLINK, _RTM_SETLINK, _RTM_NEWADDR, _RTM_NEWROUTE = 16, 19, 20, 24
_SIOCGIFINDEX = 0x8933
_NLMSG_ERROR = 2
_NLM_F_REQUEST, _NLM_F_ACK, _NLM_F_EXCL, _NLM_F_CREATE = 0x1, 0x4, 0x200, 0x400
_IFLA_IFNAME, _IFLA_LINKINFO, _IFLA_NET_NS_PID, _IFLA_AF_SPEC = 3, 18, 19, 26
_IFLA_NUM_TX_QUEUES, _IFLA_NUM_RX_QUEUES = 31, 32
_IFLA_INFO_KIND, _IFLA_INFO_DATA, _VETH_INFO_PEER = 1, 2, 1
_IFLA_INET6_ADDR_GEN_MODE, _NO_ADDRESS = 8, 1
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_RTA_DST, _RTA_OIF, _RTA_GATEWAY = 1, 4, 5
_RT_TABLE_MAIN, _RTPROT_STATIC, _RT_SCOPE_UNIVERSE, _RTN_UNICAST, _RTN_PROHIBIT = 254, 4, 0, 1, 8
_IFF_UP = 0x1


class Netlink:
    """A socket of the network namespace that this process is in when it is made, whichever it enters later."""

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
        """Makes `name` here and its other end, `peer_name`, in the network of process `pid`. Fails with OSError (EEXIST)."""
        # The kernel would make one queue for each processor, and a directory for each queue.
        queues = _number(_IFLA_NUM_TX_QUEUES, 1) + _number(_IFLA_NUM_RX_QUEUES, 1)
        peer = _link(0, 0) + _text(_IFLA_IFNAME, peer_name) + _number(_IFLA_NET_NS_PID, pid) + queues
        info = _attribute(_IFLA_INFO_KIND, b"veth")
        info += _attribute(_IFLA_INFO_DATA, _attribute(_VETH_INFO_PEER, peer))
        content = _link(0, 0) + _text(_IFLA_IFNAME, name) + queues + _attribute(_IFLA_LINKINFO, info)
        self._ask(_RTM_NEWLINK, _NLM_F_CREATE | _NLM_F_EXCL, content)

    def find(self, name):
        """The index of an interface. Fails with OSError."""
        # Not over rtnetlink, whose one lock is the machine's.
        request = struct.pack("=16s24x", name.encode())
        (index,) = struct.unpack_from("=i", fcntl.ioctl(self._socket.fileno(), _SIOCGIFINDEX, request), 16)
        return index

    def forgo_ipv6(self, index):
        """It gets no link-local address when it comes up, and with it nobody a second way to the other end."""
        family = _attribute(socket.AF_INET6, _attribute(_IFLA_INET6_ADDR_GEN_MODE, struct.pack("=B", _NO_ADDRESS)))
        try:
            self._ask(_RTM_SETLINK, 0, _link(index, 0) + _attribute(_IFLA_AF_SPEC, family))
        except OSError as error:
            # A machine without IPv6 has no use for it.
            if error.errno != errno.EAFNOSUPPORT:
                raise

    def add_address(self, index, own, other):
        """Gives an interface the address `own`; at its other end is `other`, and the way there."""
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

    def add_prohibition(self, addresses):
        """Nothing is sent to `addresses` (`169.254.0.0/16`), unless a longer prefix says otherwise; a try fails at once."""
        first, _, bits = addresses.partition("/")
        header = struct.pack(
            "=BBBBBBBBI", socket.AF_INET, int(bits), 0, 0, _RT_TABLE_MAIN, _RTPROT_STATIC, _RT_SCOPE_UNIVERSE, _RTN_PROHIBIT, 0
        )
        self._ask(_RTM_NEWROUTE, _NLM_F_CREATE | _NLM_F_EXCL, header + _attribute(_RTA_DST, socket.inet_aton(first)))

    def _ask(self, kind, flags, content):
        """Sends one request and waits for its answer. Fails with OSError as the kernel says."""
        self._sequence += 1
        flags |= _NLM_F_REQUEST | _NLM_F_ACK
        self._socket.send(struct.pack("=IHHII", 16 + len(content), kind, flags, self._sequence, 0) + content)
        reply = self._socket.recv(_REPLY_BYTES)
        kind, number = struct.unpack_from("=4xH10xi", reply)
        if kind == _NLMSG_ERROR and number != 0:
            raise OSError(-number, os.strerror(-number))


def _link(index, flags):
    """`flags` are set; the others are not touched."""
    return struct.pack("=BBHiII", socket.AF_UNSPEC, 0, 0, index, flags, flags)


def _attribute(kind, content):
    length = 4 + len(content)
    return struct.pack("=HH", length, kind) + content + b"\0" * (-length % 4)


def _text(kind, text):
    return _attribute(kind, text.encode() + b"\0")


def _number(kind, number):
    return _attribute(kind, struct.pack("=I", number))
