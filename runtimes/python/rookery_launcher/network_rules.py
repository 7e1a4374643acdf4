"""What the host must have so that the networks of sandboxes reach out and nobody reaches in: forwarding, and a few firewall rules.

The rules are for a range of addresses and not for a sandbox: made once, by whichever launcher comes first, and removed by the last
one. Launchers count themselves with a shared lock, which the kernel takes back when one is killed.
"""

import fcntl
import os
import shutil
import socket
import struct
import subprocess
import time

#: Of every interface on the host that leads to a sandbox; its address follows in hexadecimal.
INTERFACE_BEGINNING = "rk"
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

#: In order: sandboxes do not reach each other, answers come in, nothing else does; on the host only root may begin to talk to them.
_NFT = """
table ip {table} {{
  chain forward {{
    type filter hook forward priority -10; policy accept;
    iifname "rk*" oifname "rk*" drop
    oifname "rk*" ip daddr {range} ct state established,related accept
    oifname "rk*" ip daddr {range} drop
  }}
  chain output {{
    type filter hook output priority -10; policy accept;
    oifname "rk*" ip daddr {range} ct state new meta skuid != 0 drop
  }}
  chain postrouting {{
    type nat hook postrouting priority 100; policy accept;
    oifname != "rk*" ip saddr {range} masquerade
  }}
}}
"""
#: The same where there is no `nft`: table, chain and rule, each put before those that are there, so the last comes first.
_IPTABLES = (
    ("nat", "POSTROUTING", "-s {range} ! -o rk+ -j MASQUERADE"),
    ("filter", "OUTPUT", "-o rk+ -d {range} -m conntrack --ctstate NEW -m owner ! --uid-owner 0 -j DROP"),
    ("filter", "FORWARD", "-i rk+ -s {range} -j ACCEPT"),
    ("filter", "FORWARD", "-o rk+ -d {range} -j DROP"),
    ("filter", "FORWARD", "-o rk+ -d {range} -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"),
    ("filter", "FORWARD", "-i rk+ -o rk+ -d {range} -j DROP"),
)
#: Beside `nft`, where another firewall forwards only what it knows (that of docker does).
_EXCEPTIONS = (
    ("filter", "FORWARD", "-i rk+ -s {range} -j ACCEPT"),
    ("filter", "FORWARD", "-o rk+ -d {range} -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"),
)


class RulesFailure(Exception):
    """The host cannot have them, as a sentence."""


class Rules:
    """Those for one Range, held by this process until it releases them or ends."""

    def __init__(self, addresses):
        self._addresses = addresses
        self._table = "rookery_%s" % addresses.text.replace(".", "_").replace("/", "_")
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
            deadline = time.monotonic() + _GONE_SECONDS
            while self._are_needed() and time.monotonic() < deadline:
                time.sleep(_LOOK_SECONDS)
            if not self._are_needed():
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
        """An instance whose launcher was killed lives on."""
        beginning = len(INTERFACE_BEGINNING)
        for name in os.listdir(_INTERFACES):
            try:
                number = int(name[beginning:], 16) if name.startswith(INTERFACE_BEGINNING) else 0
            except ValueError:
                continue
            if self._addresses.first <= number <= self._addresses.last:
                return True
        return False

    def _make(self):
        nft, iptables = _find("nft"), _find("iptables")
        if nft is not None:
            # In one step: never twice, and never half of it.
            script = "add table ip {table}\ndelete table ip {table}\n" + _NFT
            _run([nft, "-f", "-"], self._fill(script))
            rules = _EXCEPTIONS if iptables is not None and _forwards_only_known(iptables) else ()
        elif iptables is not None:
            rules = _IPTABLES
        else:
            raise RulesFailure("neither nft nor iptables is installed, and the host has to translate their addresses")
        for rule in rules:
            if not self._has(iptables, rule):
                _run(self._command(iptables, "-I", rule))

    def _remove(self):
        nft, iptables = _find("nft"), _find("iptables")
        if nft is not None:
            _try_run([nft, "delete", "table", "ip", self._table])
        if iptables is not None:
            for rule in set(_IPTABLES + _EXCEPTIONS):
                if self._has(iptables, rule):
                    _try_run(self._command(iptables, "-D", rule))

    def _has(self, iptables, rule):
        return _try_run(self._command(iptables, "-C", rule))

    def _command(self, iptables, verb, rule):
        table, chain, text = rule
        return [iptables, "-w", "-t", table, verb, chain] + self._fill(text).split()

    def _fill(self, text):
        return text.format(table=self._table, range=self._addresses.text)


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
            # Whoever was the last has just removed it.
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
