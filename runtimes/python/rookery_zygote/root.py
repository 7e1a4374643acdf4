"""What the root directory of each sandbox has in it. The native program builds it (`runtimes/native/src/root.c`)."""

import os
import sys

import rookery_runtime

from . import network_names

#: Where what is in a sandbox finds the programs, the libraries and the kernel.
_SYSTEM = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")


class RootPlan:
    """What every sandbox of a zygote has in its root."""

    def __init__(self, mount_point, etc, shown, hidden):
        #: An empty directory on the host. Only the sandbox's own mount namespace has something there.
        self.mount_point = mount_point
        self.etc = etc
        #: The one name server of every sandbox; None: those of the host.
        self.name_server = None
        #: Host paths that stand read-only at the same place inside (the interpreter, this code).
        self.shown = [path for path in shown if path != "/" and not _is_within(path, "/usr")]
        #: Host paths that must not be seen, whatever is shown (the data directory).
        self.hidden = hidden
        #: What every sandbox runs on: nothing may be mounted over it.
        self.needed = _needed_directories()
        #: Where modules are loaded from that not every instance has need of.
        self.runtime = os.path.dirname(os.path.realpath(rookery_runtime.__file__))

    def facts(self):
        """For the native program, which builds it (`root.c`)."""
        return {
            "etc": self.etc.path,
            "etcDirectories": self.etc.directories,
            # Of each sandbox alone; null: those of the host.
            "resolvers": None if self.name_server is None else network_names.text_for(self.name_server),
            "shown": self.shown,
            "hidden": self.hidden,
        }


def _needed_directories():
    """Resolved, as a mount's target is."""
    library = os.path.dirname(os.path.realpath(os.__file__))
    found = ["/usr", "/proc", "/dev", library, os.path.join(library, "lib-dynload")]
    found.append(os.path.dirname(os.path.realpath(sys.executable)))
    found += ["/" + name for name in _SYSTEM]
    found += ["/%s/%s" % (name, getattr(sys.implementation, "_multiarch", "")) for name in _SYSTEM]
    return sorted({os.path.realpath(path) for path in found if os.path.isdir(path)} - {"/"})


def _is_within(path, tree):
    return path == tree or path.startswith(tree.rstrip("/") + "/")
