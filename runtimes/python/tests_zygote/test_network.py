"""The parts of a sandbox's network that need no rights."""
import os
import shutil
import socket
import tempfile
import unittest

from rookery_zygote import layers, network, network_names, network_rules, user_network


class Addresses(unittest.TestCase):
    def test_the_first_is_the_hosts_and_none_is_the_networks_own_or_the_last(self):
        addresses = network.Range("10.213.7.9/24")
        self.assertEqual(socket.inet_ntoa(addresses.gateway), "10.213.7.1")
        found = {addresses.any() - addresses.first for _ in range(5000)}
        self.assertEqual((min(found), max(found)), (2, 254))

    def test_a_range_that_the_host_routes_elsewhere_is_refused(self):
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

    def test_without_a_range_there_are_none(self):
        networks = network.Networks(None)
        networks.find(None)
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

    def test_servers_that_others_reach_too_stay(self):
        usual = self._file("usual", "# nameserver 127.0.0.1\nsearch example\nnameserver 127.0.0.1\nnameserver 192.0.2.53\n")
        upstream = self._file("upstream", "nameserver 192.0.2.54\n")
        self.assertEqual(network_names.resolvers_file(usual, upstream), usual)

    def test_instead_of_a_resolver_on_loopback_those_that_it_asks(self):
        usual = self._file("usual", "nameserver 127.0.0.53\noptions edns0\n")
        upstream = self._file("upstream", "nameserver 192.0.2.53\n")
        self.assertEqual(network_names.resolvers_file(usual, upstream), upstream)

    def test_where_nothing_else_is_known_a_sentence_says_so(self):
        usual = self._file("usual", "nameserver ::1\n")
        missing = os.path.join(self.directory, "missing")
        networks = network.Networks(None)
        self.assertEqual(network_names.resolvers_file(usual, missing), usual)
        self.assertEqual(network_names.warnings(networks, usual, missing), [])
        networks.missing = None
        self.assertIn("resolve no names", network_names.warnings(networks, usual, missing)[0])


class PassingProgram(unittest.TestCase):
    def test_output_of_the_program_is_no_end_and_its_end_reports_all_output(self):
        directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, directory)
        program = os.path.join(directory, "program")
        with open(program, "w") as target:
            target.write("#!/bin/sh\necho a warning >&2\nsleep 0.3\necho the cause >&2\nexit 1\n")
        os.chmod(program, 0o755)
        found = user_network.UserNetwork(network.Range("10.213.0.0/16"), program)

        def enter():
            passage = user_network.Passage(found)
            if os.geteuid() != 0:
                layers.enter_user_namespace(os.geteuid(), os.getegid(), 0, 0)
            passage.enter()

        with self.assertRaises(OSError) as failed:
            network._in_child(enter)
        if "ermitted" in str(failed.exception) or "ermission" in str(failed.exception):
            self.skipTest("this machine forbids namespaces")
        self.assertIn("program has ended: a warning; the cause", str(failed.exception))


if __name__ == "__main__":
    unittest.main()
