"""The facts of an instance for Python code that serves it."""

import os
import sys

#: The default PATH of the control plane (`HOST_PATH` in `src/instances/sandbox-spec.ts`).
USUAL_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Sandbox:
    def __init__(self, request, held):
        self.layers = held
        self.instance_id = request["instanceId"]
        self.env = _env_of(request)
        self.working_dir = request["workingDir"]
        self.limits = {
            "memoryMb": request["memoryMb"],
            "maxOpenFiles": request["maxOpenFiles"],
            "maxProcesses": request["maxProcesses"],
        }
        self.identity = None


def path_of_code():
    """
    Returns the default `PATH` for code of this interpreter, so that `python3` and `pip` are those of the
    interpreter.

    Returns None if that is the usual PATH.
    """
    programs = os.path.dirname(sys.executable)
    return None if programs in USUAL_PATH.split(os.pathsep) else programs + os.pathsep + USUAL_PATH


def _env_of(request):
    env, path = request["env"], path_of_code()
    if request["command"]["kind"] != "python" or env.get("PATH") != USUAL_PATH or path is None:
        return env
    return dict(env, PATH=path)
