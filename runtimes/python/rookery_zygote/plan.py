"""The facts that are the same for all sandboxes of a zygote."""

import fcntl
import os
import struct
import sys

from . import etc, forking, identity, layers, lockfile, native, network, process, resident, root

#: Numbers from <linux/fs.h>.
_GET_FLAGS, _SET_FLAGS = 0x80086601, 0x40086602
_FLAGS = struct.Struct("@l")
_TOP_DIRECTORY = 0x20000


class Plan:
    def __init__(self, config, title, template=None, held=None):
        """`template` and `held` are the etc template and the layers, if they are known already."""
        run = config["runDir"]
        self.name = config["name"]
        self.instances = os.path.join(run, "instances")
        self.log_bytes = config["logBytes"]
        self.log_files = config["logFiles"]
        self.title = title
        #: The program that the first process of each sandbox becomes.
        self.program = native.Program()
        self.boot_id = process.boot_id()
        #: The most frequent identity. Its lookup takes as long as the rest of a start.
        self.root_identity = identity.find("")
        mount_point = os.path.join(run, "root")
        # The directory keeps its old name, so that residue of an earlier version is found and removed.
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
        """Finds out which networks are possible; see `Networks.find`."""
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
    Tells ext4 that the directories below `path` are unrelated, so that each gets its inodes in another place.

    Otherwise all inodes are where others were freed a moment before. Without a journal the file system skips
    each of these, which takes a fifth of the cost of a worker.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        (flags,) = _FLAGS.unpack(fcntl.ioctl(descriptor, _GET_FLAGS, _FLAGS.pack(0)))
        fcntl.ioctl(descriptor, _SET_FLAGS, _FLAGS.pack(flags | _TOP_DIRECTORY))
    except OSError:
        # Other file systems lack this flag.
        pass
    finally:
        os.close(descriptor)
