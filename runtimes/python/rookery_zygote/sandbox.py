"""One instance as those who serve it know it, where no native program does."""

import os
import sys

#: What the control plane gives when nobody says anything (`HOST_PATH` in `src/instances/sandbox-spec.ts`).
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
    What `PATH` is for code of this interpreter where the caller chose none: `python3` and `pip` are those of the code. None where that is the
    usual one.
    """
    programs = os.path.dirname(sys.executable)
    return None if programs in USUAL_PATH.split(os.pathsep) else programs + os.pathsep + USUAL_PATH


def _env_of(request):
    env, path = request["env"], path_of_code()
    if request["command"]["kind"] != "python" or env.get("PATH") != USUAL_PATH or path is None:
        return env
    return dict(env, PATH=path)
