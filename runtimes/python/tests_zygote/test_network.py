"""Tests the parts of a sandbox's network that need no rights."""
import os
import shutil
import socket
import struct
import tempfile
import unittest

from rookery_zygote import forking, frames, layers, network, network_names, network_rules, user_network

from forked import Forked


class Addresses(unittest.TestCase):
    def test_the_native_program_gets_the_range_and_the_address_of_the_host(self):
        addresses = network.Range("10.213.7.9/24")
        networks = network.Networks(None)
        networks.range = addresses
        facts = networks.facts()
        found = [socket.inet_ntoa(struct.pack(">I", facts[name])) for name in ("first", "gateway", "last")]
        self.assertEqual(found, ["10.213.7.0", "10.213.7.1", "10.213.7.255"])

    def test_a_range_with_another_route_on_the_host_is_refused(self):
        with open("/proc/net/route") as table:
            rows = [line.split() for line in list(table)[1:]]
        rows = [row for row in rows if row[7] != "00000000" and not row[0].startswith("rk")]
        if not rows:
            self.skipTest("this host has no route but the default one")
        packed = int(rows[0][1], 16).to_bytes(4, "little")
        taken = network.Range("%s/24" % socket.inet_ntoa(packed))
        with self.assertRaises(network_rules.RulesFailure) as refused:
            network_rules.check_range(taken)
        self.assertIn(rows[0][0], str(refused.exception))
        network_rules.check_range(network.Range("203.0.113.0/24"))

    def test_an_empty_range_gives_no_networks(self):
        networks = network.Networks(None)
        networks.find(None, lambda: self.fail("there is nothing to try"))
        self.assertEqual((networks.always, networks.missing is None), (False, False))
        networks.release()


class Names(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.directory)

    def _file(self, name, text):
        path = os.path.join(self.directory, name)
        with open(path, "w") as target:
            target.write(text)
        return path

    def test_name_servers_reachable_from_a_sandbox_are_kept(self):
        usual = self._file("usual", "# nameserver 127.0.0.1\nsearch example\nnameserver 127.0.0.1\nnameserver 192.0.2.53\n")
        upstream = self._file("upstream", "nameserver 192.0.2.54\n")
        self.assertEqual(network_names.resolvers_file(usual, upstream), usual)

    def test_a_resolver_on_loopback_is_replaced_by_its_upstream_servers(self):
        usual = self._file("usual", "nameserver 127.0.0.53\noptions edns0\n")
        upstream = self._file("upstream", "nameserver 192.0.2.53\n")
        self.assertEqual(network_names.resolvers_file(usual, upstream), upstream)

    def test_the_facts_say_when_no_name_server_is_known(self):
        usual = self._file("usual", "nameserver ::1\n")
        missing = os.path.join(self.directory, "missing")
        networks = network.Networks(None)
        self.assertEqual(network_names.resolvers_file(usual, missing), usual)
        self.assertEqual(network_names.warnings(networks, usual, missing), [])
        networks.missing = None
        self.assertIn("resolve no names", network_names.warnings(networks, usual, missing)[0])


class PassingProgram(Forked):
    """Tests in a user namespace, as for a service of an ordinary user."""

    def setUp(self):
        super(PassingProgram, self).setUp()
        self.made = self.changed()
        self.made.layers = layers.Layers(dict(self.plan.layers.places), needs_user=True)
        self.made.networks = network.Networks({"range": "10.213.0.0/16", "always": True, "setForwarding": False})
        self.made.networks.range = network.Range("10.213.0.0/16")
        if forking.try_worker(self.made, self.made.layers) is not None:
            self.skipTest("this machine forbids namespaces")

    def with_program(self, path):
        self.made.networks.of_user = user_network.UserNetwork(self.made.networks.range, path)
        self.made.networks.missing = None
        return self.make_forks(self.made)

    def test_output_of_the_program_is_no_end_and_its_end_reports_all_output(self):
        program = os.path.join(self.base, "program")
        go_on = os.path.join(self.base, "go on")
        os.mkfifo(go_on)
        with open(program, "w") as target:
            target.write("#!/bin/sh\necho a warning >&2\nread go <'%s'\necho the cause >&2\nexit 1\n" % go_on)
        os.chmod(program, 0o755)
        worker = self.fork(self.with_program(program), asked=forking.OWN)
        waiting = worker.hand_over()
        self.addCleanup(waiting.close)
        # Opening waits for the program, which has written its messages by then.
        with open(go_on, "w") as target:
            target.write("on\n")
        said = worker.hear()
        self.assertEqual(said["layer"], "network")
        self.assertIn("program has ended: a warning; the cause", said["failed"])
        self.assertEqual(frames.read_message(waiting)["message"], said["failed"])


if __name__ == "__main__":
    unittest.main()
