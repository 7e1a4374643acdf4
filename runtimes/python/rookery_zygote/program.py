"""Checks the user's program before its sandbox starts, from inside the sandbox's root."""

import os

from .failure import StartFailure


def check(command):
    """Raises StartFailure when the directory of the program is empty, or has no such program."""
    directory, path = command["deployDir"], command["argv"][0]
    if not directory.startswith("/"):
        raise StartFailure("deploy dir is empty: codePath must be an absolute path inside the sandbox, not '%s'" % directory)
    try:
        is_empty = not os.listdir(directory)
    except (FileNotFoundError, NotADirectoryError):
        raise StartFailure("deploy dir is empty: %s does not exist; mount the code with target %s" % (directory, directory))
    except OSError:
        # The directory may be entered but not listed.
        is_empty = False
    if is_empty:
        raise StartFailure("deploy dir is empty: there is nothing in %s" % directory)
    if not os.path.exists(path):
        raise StartFailure("there is no program %s" % path)
    if not os.path.isfile(path) or os.stat(path).st_mode & 0o111 == 0:
        raise StartFailure("%s is not an executable file" % path)


def check_for_user(path, identity):
    """Raises StartFailure when the user may not execute the program. A child tests that as the user."""
    child = os.fork()
    if child == 0:
        code = 0
        try:
            os.setgroups(identity.groups)
            os.setresgid(identity.gid, identity.gid, identity.gid)
            os.setresuid(identity.uid, identity.uid, identity.uid)
            code = 0 if os.access(path, os.X_OK) else 1
        finally:
            os._exit(code)
    _pid, status = os.waitpid(child, 0)
    if status != 0:
        raise StartFailure(
            "%s (uid %d) may not execute %s: look at its mode and at those of the directories above it"
            % (identity.name, identity.uid, path)
        )
