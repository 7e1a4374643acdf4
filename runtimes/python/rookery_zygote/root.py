"""
The content of each sandbox's root directory.

The native program builds it (`runtimes/native/src/root.c`).
"""

import os
import sys

import rookery_runtime

from . import network_names

#: Directories in which programs find other programs, libraries and the loader.
_SYSTEM = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")


class RootPlan:
    """The content that all sandboxes of a zygote have in their root."""

    def __init__(self, mount_point, etc, shown, hidden):
        #: An empty directory on the host. Only the sandbox's own mount namespace mounts something there.
        self.mount_point = mount_point
        self.etc = etc
        #: The name server of every sandbox; None for those of the host.
        self.name_server = None
        #: Host paths that are visible read-only at the same path inside (the interpreter, this code).
        self.shown = [path for path in shown if path != "/" and not _is_within(path, "/usr")]
        #: Host paths that must stay invisible, whatever is shown (the data directory).
        self.hidden = hidden
        #: Directories that every sandbox needs, so that nothing may be mounted over them.
        self.needed = _needed_directories()
        #: Directory of the runtime's modules, some of which are imported on demand.
        self.runtime = os.path.dirname(os.path.realpath(rookery_runtime.__file__))

    def facts(self):
        """Returns the facts for the native program, which builds the root (`root.c`)."""
        return {
            "etc": self.etc.path,
            "etcDirectories": self.etc.directories,
            # The text of the sandbox's own resolv.conf; null for that of the host.
            "resolvers": None if self.name_server is None else network_names.text_for(self.name_server),
            "shown": self.shown,
            "hidden": self.hidden,
        }


def _needed_directories():
    """Returns the needed directories with links resolved, like the targets of mounts."""
    library = os.path.dirname(os.path.realpath(os.__file__))
    found = ["/usr", "/proc", "/dev", library, os.path.join(library, "lib-dynload")]
    found.append(os.path.dirname(os.path.realpath(sys.executable)))
    found += ["/" + name for name in _SYSTEM]
    found += ["/%s/%s" % (name, getattr(sys.implementation, "_multiarch", "")) for name in _SYSTEM]
    return sorted({os.path.realpath(path) for path in found if os.path.isdir(path)} - {"/"})


def _is_within(path, tree):
    return path == tree or path.startswith(tree.rstrip("/") + "/")
