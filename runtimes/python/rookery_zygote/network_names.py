"""The name servers of sandboxes. A resolver on the host's loopback is not reachable from their networks."""

import socket

RESOLVERS = "/etc/resolv.conf"
#: File in which systemd-resolved lists the servers to which it sends queries.
_UPSTREAM = "/run/systemd/resolve/resolv.conf"


def resolvers_file(usual=RESOLVERS, upstream=_UPSTREAM):
    """Returns `usual`, or the file that lists the same servers for networks without the host's loopback."""
    return upstream if not _is_usable(usual) and _is_usable(upstream) else usual


def text_for(server, usual=RESOLVERS):
    """Returns the text of a resolv.conf with `server` in place of the host's servers."""
    try:
        with open(usual) as source:
            lines = [line for line in source if line.split()[:1] in (["search"], ["domain"], ["options"])]
    except (OSError, UnicodeDecodeError):
        lines = []
    return "".join(["nameserver %s\n" % server] + lines)


def warnings(networks, usual=RESOLVERS, upstream=_UPSTREAM):
    """Returns sentences about features that do not work in own networks."""
    if networks.missing is not None or networks.of_user is not None or _is_usable(resolvers_file(usual, upstream)):
        return []
    return [
        "sandboxes with a network of their own resolve no names: %s names no server outside the host's loopback" % usual
    ]


def servers(usual=RESOLVERS, upstream=_UPSTREAM):
    """
    Returns the IPv4 addresses of the name servers for own networks.

    A cloud may have its own server among the addresses that are forbidden otherwise.
    """
    return [server for server in _named_in(resolvers_file(usual, upstream)) if _is_ipv4(server)]


def _is_usable(path):
    return any(not server.startswith("127.") and server != "::1" for server in _named_in(path))


def _named_in(path):
    try:
        with open(path) as source:
            lines = [line.split() for line in source]
    except (OSError, UnicodeDecodeError):
        return []
    return [fields[1] for fields in lines if len(fields) > 1 and fields[0] == "nameserver"]


def _is_ipv4(server):
    try:
        socket.inet_pton(socket.AF_INET, server)
        return True
    except OSError:
        return False
