"""What the host must have so that the networks of sandboxes reach out and nobody reaches in: forwarding, and a few firewall rules.

Every interface on the host that leads to a sandbox begins with `rk`, whichever driver made it: so the walls between sandboxes, and before
the metadata of a cloud, are the same few rules for all of them. Each zygote's range and each installation's docker networks have a set of
rules of their own: made once, by whichever process comes first, and removed by the last one. Those count themselves with a shared lock,
which the kernel takes back when one is killed.
"""

import fcntl
import os
import shutil
import socket
import struct
import subprocess

from . import network_names, waiting

#: Of every interface on the host that leads to a sandbox; the address of a process sandbox follows in hexadecimal.
INTERFACE_BEGINNING = "rk"
#: Of the bridges that lead to containers; four letters of the installation and more of the tenant follow (`docker/networks.ts`).
BRIDGE_BEGINNING = "rkb"
#: Where clouds tell a machine its secrets, and what is on the same link: AWS and most others; Alibaba; Azure; Oracle.
FORBIDDEN = ("169.254.0.0/16", "100.100.100.200/32", "168.63.129.16/32", "192.0.0.192/32")
_LOCKS = "/run/rookery"
_FORWARDING = "/proc/sys/net/ipv4/ip_forward"
_ROUTES = "/proc/net/route"
_INTERFACES = "/sys/class/net"
_COMMAND_SECONDS = 10
#: The kernel takes a network away a moment after its last process.
_GONE_SECONDS = 2
_LOOK_SECONDS = 0.02
#: Where a service manager leaves them out of the PATH.
_PATH = "/usr/sbin:/sbin:/usr/bin:/bin:/usr/local/sbin:/usr/local/bin"

#: Of all sandboxes. In order: none reaches another; name servers answer wherever they are; nothing else there does.
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
#: Of a range: answers come in, nothing else does; on the host only root may begin to talk to them.
_NFT_FORWARD = """oifname "rk*" ip daddr {range} ct state established,related accept
    oifname "rk*" ip daddr {range} drop"""
_NFT_OUTPUT = 'oifname "rk*" ip daddr {range} ct state new meta skuid != 0 drop'
_NFT_TRANSLATION = """chain postrouting {{
    type nat hook postrouting priority 100; policy accept;
    oifname != "rk*" ip saddr {range} masquerade
  }}"""
#: Of an installation's bridges; docker does the rest. Traffic that docker itself leads to a published port may come from anybody on the host.
_NFT_BRIDGE_OUTPUT = 'oifname "{bridges}*" ct state new ct status != dnat meta skuid != 0 drop'

#: The same where there is no `nft`: table, chain of the kernel, chain of ours, and what is in that. The walls are not in the table `filter`,
#: where another firewall may have accepted a packet before it comes to them (that of docker does).
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
#: Where another firewall forwards only what it knows.
_EXCEPTIONS = (
    ("filter", ("FORWARD",), "{table}", (
        "-i rk+ -s {range} -j ACCEPT",
        "-o rk+ -d {range} -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
    )),
)


class RulesFailure(Exception):
    """The host cannot have them, as a sentence."""


class Rules:
    """Those for one Range or for the bridges of one installation, held by this process until it releases them or ends."""

    def __init__(self, addresses, bridges=None):
        """`bridges`: what their names begin with, when `addresses` is None."""
        self._addresses = addresses
        self._bridges = bridges
        # Names of chains have 28 characters at most; with the widest range this is 24.
        of = bridges if addresses is None else addresses.text.replace(".", "_").replace("/", "_")
        self._table = "rookery_%s" % of
        self._users_path = os.path.join(_LOCKS, self._table)
        self._users = None

    def hold(self):
        """They are there, and stay until `release`. Fails with RulesFailure or OSError."""
        turn = _take_turn()
        try:
            users = os.open(self._users_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(users, fcntl.LOCK_SH)
            self._users = users
            self._make()
        finally:
            os.close(turn)

    def join(self):
        """Holds them with others who made them. False when there are none. Fails with OSError."""
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
        """Removes them when nobody else holds them and no sandbox needs them."""
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
            # Others go on with them, or with others like them.
            pass
        finally:
            os.close(self._users)
            self._users = None
            os.close(turn)

    def _are_needed(self):
        """An instance whose zygote was killed lives on, and so does a container without its server."""
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
            # In one step: never twice, and never half of it.
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
        """Its rules in one step, then the ways to it."""
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
    """Fails with RulesFailure when the host has another use for these addresses."""
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
    """The host passes packets on. Fails with RulesFailure."""
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
    """A hexadecimal number as the routing table has it, in the byte order of the machine."""
    return struct.unpack(">I", struct.pack("=I", int(text, 16)))[0]


def _take_turn():
    """One at a time makes and removes rules, until it closes this descriptor."""
    while True:
        os.makedirs(_LOCKS, mode=0o700, exist_ok=True)
        turn = os.open(_LOCKS, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(turn, fcntl.LOCK_EX)
        try:
            if os.path.samestat(os.fstat(turn), os.stat(_LOCKS)):
                return turn
        except OSError:
            # The last user has just removed it.
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
    """Its output. Fails with RulesFailure."""
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
