"""The way out of a sandbox's network and the lack of one in, between namespaces that stand for host and world. Needs root."""
import os
import shutil
import socket
import subprocess
import tempfile
import traceback
import unittest
import warnings

from rookery_launcher import network, network_rules, syscalls
from rookery_launcher.network_link import Netlink

RANGE = "10.231.0.0/16"
HOST, WORLD = "198.51.100.1", "198.51.100.2"
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
        """Runs it in a process of its own; what it raises fails the test."""
        child = os.fork()
        if child == 0:
            # What it has open ends with it.
            warnings.simplefilter("ignore", ResourceWarning)
            try:
                call()
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)

    def _world(self, steps):
        """A machine behind the host, which knows a way to the sandboxes."""
        syscalls.unshare(syscalls.CLONE_NEWNET)
        steps.there.sendall(b"+")
        steps.there.recv(1)
        with Netlink() as link:
            index = link.find("eth0")
            link.add_address(index, socket.inet_aton(WORLD), socket.inet_aton(HOST))
            link.set_up(index)
            link.add_default_route(index, socket.inet_aton(HOST))
        listener = socket.socket()
        listener.bind((WORLD, 80))
        listener.listen(4)
        listener.settimeout(20)
        steps.there.sendall(b"+")
        connection, caller = listener.accept()
        address = connection.recv(64).decode()
        # Whoever answers must not be told where the sandbox is, nor reach it there.
        assert caller[0] == HOST, caller
        _assert_unreachable(address, 8080)
        connection.sendall(b"told")

    def _connect_world(self, steps, world):
        with Netlink() as link:
            steps.here.recv(1)
            link.add_pair("world", "eth0", world)
            index = link.find("world")
            link.add_address(index, socket.inet_aton(HOST), socket.inet_aton(WORLD))
            link.set_up(index)
            steps.here.sendall(b"+")
            steps.here.recv(1)

    def _rehearse(self, programs, policy=None):
        syscalls.unshare(syscalls.CLONE_NEWNET)
        network_rules._LOCKS = os.path.join(self.locks, "rookery")
        network_rules._find = lambda name: _find(name) if name in programs else None
        with Netlink() as link:
            link.set_up(1)
        if policy is not None:
            subprocess.check_call([_find("iptables"), "-P", "FORWARD", policy])
        addresses = network.Range(RANGE)
        steps = Steps()
        world = os.fork()
        if world == 0:
            try:
                self._world(steps)
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
        self._connect_world(steps, world)
        rules = network_rules.Rules(addresses)
        rules.hold()
        network_rules.forward(True)

        def inside():
            own = network.enter(addresses)
            listener = socket.socket()
            listener.bind(("0.0.0.0", 8080))
            listener.listen(1)
            with socket.create_connection((WORLD, 80), 10) as outside:
                outside.settimeout(10)
                outside.sendall(own.encode())
                assert outside.recv(16) == b"told"

        self._in_child(inside)
        self.assertEqual(os.waitpid(world, 0)[1], 0)
        network_rules._INTERFACES = self.locks
        rules.release()
        left = subprocess.check_output([_find("nft"), "list", "ruleset"]) if _find("nft") else b""
        self.assertNotIn(b"10.231.", left)
        self.assertFalse(os.path.exists(network_rules._LOCKS))

    @unittest.skipUnless(_has("nft"), "needs root and nft")
    def test_with_nft_a_sandbox_reaches_out_and_the_world_does_not_reach_in(self):
        self._in_child(lambda: self._rehearse(("nft",)))

    @unittest.skipUnless(_has("iptables"), "needs root and iptables")
    def test_with_iptables_too(self):
        self._in_child(lambda: self._rehearse(("iptables",)))

    @unittest.skipUnless(_has("nft") and _has("iptables"), "needs root, nft and iptables")
    def test_with_nft_beside_a_firewall_that_forwards_only_what_it_knows(self):
        self._in_child(lambda: self._rehearse(("nft", "iptables"), "DROP"))

    @unittest.skipUnless(_has("nft"), "needs root and nft")
    def test_the_last_one_takes_the_rules_away(self):
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
    def test_a_host_with_neither_is_told_what_is_missing(self):
        def none():
            network_rules._LOCKS = os.path.join(self.locks, "rookery")
            network_rules._find = lambda _name: None
            with self.assertRaises(network_rules.RulesFailure) as failure:
                network_rules.Rules(network.Range(RANGE)).hold()
            self.assertIn("neither nft nor iptables", str(failure.exception))

        self._in_child(none)


def _assert_unreachable(address, port):
    try:
        socket.create_connection((address, port), _SECONDS).close()
    except OSError:
        return
    raise AssertionError("%s is reached" % address)


if __name__ == "__main__":
    unittest.main()
