"""Tests that sandboxes reach out and cannot be reached, between namespaces for host and world. Needs root."""
import errno
import os
import select
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import traceback
import unittest
import warnings

from rookery_zygote import network, network_names, network_rules, syscalls

import network_link
from network_link import Netlink

RANGE = "10.231.0.0/16"
HOST, WORLD = "198.51.100.1", "198.51.100.2"
#: Addresses in the world that are forbidden: those on the same link, and the metadata servers of clouds.
FORBIDDEN = ("169.254.169.254", "169.254.7.7", "100.100.100.200", "168.63.129.16", "192.0.0.192")
#: The forbidden address that is also a name server.
NAME_SERVER = FORBIDDEN[0]
#: Addresses at the two ends of a docker bridge.
CONTAINER, GATEWAY = "203.0.113.2", "203.0.113.1"
BRIDGES = "rkb12ab"
_SECONDS = 1
_find = network_rules._find


def _has(program):
    return os.geteuid() == 0 and _find(program) is not None


class Steps:
    """Two processes that wait for each other."""

    def __init__(self):
        self.here, self.there = socket.socketpair()
        for end in (self.here, self.there):
            end.settimeout(20)


class Rules(unittest.TestCase):
    def setUp(self):
        self.locks = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.locks)

    def _in_child(self, call):
        """Runs `call` in a separate process. An exception there fails the test."""
        child = os.fork()
        if child == 0:
            self._guarded(call)
        self.assertEqual(os.waitpid(child, 0)[1], 0)

    def _guarded(self, call):
        """Ends this process after `call`, whatever its outcome is."""
        # The open files end with the process.
        warnings.simplefilter("ignore", ResourceWarning)
        try:
            call()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)

    def _world(self, steps):
        """Runs a machine behind the host that has a route to the sandboxes."""
        syscalls.unshare(syscalls.CLONE_NEWNET)
        steps.there.sendall(b"+")
        steps.there.recv(1)
        with Netlink() as link:
            index = link.find("eth0")
            link.add_address(index, socket.inet_aton(WORLD), socket.inet_aton(HOST))
            link.set_up(index)
            link.add_default_route(index, socket.inet_aton(HOST))
            for address in FORBIDDEN:
                link.add_address(index, socket.inet_aton(address), socket.inet_aton(HOST))
        for port in (53, 81):
            _answer(port)
        listener = socket.socket()
        listener.bind((WORLD, 80))
        listener.listen(4)
        listener.settimeout(20)
        steps.there.sendall(b"+")
        connection, caller = listener.accept()
        address = connection.recv(64).decode()
        # The other side must neither learn the sandbox's address nor reach it.
        assert caller[0] == HOST, caller
        _assert_unreachable((address, 8080))
        connection.sendall(b"told")

    def _connect_world(self, steps, world):
        with Netlink() as link:
            steps.here.recv(1)
            link.add_pair("world", "eth0", world)
            index = link.find("world")
            link.add_address(index, socket.inet_aton(HOST), socket.inet_aton(WORLD))
            link.set_up(index)
            for address in FORBIDDEN:
                _run("ip", "route", "add", address, "via", WORLD)
            # An address of the host itself that is not routed to another machine.
            _run("ip", "address", "add", "169.254.9.9/32", "dev", "lo")
            steps.here.sendall(b"+")
            steps.here.recv(1)

    def _container(self, steps):
        """Runs the process at the other end of a docker bridge."""
        syscalls.unshare(syscalls.CLONE_NEWNET)
        steps.there.sendall(b"+")
        steps.there.recv(1)
        with Netlink() as link:
            index = link.find("eth0")
            link.add_address(index, socket.inet_aton(CONTAINER), socket.inet_aton(GATEWAY))
            link.set_up(index)
            link.add_default_route(index, socket.inet_aton(GATEWAY))
        _answer(8080)
        steps.there.sendall(b"+")
        address = steps.there.recv(64).decode()
        _assert_reachable(WORLD, 81)
        _assert_unreachable(*[(forbidden, 81) for forbidden in FORBIDDEN + ("169.254.9.9",)] + [(address, 8080)])
        steps.there.sendall(b"+")
        steps.there.recv(1)

    def _connect_container(self, steps, container):
        with Netlink() as link:
            steps.here.recv(1)
            link.add_pair(BRIDGES + "00", "eth0", container)
            index = link.find(BRIDGES + "00")
            link.add_address(index, socket.inet_aton(GATEWAY), socket.inet_aton(CONTAINER))
            link.set_up(index)
            steps.here.sendall(b"+")
            steps.here.recv(1)
        # Docker would make these rules.
        if _find("iptables"):
            _run("iptables", "-t", "nat", "-A", "POSTROUTING", "-s", CONTAINER, "-j", "MASQUERADE")
            _run("iptables", "-A", "FORWARD", "-s", CONTAINER, "-j", "ACCEPT")
            _run("iptables", "-A", "FORWARD", "-d", CONTAINER, "-j", "ACCEPT")
        else:
            _run("nft", "-f", "-", script="table ip docker { chain out { type nat hook postrouting priority 100; ip saddr %s masquerade\n } }" % CONTAINER)

    def _rehearse(self, programs, policy=None):
        syscalls.unshare(syscalls.CLONE_NEWNET)
        network_rules._LOCKS = os.path.join(self.locks, "rookery")
        network_rules._find = lambda name: _find(name) if name in programs else None
        network_names.servers = lambda: [NAME_SERVER]
        with Netlink() as link:
            link.set_up(1)
        if policy is not None:
            subprocess.check_call([_find("iptables"), "-P", "FORWARD", policy])
        addresses = network.Range(RANGE)
        steps = Steps()
        world = os.fork()
        if world == 0:
            self._guarded(lambda: self._world(steps))
        self._connect_world(steps, world)
        rules = network_rules.Rules(addresses)
        rules.hold()
        bridges = network_rules.Rules(None, BRIDGES)
        bridges.hold()
        network_rules.forward(True)
        _answer(81)
        inner = Steps()
        container = os.fork()
        if container == 0:
            self._guarded(lambda: self._container(inner))
        self._connect_container(inner, container)

        def inside():
            own = network_link.enter(addresses)
            _answer(8080)
            inner.here.sendall(own.encode())
            _assert_reachable(WORLD, 81)
            _assert_unreachable(*[(address, 81) for address in FORBIDDEN + ("169.254.9.9",)])
            _assert_reachable(NAME_SERVER, 53)
            _assert_unreachable((FORBIDDEN[1], 53), (CONTAINER, 8080))
            assert inner.here.recv(1) == b"+"
            with socket.create_connection((WORLD, 80), 10) as outside:
                outside.settimeout(10)
                outside.sendall(own.encode())
                assert outside.recv(16) == b"told"

        self._in_child(inside)
        # On the host only root may open connections to a container.
        _assert_reachable(CONTAINER, 8080)

        def nobody():
            os.setuid(65534)
            _assert_unreachable((CONTAINER, 8080))

        self._in_child(nobody)
        inner.here.sendall(b"+")
        self.assertEqual(os.waitpid(container, 0)[1], 0)
        self.assertEqual(os.waitpid(world, 0)[1], 0)
        network_rules._INTERFACES = self.locks
        rules.release()
        bridges.release()
        left = subprocess.check_output([_find("nft"), "list", "ruleset"]) if _find("nft") else b""
        if _find("iptables"):
            left += subprocess.check_output([_find("iptables") + "-save"])
        self.assertNotIn(b"10.231.", left)
        self.assertNotIn(b"rk", left)
        self.assertFalse(os.path.exists(network_rules._LOCKS))

    @unittest.skipUnless(_has("nft"), "needs root and nft")
    def test_with_nft_a_sandbox_reaches_the_outside_but_no_listener_container_or_metadata(self):
        self._in_child(lambda: self._rehearse(("nft",)))

    @unittest.skipUnless(_has("iptables"), "needs root and iptables")
    def test_iptables_gives_the_same_reach_as_nft(self):
        self._in_child(lambda: self._rehearse(("iptables",)))

    @unittest.skipUnless(_has("nft") and _has("iptables"), "needs root, nft and iptables")
    def test_nft_rules_work_beside_a_firewall_that_drops_unknown_forwards(self):
        self._in_child(lambda: self._rehearse(("nft", "iptables"), "DROP"))

    @unittest.skipUnless(_has("nft"), "needs root and nft")
    def test_the_last_network_removes_the_rules(self):
        def two():
            syscalls.unshare(syscalls.CLONE_NEWNET)
            network_rules._LOCKS = os.path.join(self.locks, "rookery")
            network_rules._INTERFACES = self.locks
            first, second = [network_rules.Rules(network.Range(RANGE)) for _ in range(2)]
            first.hold()
            second.hold()
            first.release()
            self.assertIn(b"10.231.", subprocess.check_output([_find("nft"), "list", "ruleset"]))
            second.release()
            self.assertNotIn(b"10.231.", subprocess.check_output([_find("nft"), "list", "ruleset"]))

        self._in_child(two)

    @unittest.skipUnless(os.geteuid() == 0, "needs root")
    def test_a_host_without_nft_and_iptables_gets_the_missing_programs(self):
        def none():
            network_rules._LOCKS = os.path.join(self.locks, "rookery")
            network_rules._find = lambda _name: None
            with self.assertRaises(network_rules.RulesFailure) as failure:
                network_rules.Rules(network.Range(RANGE)).hold()
            self.assertIn("neither nft nor iptables", str(failure.exception))

        self._in_child(none)


def _answer(port):
    """Accepts connections on all addresses of this network, as long as the process lives."""
    listener = socket.socket()
    listener.bind(("0.0.0.0", port))
    listener.listen(64)

    def serve():
        while True:
            listener.accept()[0].close()

    threading.Thread(target=serve, daemon=True).start()


def _run(program, *args, script=None):
    subprocess.run([_find(program)] + list(args), input=script and script.encode(), check=True)


def _assert_reachable(address, port):
    socket.create_connection((address, port), 10).close()


def _assert_unreachable(*places):
    """Checks that no place is reachable within the time limit. Tries all of them at once."""
    attempts = {}
    try:
        for place in places:
            attempt = socket.socket()
            attempt.setblocking(False)
            attempts[attempt] = place
        # Other attempts have failed already.
        waiting = {attempt for attempt, place in attempts.items() if attempt.connect_ex(place) in (0, errno.EINPROGRESS)}
        deadline = time.monotonic() + _SECONDS
        while waiting and time.monotonic() < deadline:
            _, decided, _ = select.select([], list(waiting), [], max(0, deadline - time.monotonic()))
            waiting.difference_update(decided)
            for attempt in decided:
                if attempt.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0:
                    raise AssertionError("%s:%d is reached" % attempts[attempt])
    finally:
        for attempt in attempts:
            attempt.close()


if __name__ == "__main__":
    unittest.main()
