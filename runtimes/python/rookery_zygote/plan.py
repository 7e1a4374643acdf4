"""What is the same for all sandboxes of one zygote."""

import fcntl
import os
import struct
import sys

from . import etc, forking, identity, layers, lockfile, native, network, process, resident, root

#: Of <linux/fs.h>.
_GET_FLAGS, _SET_FLAGS = 0x80086601, 0x40086602
_FLAGS = struct.Struct("@l")
_TOP_DIRECTORY = 0x20000


class Plan:
    def __init__(self, config, title, template=None, held=None):
        """`template` and `held`: the etc template and the layers where they are known already."""
        run = config["runDir"]
        self.name = config["name"]
        self.instances = os.path.join(run, "instances")
        self.log_bytes = config["logBytes"]
        self.log_files = config["logFiles"]
        self.title = title
        #: What the first process of each sandbox becomes.
        self.program = native.Program()
        self.boot_id = process.boot_id()
        #: The most asked for; looking it up takes as long as all the rest of a start.
        self.root_identity = identity.find("")
        mount_point = os.path.join(run, "root")
        # The old name of workers stays on the disk, so that leftovers of an earlier version are found and removed.
        self.workers = os.path.join(run, "spares")
        for path in (self.instances, self.workers, mount_point):
            os.makedirs(path, mode=0o700, exist_ok=True)
        _spread_below(self.workers)
        self.etc = template or etc.EtcTemplate(os.path.join(run, lockfile.ETC + self.name))
        shown = sorted({sys.base_prefix, sys.prefix, sys.base_exec_prefix, sys.exec_prefix} | set(config["hostPaths"]))
        self.root = root.RootPlan(mount_point, self.etc, shown, [config["dataDir"]])
        self.resident = None
        self.networks = network.Networks(config.get("network"))
        self.layers = held or layers.find(config["disable"], self._try_layers)
        self.resident = resident.find(config.get("resident"), self.layers, self.root_identity)

    def find_networks(self, has_found=False):
        """As `Networks.find`."""
        self.networks.find(self.layers, self._try_network, has_found)
        if self.networks.of_user is not None:
            self.root.name_server = self.networks.of_user.name_server

    def _try_layers(self, tried):
        return forking.try_worker(self, tried, forking.NONE if tried.has("net") else forking.HOST)

    def _try_network(self):
        failure = forking.try_worker(self, self.layers, forking.OWN)
        return None if failure is None else failure["reason"]


def _spread_below(path):
    """
    Tells ext4 that the directories below have nothing to do with each other. Each gets its inodes elsewhere then; else all are where those of others
    were removed a moment before, and without a journal the file system looks past each of these: a fifth of all that a worker costs.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        (flags,) = _FLAGS.unpack(fcntl.ioctl(descriptor, _GET_FLAGS, _FLAGS.pack(0)))
        fcntl.ioctl(descriptor, _SET_FLAGS, _FLAGS.pack(flags | _TOP_DIRECTORY))
    except OSError:
        # Other file systems know no such flag.
        pass
    finally:
        os.close(descriptor)
