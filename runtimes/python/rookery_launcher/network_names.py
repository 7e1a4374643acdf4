"""Which name servers sandboxes ask: a resolver on the host's loopback is not on theirs."""

RESOLVERS = "/etc/resolv.conf"
#: Where systemd-resolved keeps the servers that it asks itself.
_UPSTREAM = "/run/systemd/resolve/resolv.conf"


def resolvers_file(usual=RESOLVERS, upstream=_UPSTREAM):
    """`usual`, or the file that names the same servers for those who do not share the host's loopback."""
    return upstream if not _is_usable(usual) and _is_usable(upstream) else usual


def warnings(networks, usual=RESOLVERS, upstream=_UPSTREAM):
    """What does not work in Networks of their own, as sentences."""
    if networks.missing is not None or _is_usable(resolvers_file(usual, upstream)):
        return []
    return [
        "sandboxes with a network of their own resolve no names: %s names no server outside the host's loopback" % usual
    ]


def _is_usable(path):
    try:
        with open(path) as source:
            lines = [line.split() for line in source]
    except (OSError, UnicodeDecodeError):
        return False
    servers = [fields[1] for fields in lines if len(fields) > 1 and fields[0] == "nameserver"]
    return any(not server.startswith("127.") and server != "::1" for server in servers)
