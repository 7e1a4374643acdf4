"""Smallest possible create and delete: a fork of a warmed interpreter into a sandbox, without a service.

Reads lines from stdin and answers each with one line. ``create DIR EVENT`` forks, isolates the child like the
process sandbox (mount, IPC, UTS, PID and network namespaces, a root of its own, three control groups), loads
``DIR/handler.py`` in it, and answers with the result of ``handle(EVENT, None)``. ``delete`` kills the
sandbox and answers when its processes and groups no longer exist. Only one sandbox exists at a time. Needs
root.

The sandbox has no connection to the host's network, no seccomp filter, and no own user. Nothing is recorded.
"""

import asyncio  # noqa: F401 - the runtime of an agent has it, so the fork must copy its pages too
import ctypes
import fcntl
import importlib.util
import json
import os
import signal
import socket
import struct
import sys

CLONE_NEWNS = 0x20000
NAMESPACES = CLONE_NEWNS | 0x4000000 | 0x8000000 | 0x20000000 | 0x40000000
MS_RDONLY, MS_NOSUID, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 2, 32, 4096, 16384, 1 << 18
MNT_DETACH = 2
PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}[os.uname().machine]
SIOCSIFFLAGS, IFF_UP = 0x8914, 1
READ_ONLY = [path for path in ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc") if os.path.isdir(path)]
MEMORY_BYTES = 256 << 20

libc = ctypes.CDLL(None, use_errno=True)


def check(result, what):
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, "{}: {}".format(what, os.strerror(code)))


def mount(source, target, kind, flags, data=None):
    check(libc.mount(source.encode(), target.encode(), kind and kind.encode(), flags, data and data.encode()), target)


def groups_of(name):
    """Returns the control groups of a sandbox and the limits to write into them, for version 1 or 2."""
    base = "/sys/fs/cgroup"
    if os.path.exists(base + "/cgroup.controllers"):
        return {"{}/{}".format(base, name): {"memory.max": MEMORY_BYTES, "pids.max": 1024}}
    return {
        "{}/memory/{}".format(base, name): {"memory.limit_in_bytes": MEMORY_BYTES},
        "{}/pids/{}".format(base, name): {"pids.max": 1024},
        "{}/cpu/{}".format(base, name): {"cpu.cfs_quota_us": 100000},
    }


def make_groups(groups):
    for path, limits in groups.items():
        os.mkdir(path)
        for name, value in limits.items():
            write(os.path.join(path, name), value)


def write(path, value):
    with open(path, "w") as file:
        file.write(str(value))


def make_root(root, code):
    mount("none", "/", None, MS_REC | MS_PRIVATE)
    mount("tmpfs", root, "tmpfs", MS_NOSUID, "mode=755,size=64m")
    for path in READ_ONLY:
        target = root + path
        os.makedirs(target)
        mount(path, target, None, MS_BIND)
        mount("none", target, None, MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID)
    for path in ("/code", "/proc", "/tmp", "/dev", "/old"):
        os.mkdir(root + path)
    mount(code, root + "/code", None, MS_BIND)
    mount("none", root + "/code", None, MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID)
    mount("tmpfs", root + "/tmp", "tmpfs", MS_NOSUID, "size=64m")
    for device in ("null", "zero", "urandom"):
        open(root + "/dev/" + device, "w").close()
        mount("/dev/" + device, root + "/dev/" + device, None, MS_BIND)
    mount("proc", root + "/proc", "proc", MS_NOSUID)
    os.chdir(root)
    check(libc.syscall(PIVOT_ROOT, b".", b"old"), "pivot_root")
    os.chdir("/")
    check(libc.umount2(b"/old", MNT_DETACH), "umount2")


def bring_loopback_up():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP))


def run_handler(event):
    spec = importlib.util.spec_from_file_location("handler", "/code/handler.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return json.dumps(module.handle(json.loads(event), None))


def isolate(root, code, groups, event, answer):
    """Becomes the first process of a sandbox, answers with the handler's result, and waits to be killed."""
    for path in groups:
        write(os.path.join(path, "cgroup.procs"), 0)
    check(libc.unshare(NAMESPACES), "unshare")
    if os.fork() != 0:
        # This process left only to enter the new PID namespace. It reports the end of the sandbox.
        os.wait()
        os._exit(0)
    make_root(root, code)
    bring_loopback_up()
    socket.sethostname("sandbox")
    os.write(answer, (run_handler(event) + "\n").encode())
    signal.pause()


def main():
    root = sys.argv[1]
    groups = groups_of("rookery-floor-{}".format(os.getpid()))
    outer = 0
    print("ready", flush=True)
    for line in iter(sys.stdin.readline, ""):
        if line.startswith("create "):
            _, code, event = line.split(" ", 2)
            make_groups(groups)
            result, answer = os.pipe()
            outer = os.fork()
            if outer == 0:
                try:
                    isolate(root, code, groups, event, answer)
                except BaseException as error:
                    os.write(answer, "failed: {!r}\n".format(error).encode())
                    os._exit(1)
            os.close(answer)
            with os.fdopen(result) as answers:
                print(answers.readline().strip(), flush=True)
        else:
            children = open("/proc/{0}/task/{0}/children".format(outer)).read().split()
            for child in children:
                os.kill(int(child), signal.SIGKILL)
            os.waitpid(outer, 0)
            for path in groups:
                os.rmdir(path)
            print("deleted", flush=True)


main()
