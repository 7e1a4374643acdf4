"""The layers of isolation: their names, how to enter them, and which of them this machine allows."""

import os

from . import cgroups, seccomp, syscalls
from .failure import LayerFailure

NAMESPACES = (
    ("mount", syscalls.CLONE_NEWNS),
    ("ipc", syscalls.CLONE_NEWIPC),
    ("uts", syscalls.CLONE_NEWUTS),
    ("pid", syscalls.CLONE_NEWPID),
)
_CAP_SYS_ADMIN = 21
_MEANINGS = {
    "mount": "the code sees the host's files as its user may, and mounts work only where source and target are the same path",
    "proc": "there is no /proc inside, programs that read it do not work",
    "pid": "the code sees the host's processes and may signal those of its own user",
    "ipc": "the code shares System V IPC and POSIX queues with the host",
    "uts": "the code shares the host's name",
    "net": "`network: none` is not possible",
    "user": "an ordinary user has none of the namespaces",
    "user_limits": "all sandboxes of one user share what the kernel counts by user, as inotify instances, with its programs on the host",
    "cgroup.memory": "memory is bounded for each process (RLIMIT_DATA) and not for the whole sandbox",
    "cgroup.cpu": "cpu is not bounded",
    "cgroup.pids": "processes are bounded by the rights of the user only",
    "seccomp": "system calls are not filtered",
    "no_new_privs": "setuid programs work inside, and system calls are not filtered",
    "capabilities": "the code keeps the capabilities of the server",
}


class Layers:
    """The layers that every sandbox of a zygote has. Plain data, so that a probe's child can determine it."""

    def __init__(self, places, needs_user):
        #: The control groups as `{controller: Place}`.
        self.places = places
        #: True if this process may create namespaces only inside a user namespace, where every user may.
        self.needs_user = needs_user
        self.held = {name for name, _flag in NAMESPACES}
        self.held |= {"net", "proc", "seccomp", "no_new_privs", "capabilities"}
        self.held |= {"cgroup." + controller for controller in places}
        self.held.add("user" if needs_user else "user_limits")
        self.degraded = []
        self._returns = not needs_user and _returns()

    def forks_twice(self):
        """
        Returns True if the first process of a sandbox is a child of the forked one.

        That is needed if its pid namespace is inside a user namespace, or if this process could not return
        from its children's pid namespace.
        """
        return self.has("pid") and not self._returns

    def has(self, layer):
        return layer in self.held

    def namespaces(self):
        """Returns the namespaces of each sandbox as flags of clone, without those of pids and networks."""
        return sum(flag for name, flag in NAMESPACES if self.has(name) and name != "pid")

    @staticmethod
    def meaning(layer):
        """Returns a sentence about the consequence of a missing layer."""
        return _MEANINGS[layer]

    def drop(self, layer, reason):
        """Removes `layer`, and the layers that only work with it."""
        if layer not in self.held:
            return
        self.held.discard(layer)
        self.degraded.append(sentence(layer, reason))
        if layer.startswith("cgroup."):
            self.places.pop(layer[len("cgroup.") :], None)
        if layer == "user":
            self.needs_user = False
            self.held -= {name for name, _flag in NAMESPACES} | {"net", "proc"}
        if layer == "mount":
            self.held.discard("proc")
        if layer == "no_new_privs":
            self.held.discard("seccomp")

    def words(self):
        """Returns the names of the layers for reports."""
        return sorted(self.held - {"proc"})


def sentence(layer, reason):
    """Returns a sentence that a layer is missing, with the reason and the meaning."""
    return "%s is not available here (%s): %s" % (layer, reason, _MEANINGS[layer])


def is_privileged():
    return os.geteuid() == 0 and bool(syscalls.permitted_capabilities() >> _CAP_SYS_ADMIN & 1)


def find(disabled, try_all):
    """
    Removes layers until the remaining ones work, and returns them.

    `try_all(layers)` makes a sandbox with them. It returns a dict with the failed layer and the reason, or
    None.
    """
    layers = Layers(cgroups.find_places(), not is_privileged())
    for controller in cgroups.CONTROLLERS:
        if controller not in layers.places:
            layers.held.add("cgroup." + controller)
            layers.drop("cgroup." + controller, "no control group can be made")
    for name in sorted(layers.held):
        if name in disabled or name.split(".")[0] in disabled:
            layers.drop(name, "switched off by a setting")
    for _attempt in range(len(_MEANINGS) + 1):
        failure = try_all(layers)
        if failure is None:
            break
        layers.drop(failure["layer"], failure["reason"])
    if not layers.needs_user and not is_privileged():
        layers.degraded.append("the sandboxes have no user of their own: they run as the server's user")
    elif layers.needs_user:
        layers.degraded.append(
            "the server is not root: whatever user is asked for has the rights of the server's user on the host's files"
        )
    return layers


def attempt(layer, call, *arguments):
    try:
        return call(*arguments)
    except OSError as error:
        raise LayerFailure(layer, error)


def _returns():
    """
    Returns True if this process can move its children back into its own pid namespace.

    That takes rights of the owner of that namespace.
    """
    try:
        own = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        syscalls.setns(own, syscalls.CLONE_NEWPID)
    except OSError:
        return False
    finally:
        os.close(own)
    return True


def enter_user_namespace(outside_uid, outside_gid, inside_uid, inside_gid):
    """Enters a new user namespace in which this process is `inside_uid`, the only id that exists there."""
    syscalls.unshare(syscalls.CLONE_NEWUSER)
    for path, text in (
        ("/proc/self/uid_map", "%d %d 1" % (inside_uid, outside_uid)),
        ("/proc/self/setgroups", "deny"),
        ("/proc/self/gid_map", "%d %d 1" % (inside_gid, outside_gid)),
    ):
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, text.encode())
        except OSError:
            # A nested namespace inherits the `deny` of its parent.
            if not path.endswith("setgroups"):
                raise
        finally:
            os.close(descriptor)


def become_user_of_namespace(layers, uid, gid):
    """
    Enters a nested user namespace.

    The outer one maps root, which the mounts needed, and not any other user.
    """
    enter_user_namespace(0, 0, uid, gid)
    # A new namespace begins with all capabilities.
    give_up_privileges(layers)


def give_up_privileges(layers):
    """
    Drops privileges that no later exec restores.

    This process keeps its own rights until `drop_capabilities`.
    """
    if layers.has("capabilities") and (is_privileged() or layers.has("user")):
        attempt("capabilities", syscalls.keep_capabilities, range(64))
        attempt("capabilities", syscalls.drop_bounding_capabilities)
    if layers.has("no_new_privs"):
        attempt("no_new_privs", syscalls.prctl, syscalls.PR_SET_NO_NEW_PRIVS, 1)


def filter_calls(layers):
    if layers.has("seccomp"):
        attempt("seccomp", seccomp.install)
