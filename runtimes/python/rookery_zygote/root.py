"""The root directory of a sandbox, and how the host's goes away behind it."""

import os
import sys

import rookery_runtime

from . import network_names, syscalls
from .syscalls import MS_BIND, MS_NODEV, MS_NOEXEC, MS_NOSUID, MS_RDONLY, MS_REC, MS_REMOUNT, MS_SLAVE

#: Where what is in a sandbox finds the programs, the libraries and the kernel.
_SYSTEM = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_DEVICE_LINKS = (
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
)
_DIRECTORIES = ("dev", "etc", "home", "mnt", "opt", "proc", "root", "run", "sys", "usr", "var", "var/lib", "var/log")
_OPEN_DIRECTORIES = ("dev/shm", "tmp", "var/tmp", "run/lock")
#: Of one sandbox. The kernel has a bound for all of the machine.
_MOST_TERMINALS = 256
#: What container runtimes hide or protect: the parts of /proc that are the machine's, not the process's.
_PROC_READ_ONLY = ("bus", "fs", "irq", "mtrr", "sys", "sysrq-trigger")
_PROC_HIDDEN_FILES = (
    "config.gz",
    "interrupts",
    "kallsyms",
    "kcore",
    "keys",
    "key-users",
    "kmsg",
    "latency_stats",
    "modules",
    "sched_debug",
    "timer_list",
    "timer_stats",
)
_PROC_HIDDEN_DIRECTORIES = ("acpi", "asound", "dynamic_debug", "scsi")


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


def _needed_directories():
    """Resolved, as a mount's target is."""
    library = os.path.dirname(os.path.realpath(os.__file__))
    found = ["/usr", "/proc", "/dev", library, os.path.join(library, "lib-dynload")]
    found.append(os.path.dirname(os.path.realpath(sys.executable)))
    found += ["/" + name for name in _SYSTEM]
    found += ["/%s/%s" % (name, getattr(sys.implementation, "_multiarch", "")) for name in _SYSTEM]
    return sorted({os.path.realpath(path) for path in found if os.path.isdir(path)} - {"/"})


def build(plan, own_proc):
    """Builds the root below `plan.mount_point`. The host's stays at / until `enter`."""
    os.umask(0o022)
    root = plan.mount_point
    syscalls.mount(None, "/", None, MS_REC | MS_SLAVE)
    syscalls.mount("rookery", root, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755")
    for name in _DIRECTORIES:
        os.mkdir(os.path.join(root, name), 0o755)
    for name in _OPEN_DIRECTORIES:
        path = os.path.join(root, name)
        os.mkdir(path, 0o755)
        os.chmod(path, 0o1777)
    os.symlink("/run", os.path.join(root, "var/run"))
    _show("/usr", root)
    for name in _SYSTEM:
        origin = "/" + name
        if os.path.islink(origin):
            os.symlink(os.readlink(origin), os.path.join(root, name))
        elif os.path.isdir(origin):
            os.mkdir(os.path.join(root, name), 0o755)
            _show(origin, root)
    for path in plan.shown:
        os.makedirs(root + path, mode=0o755, exist_ok=True)
        _show(path, root)
    _build_etc(plan.etc, root, plan.name_server)
    _build_devices(root)
    if own_proc:
        _build_proc(root)
    for path in plan.hidden:
        if os.path.isdir(root + path):
            syscalls.mount("rookery", root + path, "tmpfs", MS_RDONLY | MS_NOSUID | MS_NODEV, "size=0,mode=0")


def enter(plan):
    """Makes the built root the root of every process of this mount namespace and lets the host's go."""
    os.chdir(plan.mount_point)
    syscalls.pivot_root(".", ".")
    syscalls.umount_detached(".")
    os.chdir("/")


def _show(path, root):
    syscalls.bind(path, root + path)
    syscalls.restrict_mount(root + path, True)


def _build_etc(etc, root, name_server):
    target = os.path.join(root, "etc")
    resolvers = os.path.join(target, "resolv.conf")
    names = None
    if name_server is not None:
        # Of this sandbox alone, below what is mounted there next.
        names = os.open(resolvers, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644)
        os.write(names, network_names.text_for(name_server).encode())
    syscalls.mount(etc.path, target, None, MS_BIND)
    if names is not None:
        if os.path.isfile(resolvers):
            syscalls.mount("/proc/self/fd/%d" % names, resolvers, None, MS_BIND)
        os.close(names)
    for name in etc.directories:
        syscalls.bind(os.path.join("/etc", name), os.path.join(target, name))
    syscalls.restrict_mount(target, True)


def _build_devices(root):
    directory = os.path.join(root, "dev")
    for name in _DEVICES:
        target = os.path.join(directory, name)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o666))
        syscalls.mount("/dev/" + name, target, None, MS_BIND)
        # Devices work on a read-only mount; without it root inside could change the mode of the host's.
        syscalls.mount(None, target, None, MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID)
    for name, target in _DEVICE_LINKS:
        os.symlink(target, os.path.join(directory, name))
    _build_terminals(directory)


def _build_terminals(directory):
    """Its own terminals, which are nobody else's. Where the machine forbids them there are none."""
    path = os.path.join(directory, "pts")
    os.mkdir(path, 0o755)
    try:
        syscalls.mount("rookery", path, "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620,max=%d" % _MOST_TERMINALS)
    except OSError:
        os.rmdir(path)
        return
    os.symlink("pts/ptmx", os.path.join(directory, "ptmx"))


def _build_proc(root):
    directory = os.path.join(root, "proc")
    null = os.path.join(root, "dev/null")
    syscalls.mount("proc", directory, "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    for name in _PROC_READ_ONLY:
        path = os.path.join(directory, name)
        if os.path.lexists(path):
            syscalls.mount(path, path, None, MS_BIND)
            syscalls.mount(None, path, None, MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC)
    for name in _PROC_HIDDEN_FILES:
        path = os.path.join(directory, name)
        if os.path.lexists(path):
            syscalls.mount(null, path, None, MS_BIND)
    for name in _PROC_HIDDEN_DIRECTORIES:
        path = os.path.join(directory, name)
        if os.path.isdir(path):
            syscalls.mount("rookery", path, "tmpfs", MS_RDONLY | MS_NOSUID | MS_NODEV, "size=0")


def _is_within(path, tree):
    return path == tree or path.startswith(tree.rstrip("/") + "/")
