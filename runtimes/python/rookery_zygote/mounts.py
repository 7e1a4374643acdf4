"""The mounts that a create asks for: sources opened and checked again, targets made inside the sandbox's own root."""

import os
import posixpath
import re
import stat

from . import syscalls
from .failure import StartFailure

_FORBIDDEN_TREES = ("/etc", "/proc", "/sys", "/dev", "/boot")
#: What users' own engines keep in their homes.
_USERS_ENGINES = re.compile(r"/(\.docker|\.local/share/(docker|containers|containerd))(/|$)")
_MOST_LINKS = 40
#: What is not only a directory of files: in these nothing may be mounted either.
_KERNEL_TREES = ("/proc", "/dev")
#: The part of it that is for whoever wants it.
_SHARED_MEMORY = "/dev/shm"


def refusal_of(resolved, mode, policy):
    """The rule of `src/core/host-path.ts` on what was opened: where it is, and what. None, or what stands behind the path in the refusal."""
    if (
        resolved == "/"
        or any(_is_within(resolved, tree) for tree in _FORBIDDEN_TREES)
        or "docker.sock" in resolved
        or _USERS_ENGINES.search(resolved)
        or any(_is_within(resolved, tree) or _is_within(tree, resolved) for tree in policy["closed"])
    ):
        return ""
    if policy["allow"] is not None and not any(_is_within(resolved, prefix) for prefix in policy["allow"]):
        return " (mounts.allow does not name it)"
    if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
        return " (it is neither a file nor a directory)"
    return None


def open_source(path, policy):
    """A descriptor of the source as it is now, checked: whatever happens to the path afterwards, this is what is mounted."""
    descriptor = open_path(path)
    resolved = os.readlink("/proc/self/fd/%d" % descriptor)
    refusal = refusal_of(resolved, os.fstat(descriptor).st_mode, policy)
    if refusal is None and not _is_at(descriptor, resolved):
        refusal = ""
    if refusal is not None:
        os.close(descriptor)
        raise StartFailure("unsafe mount source: %s%s" % (path, refusal))
    return descriptor


def _is_at(descriptor, path):
    """False for what has been removed, and for what a link reached through /proc in another mount namespace: its path there says nothing here."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except OSError:
        return False


def open_path(path):
    """A descriptor of a source that the platform chose itself."""
    if not path.startswith("/") or "\0" in path:
        raise StartFailure("mount source must be an absolute path: %s" % path)
    try:
        return os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        raise StartFailure("mount source does not exist: %s" % path)
    except OSError as error:
        raise StartFailure("mount source cannot be opened: %s: %s" % (path, error.strerror))


def mount_source(descriptor, target, readonly, root, needed=()):
    """Binds an opened source at `target` of the root at `root`, unless that hides one of the directories `needed`."""
    wants_directory = stat.S_ISDIR(os.fstat(descriptor).st_mode)
    normal = normalize_target(target)
    try:
        place = open_target(root, normal, wants_directory)
    except OSError as error:
        raise StartFailure("mount target cannot be made: %s: %s" % (target, error.strerror))
    try:
        check_target(os.readlink("/proc/self/fd/%d" % place)[len(os.path.realpath(root)) :], target, needed)
    except StartFailure:
        os.close(place)
        raise
    try:
        # The path through the descriptor, so that nothing can be swapped between the look and the mount.
        syscalls.bind("/proc/self/fd/%d" % descriptor, "/proc/self/fd/%d" % place)
    except OSError as error:
        raise StartFailure("mount failed: %s: %s" % (target, error.strerror))
    finally:
        os.close(place)
    # The descriptor names the place under the new mount: the mount itself has to be opened again.
    place = open_target(root, normal, wants_directory)
    try:
        syscalls.restrict_mount("/proc/self/fd/%d" % place, readonly)
    except OSError as error:
        raise StartFailure("mount cannot be restricted: %s: %s" % (target, error.strerror))
    finally:
        os.close(place)


def check_target(resolved, target, needed):
    """`resolved`: where `target` leads inside."""
    for path in needed:
        if _is_within(path, resolved):
            raise StartFailure("mount target %s hides %s, which the sandbox needs" % (target, path))
    for tree in _KERNEL_TREES:
        if tree in needed and _is_within(resolved, tree) and not _is_within(resolved, _SHARED_MEMORY):
            raise StartFailure("mount target %s is in %s, which the sandbox needs" % (target, tree))


def normalize_target(target):
    normal = posixpath.normpath("/" + target.lstrip("/"))
    if normal == "/" or "\0" in target:
        raise StartFailure("mount target must be a path below /: %s" % target)
    return normal


def open_target(root, target, wants_directory):
    """A descriptor of `target` inside `root`, made when it is missing. Links are followed as if `root` were /. Fails with OSError."""
    names = [name for name in target.split("/") if name]
    links = 0
    here = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    path = []
    try:
        while names:
            name = names.pop(0)
            last = not names
            following = _open_or_make(here, name, wants_directory if last else True)
            if stat.S_ISLNK(os.fstat(following).st_mode):
                link = os.readlink("", dir_fd=following)
                os.close(following)
                links += 1
                if links > _MOST_LINKS:
                    raise OSError(40, "too many symbolic links")
                names = _resolve_link(path, link) + names
                path = []
                os.close(here)
                here = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
                continue
            os.close(here)
            here = following
            path.append(name)
        if wants_directory != stat.S_ISDIR(os.fstat(here).st_mode):
            raise OSError(20, "it is not a directory" if wants_directory else "it is a directory")
    except BaseException:
        os.close(here)
        raise
    return here


def _open_or_make(directory, name, wants_directory):
    flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(name, flags, dir_fd=directory)
    except FileNotFoundError:
        pass
    if wants_directory:
        os.mkdir(name, 0o755, dir_fd=directory)
    else:
        os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o644, dir_fd=directory))
    return os.open(name, flags, dir_fd=directory)


def _resolve_link(path, link):
    """The names from the root on that a link found in the directory `path` stands for; `..` does not leave the root."""
    base = [] if link.startswith("/") else path
    normal = posixpath.normpath("/" + "/".join(base) + "/" + link.lstrip("/"))
    return [name for name in normal.split("/") if name]


def _is_within(path, tree):
    return path == tree or path.startswith(tree.rstrip("/") + "/")
