"""Converts a request to start an instance into the orders of the worker that becomes the instance."""

import json
import os
import re
import shutil
import subprocess
import sys

from rookery_zygote import identity, program, user_process
from rookery_zygote.failure import StartFailure

from .worker import HERE

_STARTER = os.path.join(HERE, "rookery_runtime", "image.py")
_ASK_VERSION = "import sys; print('%d.%d' % sys.version_info[:2])"
_JAVA_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_ANSWER_SECONDS = 20
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#: Variables of the cluster and of the manager itself.
_OF_THE_CLUSTER = re.compile("^(KUBERNETES_.*|HOSTNAME|PWD|SHLVL|_|LC_CTYPE)$")


def code_env(request, own_env):
    """
    Returns the environment of the code.

    `own_env` is the environment in which this container was started.
    """
    env = {}
    if request["ofImage"]:
        env = {name: value for name, value in own_env.items() if not _OF_THE_CLUSTER.match(name)}
    env.update(request["env"])
    return env


def find_identity(asked):
    """
    Returns the identity of the code, with a warning if that differs from the requested one.

    Raises StartFailure.
    """
    uid, gid = os.geteuid(), os.getegid()
    if not asked:
        return identity.Identity(str(uid), uid, gid, os.getgroups() if uid else [gid], "/"), []
    found = identity.find(asked)
    if uid == 0 or found.uid == uid:
        return found, []
    own = identity.Identity(found.name, uid, gid, os.getgroups(), found.home)
    return own, ["the code runs as uid %d and not as %s (uid %d): the pod does not run as root" % (uid, found.name, found.uid)]


def make(request, sandbox, worker):
    """Returns the orders for this worker. Raises StartFailure."""
    asked = request["command"]
    orders = {
        "instanceId": sandbox.instance_id,
        "env": sandbox.env,
        "workingDir": sandbox.working_dir,
        "identity": user_process.identity_orders(sandbox),
        "limits": sandbox.limits,
    }
    if asked["kind"] == "python" and request["ofImage"]:
        return dict(orders, **_of_image(request, sandbox, worker))
    if "deployDir" in asked:
        program.check(asked)
        if sandbox.identity.uid != os.geteuid():
            program.check_for_user(asked["argv"][0], sandbox.identity)
    if asked["kind"] in ("http", "image"):
        # The image's command runs in a separate container of the pod, so this one does not know it.
        return dict(orders, secret=request["secret"], server=asked.get("argv", []))
    if asked["kind"] == "exec" and asked["argv"]:
        if "javaVersion" in asked:
            _check_java(request, sandbox)
        return dict(orders, **_program(request, sandbox, worker))
    if asked["kind"] == "python" and asked["version"] != "%d.%d" % sys.version_info[:2]:
        has = "the pod has Python %d.%d" % sys.version_info[:2]
        raise _unavailable("python" + asked["version"], has)
    return dict(orders, secret=request["secret"])


def _program(request, sandbox, worker):
    asked = request["command"]
    makes_socket = asked.get("makesSocket", False)
    env = dict(sandbox.env, ROOKERY_RUNTIME_SOCKET=worker.socket, ROOKERY_RUNTIME_SECRET=request["secret"])
    if makes_socket:
        worker.leave_socket_to_program()
    else:
        env["ROOKERY_RUNTIME_FD"] = str(user_process.LISTENER)
    return {
        "argv": asked["argv"],
        "env": env,
        "keepsListener": not makes_socket,
        "mayServeHttp": asked.get("orServesHttp", False),
    }


def _of_image(request, sandbox, worker):
    """
    Returns the orders to run the runtime with the image's own Python, by the path of its starter.

    The code sees neither that path nor the orders.
    """
    interpreter = _find_python(request, sandbox)
    worker.leave_socket_to_program()
    path = os.path.join(worker.sockets, "orders")
    orders = {
        "secret": request["secret"],
        "socket": worker.socket,
        "version": request["command"]["version"],
        "mode": "python",
        "argv": [],
        "unset": [],
    }
    # The reader, perhaps another user, removes the file before the code begins.
    with open(path, "w") as out:
        json.dump(orders, out)
    os.chmod(path, 0o644)
    argv = [interpreter, _STARTER, path]
    return {"argv": argv, "env": sandbox.env, "keepsListener": False, "mayServeHttp": False}


def _find_python(request, sandbox):
    version = request["command"]["version"]
    looked = []
    for name in ("python" + version, "python3", "python"):
        path = shutil.which(name, path=sandbox.env.get("PATH", _PATH))
        if path is None:
            looked.append("there is no %s" % name)
            continue
        found = _output(sandbox, [path, "-c", _ASK_VERSION]).strip()
        if found == version:
            return path
        looked.append("%s is %s" % (name, "Python " + found if re.match(r"^\d\.\d+$", found) else "no Python"))
    has_none = "image %s has no Python %s (%s)" % (request["image"], version, "; ".join(looked))
    raise _unavailable("python" + version, has_none)


def _check_java(request, sandbox):
    wanted = request["command"]["javaVersion"]
    found = _JAVA_VERSION.search(_output(sandbox, [request["command"]["argv"][0], "-version"]))
    if found and found.group(1) == wanted:
        return
    has = "has Java %s" % found.group(1) if found else "has no Java"
    raise _unavailable("java" + wanted, "image %s %s, and Java %s is needed" % (request["image"], has, wanted))


def _unavailable(runtime, why):
    return StartFailure("invalid function: runtime %s is not available: %s" % (runtime, why))


def _output(sandbox, argv):
    """Returns the output of a command that runs as the user; empty when the command cannot be run."""
    become = None
    if sandbox.identity.uid != os.geteuid():
        def become():
            user_process.become(sandbox.layers, user_process.identity_orders(sandbox), sandbox.limits)
    try:
        return subprocess.run(
            argv, env=sandbox.env, cwd="/", preexec_fn=become, start_new_session=True, timeout=_ANSWER_SECONDS,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        ).stdout.decode("utf-8", "replace")
    except (OSError, ValueError, subprocess.SubprocessError):
        return ""
