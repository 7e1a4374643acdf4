"""The layers of isolation: which there are, entering them, and finding out by trying which of them this machine allows."""

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
    """What holds in every sandbox of a zygote. Plain data, so that a probe's child can find it out."""

    def __init__(self, places, needs_user):
        #: `{controller: Place}`.
        self.places = places
        #: Without the right to make namespaces as it is: in a user namespace, where everyone may.
        self.needs_user = needs_user
        self.held = {name for name, _flag in NAMESPACES}
        self.held |= {"net", "proc", "seccomp", "no_new_privs", "capabilities"}
        self.held |= {"cgroup." + controller for controller in places}
        self.held.add("user" if needs_user else "user_limits")
        self.degraded = []
        self._returns = not needs_user and _returns()

    def forks_twice(self):
        """
        Whether the first process of a sandbox is a child of the one that is forked: its pid namespace is one in a user namespace, or this
        process could not go back from where its children are.
        """
        return self.has("pid") and not self._returns

    def has(self, layer):
        return layer in self.held

    def namespaces(self):
        """Which each sandbox has, as flags of clone, but for those of pids and of networks."""
        return sum(flag for name, flag in NAMESPACES if self.has(name) and name != "pid")

    @staticmethod
    def meaning(layer):
        """What it means that a layer is missing."""
        return _MEANINGS[layer]

    def drop(self, layer, reason):
        """Goes on without `layer`, and without what only works with it."""
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
        """The layers as the outside sees them."""
        return sorted(self.held - {"proc"})


def sentence(layer, reason):
    """That a layer is missing, and what that means."""
    return "%s is not available here (%s): %s" % (layer, reason, _MEANINGS[layer])


def is_privileged():
    return os.geteuid() == 0 and bool(syscalls.permitted_capabilities() >> _CAP_SYS_ADMIN & 1)


def find(disabled, try_all):
    """Tries everything until what is left works: `try_all(layers)` makes a sandbox of them, and says which of them does not work, and why."""
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
    """Whether children of this process may be in its own pid namespace again. The rights that this takes are those of that one's owner."""
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
    """A user namespace in which this process is `inside_uid`; that is the only id that exists there."""
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
            # A nested namespace has the `deny` of its parent already.
            if not path.endswith("setgroups"):
                raise
        finally:
            os.close(descriptor)


def become_user_of_namespace(layers, uid, gid):
    """The namespace that the mounts needed maps root; any other user is one namespace further in."""
    enter_user_namespace(0, 0, uid, gid)
    # A new namespace begins with all capabilities.
    give_up_privileges(layers)


def give_up_privileges(layers):
    """Drops privileges that no later exec gives back. The rights of this process itself stay until `drop_capabilities`."""
    if layers.has("capabilities") and (is_privileged() or layers.has("user")):
        attempt("capabilities", syscalls.keep_capabilities, range(64))
        attempt("capabilities", syscalls.drop_bounding_capabilities)
    if layers.has("no_new_privs"):
        attempt("no_new_privs", syscalls.prctl, syscalls.PR_SET_NO_NEW_PRIVS, 1)


def filter_calls(layers):
    if layers.has("seccomp"):
        attempt("seccomp", seccomp.install)
