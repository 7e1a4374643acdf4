"""The layers of isolation: which there are, entering them, and finding out by trying which of them this machine allows."""

import json
import os

from . import cgroups, root, seccomp, syscalls, user_limits
from .failure import LayerFailure

NAMESPACES = (
    ("mount", syscalls.CLONE_NEWNS),
    ("ipc", syscalls.CLONE_NEWIPC),
    ("uts", syscalls.CLONE_NEWUTS),
    ("pid", syscalls.CLONE_NEWPID),
)
_CAP_SYS_ADMIN = 21
#: To switch to the user and to kill.
_OF_INIT = (syscalls.CAP_KILL, syscalls.CAP_SETGID, syscalls.CAP_SETUID)
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
        Whether a sandbox's init is a child of the one that `fork_init` makes: its pid namespace is one in a user namespace, or this
        process could not go back from where its children are.
        """
        return self.has("pid") and not self._returns

    def has(self, layer):
        return layer in self.held

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


def find(disabled, plan_root):
    """Tries everything in children of this process until what is left works."""
    layers = Layers(cgroups.find_places(), not is_privileged())
    for controller in cgroups.CONTROLLERS:
        if controller not in layers.places:
            layers.held.add("cgroup." + controller)
            layers.drop("cgroup." + controller, "no control group can be made")
    for name in sorted(layers.held):
        if name in disabled or name.split(".")[0] in disabled:
            layers.drop(name, "switched off by a setting")
    for attempt in range(len(_MEANINGS) + 1):
        failure = _try_all(layers, plan_root, "probe-%d-%d" % (os.getpid(), attempt))
        if failure is None:
            break
        layers.drop(failure[0], failure[1])
    if not layers.needs_user and not is_privileged():
        layers.degraded.append("the sandboxes have no user of their own: they run as the server's user")
    elif layers.needs_user:
        layers.degraded.append(
            "the server is not root: whatever user is asked for has the rights of the server's user on the host's files"
        )
    return layers


def _try_all(layers, plan_root, name):
    """The first layer that fails, as `[layer, reason]`, or None."""
    receiver, sender = os.pipe()
    try:
        child = attempt("pid", fork_init, layers)
    except LayerFailure as failure:
        os.close(receiver)
        os.close(sender)
        return [failure.layer, failure.reason]
    if child == 0:
        os.close(receiver)
        try:
            _rehearse(layers, plan_root, name, sender)
        except LayerFailure as failure:
            os.write(sender, json.dumps([failure.layer, failure.reason]).encode())
        except Exception as error:
            os.write(sender, json.dumps(["mount", "%s: %s" % (type(error).__name__, error)]).encode())
        finally:
            os._exit(0)
    os.close(sender)
    said = b""
    while True:
        part = os.read(receiver, 4096)
        if not part:
            break
        said += part
    os.close(receiver)
    os.waitpid(child, 0)
    for _ in range(100):
        if cgroups.remove(cgroups.paths_of(layers.places, name).values()):
            break
        os.sched_yield()
    if said == b"":
        return ["mount", "the rehearsal ended without a word"]
    return json.loads(said.decode())


def _rehearse(layers, plan_root, name, sender):
    """Everything that a sandbox goes through, in its order."""
    enter(layers, name, one_by_one=True)
    if layers.forks_twice():
        child = os.fork()
        if child:
            os.waitpid(child, 0)
            return
    limits = attempt("user_limits", _make_user_limits) if layers.has("user_limits") else None
    prepare_root(layers, plan_root)
    if layers.has("net"):
        attempt("net", syscalls.unshare, syscalls.CLONE_NEWNET)
    if layers.has("mount"):
        attempt("mount", root.enter, plan_root)
    give_up_privileges(layers)
    if limits is not None:
        attempt("user_limits", enter_user_limits, layers, limits)
    drop_capabilities(layers)
    filter_calls(layers)
    os.write(sender, b"null")


def _make_user_limits():
    offer = user_limits.Offer(int(os.readlink("/proc/self")))
    child = os.fork()
    if child == 0:
        try:
            offer.make()
        finally:
            os._exit(0)
    try:
        return offer.take()
    finally:
        os.waitpid(child, 0)


def attempt(layer, call, *arguments):
    try:
        return call(*arguments)
    except OSError as error:
        raise LayerFailure(layer, error)


def fork_init(layers):
    """As `os.fork`: the child is the first process of a pid namespace, and the next one is not. With `forks_twice` its child will be, after `enter`."""
    if not layers.has("pid") or layers.forks_twice():
        return os.fork()
    own = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    try:
        syscalls.unshare(syscalls.CLONE_NEWPID)
        child = None
        try:
            child = os.fork()
        finally:
            if child != 0:
                syscalls.setns(own, syscalls.CLONE_NEWPID)
        return child
    finally:
        os.close(own)


def enter(layers, name, one_by_one=False):
    """Moves this process, a child of `fork_init`, into groups and namespaces."""
    if layers.places:
        try:
            cgroups.create_and_join(layers.places, name)
        except OSError as error:
            raise LayerFailure("cgroup." + _controller_of(layers.places, error), error)
    if layers.has("user"):
        attempt("user", enter_user_namespace, os.geteuid(), os.getegid(), 0, 0)
    flags = [(layer, flag) for layer, flag in NAMESPACES if layers.has(layer) and (layer != "pid" or layers.forks_twice())]
    if one_by_one:
        for layer, flag in flags:
            attempt(layer, syscalls.unshare, flag)
    elif flags:
        attempt("mount", syscalls.unshare, sum(flag for _layer, flag in flags))


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


def _controller_of(places, error):
    for controller, place in places.items():
        if error.filename and str(error.filename).startswith(place.parent):
            return controller
    return sorted(places)[0]


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


def prepare_root(layers, plan_root):
    if not layers.has("mount"):
        return
    try:
        root.build(plan_root, layers.has("proc"))
    except OSError as error:
        raise LayerFailure("proc" if "/proc" in str(error) else "mount", error)


def become_user_of_namespace(layers, uid, gid):
    """The namespace that the mounts needed maps root; any other user is one namespace further in."""
    enter_user_namespace(0, 0, uid, gid)
    # A new namespace begins with all capabilities.
    give_up_privileges(layers)


def enter_user_limits(layers, namespace):
    """Moves this process into a Namespace of `user_limits`. Of the host's rights it has none from here on."""
    namespace.enter()
    # A new namespace begins with all capabilities.
    give_up_privileges(layers)


def make_user_limits(layers, offer):
    """As `enter_user_limits`, by making what an Offer of `user_limits` is about."""
    offer.make()
    give_up_privileges(layers)


def give_up_privileges(layers):
    """Drops privileges that no later exec gives back. The rights of this process itself stay until `drop_capabilities`."""
    if layers.has("capabilities") and (is_privileged() or layers.has("user")):
        # Later nothing could be inherited any more, and the program that a worker becomes needs them for the start. No other process keeps them.
        attempt("capabilities", syscalls.keep_capabilities, range(64), range(64))
        attempt("capabilities", syscalls.drop_bounding_capabilities)
    if layers.has("no_new_privs"):
        attempt("no_new_privs", syscalls.prctl, syscalls.PR_SET_NO_NEW_PRIVS, 1)


def drop_capabilities(layers):
    """Leaves what an init needs for its children: to switch to the user and to kill."""
    if layers.has("capabilities"):
        attempt("capabilities", syscalls.keep_capabilities, _OF_INIT)


def filter_calls(layers):
    if layers.has("seccomp"):
        attempt("seccomp", seccomp.install)
