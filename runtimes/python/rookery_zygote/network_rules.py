"""Sets up the host for the networks of sandboxes: forwarding and a few firewall rules. Sandboxes reach out,
and no connection reaches in.

The name of every host interface that leads to a sandbox begins with `rk`, for all drivers. So the same few
rules separate all sandboxes, and protect a cloud's metadata.

Each zygote's range and each installation's docker networks have a set of rules. The first process that needs
a set makes it, and the last one removes it. These processes count themselves with a shared lock, which the
kernel releases if one of them is killed.
"""

import fcntl
import os
import shutil
import socket
import struct
import subprocess

from . import network_names, waiting

#: Beginning of the names of host interfaces to sandboxes. A process sandbox's address follows in hexadecimal.
INTERFACE_BEGINNING = "rk"
#: Beginning of the names of bridges to containers. Four letters of the installation and some of the tenant
#: follow (`docker/networks.ts`).
BRIDGE_BEGINNING = "rkb"
#: Addresses at which clouds give a machine its secrets, and their links: AWS and most others; Alibaba; Azure;
#: Oracle.
FORBIDDEN = ("169.254.0.0/16", "100.100.100.200/32", "168.63.129.16/32", "192.0.0.192/32")
_LOCKS = "/run/rookery"
_FORWARDING = "/proc/sys/net/ipv4/ip_forward"
_ROUTES = "/proc/net/route"
_INTERFACES = "/sys/class/net"
_COMMAND_SECONDS = 10
#: Time limit for the removal of a network. The kernel removes it a moment after its last process has ended.
_GONE_SECONDS = 2
_LOOK_SECONDS = 0.02
#: Directories of the commands, since a service manager may leave some out of PATH.
_PATH = "/usr/sbin:/sbin:/usr/bin:/bin:/usr/local/sbin:/usr/local/bin"

#: Rules for all sandboxes, in order: none reaches another; name servers answer at any address; no other
#: forbidden address answers.
_NFT = """
table ip {table} {{
  chain walls {{
    iifname "rk*" oifname "rk*" drop
    {nft_names}
    iifname "rk*" ip daddr {{ {forbidden} }} drop
  }}
  chain forward {{
    type filter hook forward priority -10; policy accept;
    jump walls
    {nft_forward}
  }}
  chain input {{
    type filter hook input priority -10; policy accept;
    jump walls
  }}
  chain output {{
    type filter hook output priority -10; policy accept;
    {nft_output}
  }}
  {nft_translation}
}}
"""
_NFT_NAMES = 'iifname "rk*" ip daddr %s meta l4proto { tcp, udp } th dport 53 return'
#: Rules for a range: only answers come in. On the host only root may open connections to sandboxes.
_NFT_FORWARD = """oifname "rk*" ip daddr {range} ct state established,related accept
    oifname "rk*" ip daddr {range} drop"""
_NFT_OUTPUT = 'oifname "rk*" ip daddr {range} ct state new meta skuid != 0 drop'
_NFT_TRANSLATION = """chain postrouting {{
    type nat hook postrouting priority 100; policy accept;
    oifname != "rk*" ip saddr {range} masquerade
  }}"""
#: Rule for an installation's bridges; docker does the rest. Traffic that docker forwards to a published port
#: may come from any user of the host.
_NFT_BRIDGE_OUTPUT = 'oifname "{bridges}*" ct state new ct status != dnat meta skuid != 0 drop'

#: The same rules for hosts without `nft`: table, hooks, chain, and the rules in that chain. The walls are not
#: in the table `filter`, where another firewall, such as docker's, may accept a packet first.
_IPTABLES_WALLS = ("-i rk+ -o rk+ -j DROP", "{names}", "{forbidden}")
_IPTABLES_RANGE = (
    ("mangle", ("FORWARD", "INPUT"), "{table}", _IPTABLES_WALLS + (
        "-o rk+ -d {range} -m conntrack --ctstate RELATED,ESTABLISHED -j RETURN",
        "-o rk+ -d {range} -j DROP",
    )),
    ("mangle", ("OUTPUT",), "{table}_out", (
        "-o rk+ -d {range} -m conntrack --ctstate NEW -m owner ! --uid-owner 0 -j DROP",
    )),
    ("nat", ("POSTROUTING",), "{table}", ("-s {range} ! -o rk+ -j MASQUERADE",)),
)
_IPTABLES_BRIDGES = (
    ("mangle", ("FORWARD", "INPUT"), "{table}", _IPTABLES_WALLS),
    ("mangle", ("OUTPUT",), "{table}_out", (
        "-o {bridges}+ -m conntrack --ctstate NEW -m owner ! --uid-owner 0 -j DROP",
    )),
)
#: Exceptions for a firewall that forwards only known traffic.
_EXCEPTIONS = (
    ("filter", ("FORWARD",), "{table}", (
        "-i rk+ -s {range} -j ACCEPT",
        "-o rk+ -d {range} -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
    )),
)


class RulesFailure(Exception):
    """The host cannot have the rules. The text is a sentence with the reason."""


class Rules:
    """
    The rules for a Range or for an installation's bridges.

    This process holds them until it releases them or ends.
    """

    def __init__(self, addresses, bridges=None):
        """`bridges` is the beginning of the bridges' names, when `addresses` is None."""
        self._addresses = addresses
        self._bridges = bridges
        # Names of chains have at most 28 characters. The longest range makes 24.
        of = bridges if addresses is None else addresses.text.replace(".", "_").replace("/", "_")
        self._table = "rookery_%s" % of
        self._users_path = os.path.join(_LOCKS, self._table)
        self._users = None

    def hold(self):
        """Makes the rules, which stay until `release`. Raises RulesFailure or OSError."""
        turn = _take_turn()
        try:
            users = os.open(self._users_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(users, fcntl.LOCK_SH)
            self._users = users
            self._make()
        finally:
            os.close(turn)

    def join(self):
        """
        Holds the rules together with other processes.

        Returns False when there are no rules. Raises OSError.
        """
        turn = _take_turn()
        try:
            users = os.open(self._users_path, os.O_RDWR | os.O_CLOEXEC)
            fcntl.flock(users, fcntl.LOCK_SH)
            self._users = users
            return True
        except FileNotFoundError:
            return False
        finally:
            os.close(turn)

    def release(self):
        """Releases the rules. Removes them when no other process holds them and no sandbox needs them."""
        if self._users is None:
            return
        turn = _take_turn()
        try:
            fcntl.flock(self._users, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if waiting.until(lambda: not self._are_needed(), _GONE_SECONDS, _LOOK_SECONDS):
                self._remove()
                os.unlink(self._users_path)
                os.rmdir(_LOCKS)
        except OSError:
            # Other processes still hold these rules, or have made them again.
            pass
        finally:
            os.close(self._users)
            self._users = None
            os.close(turn)

    def _are_needed(self):
        """
        Returns True if an interface of a sandbox exists.

        An instance survives a killed zygote, and a container survives its server.
        """
        return any(self._is_ours(name) for name in os.listdir(_INTERFACES))

    def _is_ours(self, interface):
        if self._addresses is None:
            return interface.startswith(self._bridges)
        beginning = len(INTERFACE_BEGINNING)
        try:
            number = int(interface[beginning:], 16) if interface.startswith(INTERFACE_BEGINNING) else 0
        except ValueError:
            return False
        return self._addresses.first <= number <= self._addresses.last

    def _make(self):
        nft, iptables = _find("nft"), _find("iptables")
        if nft is not None:
            # A single transaction, so that the rules are never applied twice or in part.
            script = "add table ip {table}\ndelete table ip {table}\n".format(table=self._table) + self._nft_script()
            _run([nft, "-f", "-"], script)
        elif iptables is None:
            raise RulesFailure("neither nft nor iptables is installed, and the rules between sandboxes and the host need one of them")
        chains = self._chains() if nft is None else ()
        if self._addresses is not None and iptables is not None and _forwards_only_known(iptables):
            chains += _EXCEPTIONS
        for table, hooks, chain, rules in chains:
            self._make_chain(iptables, table, hooks, chain.format(table=self._table), self._fill(rules))

    def _make_chain(self, iptables, table, hooks, chain, rules):
        """Makes a chain with its rules in one step, then the jumps to it."""
        script = "*%s\n:%s - [0:0]\n%s\nCOMMIT\n" % (table, chain, "\n".join("-A %s %s" % (chain, rule) for rule in rules))
        _run([iptables + "-restore", "-w", "--noflush"], script)
        for hook in hooks:
            if not _try_run([iptables, "-w", "-t", table, "-C", hook, "-j", chain]):
                _run([iptables, "-w", "-t", table, "-I", hook, "-j", chain])

    def _remove(self):
        nft, iptables = _find("nft"), _find("iptables")
        if nft is not None:
            _try_run([nft, "delete", "table", "ip", self._table])
        if iptables is None:
            return
        for table, hooks, chain, _rules in self._chains() + _EXCEPTIONS:
            chain = chain.format(table=self._table)
            for hook in hooks:
                while _try_run([iptables, "-w", "-t", table, "-D", hook, "-j", chain]):
                    pass
            if _try_run([iptables, "-w", "-t", table, "-F", chain]):
                _try_run([iptables, "-w", "-t", table, "-X", chain])

    def _chains(self):
        return _IPTABLES_BRIDGES if self._addresses is None else _IPTABLES_RANGE

    def _nft_script(self):
        if self._addresses is None:
            forward, output, translation = "", _NFT_BRIDGE_OUTPUT, ""
        else:
            forward, output, translation = _NFT_FORWARD, _NFT_OUTPUT, _NFT_TRANSLATION
        known = {"range": self._addresses and self._addresses.text, "bridges": self._bridges}
        return _NFT.format(
            table=self._table,
            forbidden=", ".join(FORBIDDEN),
            nft_names="\n    ".join(_NFT_NAMES % server for server in network_names.servers()),
            nft_forward=forward.format(**known),
            nft_output=output.format(**known),
            nft_translation=translation.format(**known),
        )

    def _fill(self, rules):
        for rule in rules:
            if rule == "{names}":
                for server in network_names.servers():
                    for protocol in ("udp", "tcp"):
                        yield "-i rk+ -d %s -p %s --dport 53 -j RETURN" % (server, protocol)
            elif rule == "{forbidden}":
                for addresses in FORBIDDEN:
                    yield "-i rk+ -d %s -j DROP" % addresses
            else:
                yield rule.format(range=self._addresses and self._addresses.text, bridges=self._bridges)


def check_range(addresses):
    """Raises RulesFailure when the host has a route into this range."""
    with open(_ROUTES) as table:
        next(table)
        for line in table:
            fields = line.split()
            interface, destination, mask = fields[0], fields[1], fields[7]
            if interface.startswith(INTERFACE_BEGINNING) or mask == "00000000":
                continue
            first, size = _number(destination), 0x100000000 - _number(mask)
            if first <= addresses.last and addresses.first < first + size:
                raise RulesFailure(
                    "the host has a route to %s over %s, which the range %s overlaps; set another one with process.networkRange"
                    % (socket.inet_ntoa(struct.pack(">I", first)), interface, addresses.text)
                )


def forward(may_set):
    """Makes the host forward packets. Raises RulesFailure."""
    with open(_FORWARDING) as setting:
        if setting.read().strip() == "1":
            return
    if not may_set:
        raise RulesFailure("this host does not forward packets (net.ipv4.ip_forward is 0), and may not be made to by process.setForwarding")
    try:
        with open(_FORWARDING, "w") as setting:
            setting.write("1")
    except OSError as error:
        raise RulesFailure("this host does not forward packets, and net.ipv4.ip_forward cannot be set: %s" % error.strerror)


def _number(text):
    """Returns a hexadecimal number of the routing table, which is in the byte order of the machine."""
    return struct.unpack(">I", struct.pack("=I", int(text, 16)))[0]


def _take_turn():
    """Waits for the lock for changes of rules. The caller releases it by closing the returned descriptor."""
    while True:
        os.makedirs(_LOCKS, mode=0o700, exist_ok=True)
        turn = os.open(_LOCKS, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(turn, fcntl.LOCK_EX)
        try:
            if os.path.samestat(os.fstat(turn), os.stat(_LOCKS)):
                return turn
        except OSError:
            # The last user of the rules has just removed the directory.
            pass
        os.close(turn)


def _forwards_only_known(iptables):
    try:
        return b"-P FORWARD ACCEPT" not in _run([iptables, "-w", "-S", "FORWARD"])
    except RulesFailure:
        return False


def _find(program):
    return shutil.which(program, path=_PATH)


def _try_run(command):
    try:
        _run(command)
        return True
    except RulesFailure:
        return False


def _run(command, script=None):
    """Runs a command and returns its output. Raises RulesFailure."""
    try:
        done = subprocess.run(
            command,
            input=(script or "").encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=_COMMAND_SECONDS,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise RulesFailure("%s cannot be run: %s" % (command[0], error))
    if done.returncode != 0:
        reason = done.stderr.decode("utf-8", "replace").strip().split("\n")[0]
        raise RulesFailure("%s failed: %s" % (os.path.basename(command[0]), reason))
    return done.stdout
