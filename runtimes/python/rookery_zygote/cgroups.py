"""Control groups, version 1 and 2: the location of Rookery's groups, the group of each sandbox, OOM kills."""

import os

CONTROLLERS = ("memory", "cpu", "pids")
#: Name of Rookery's subtree. The groups of sandboxes are its children.
SUBTREE = "rookery"


class Place:
    """The parent directory of all groups of a single controller."""

    def __init__(self, version, parent):
        self.version = version
        self.parent = parent

    def path(self, name):
        return os.path.join(self.parent, name)


def find_places(own="/proc/self/cgroup", mounts="/proc/self/mountinfo"):
    """
    Returns `{controller: Place}` of the writable controllers, and creates Rookery's subtree.

    Never fails: controllers that do not work are left out.
    """
    memberships = _read_memberships(own)
    places = {}
    for mount_point, root, kind, options in _cgroup_mounts(mounts):
        if kind == "cgroup":
            for controller in CONTROLLERS:
                if controller in options and controller not in places:
                    inside = _inside(memberships.get(controller, "/"), root)
                    parent = os.path.join(mount_point, inside, SUBTREE)
                    if _make(parent):
                        places[controller] = Place(1, parent)
        else:
            own_group = os.path.join(mount_point, _inside(memberships.get("", "/"), root))
            for group in (own_group, mount_point):
                found = _enable_unified(group)
                for controller in found:
                    places.setdefault(controller, Place(2, os.path.join(group, SUBTREE)))
                if found:
                    break
    return places


def _read_memberships(path):
    found = {}
    try:
        with open(path) as table:
            for line in table:
                _number, controllers, group = line.rstrip("\n").split(":", 2)
                for controller in controllers.split(","):
                    found[controller] = group
    except OSError:
        pass
    return found


def _cgroup_mounts(path):
    found = []
    try:
        with open(path) as table:
            for line in table:
                left, _, right = line.partition(" - ")
                fields = left.split()
                kind, _source, options = right.split()[:3]
                if kind in ("cgroup", "cgroup2"):
                    found.append((fields[4], fields[3], kind, options.split(",")))
    except (OSError, ValueError, IndexError):
        pass
    return found


def _inside(group, root):
    """Returns `group` as a path below a mount that shows the hierarchy from `root` on."""
    if root != "/" and (group == root or group.startswith(root + "/")):
        group = group[len(root) :]
    return "" if group.startswith("/..") else group.strip("/")


def _make(path):
    try:
        os.makedirs(path, exist_ok=True)
    except OSError:
        return False
    return os.access(path, os.W_OK)


def _enable_unified(group):
    """Enables the controllers for children of `group`/rookery. Returns the names of the enabled ones."""
    try:
        with open(os.path.join(group, "cgroup.controllers")) as source:
            available = source.read().split()
    except OSError:
        return []
    subtree = os.path.join(group, SUBTREE)
    wanted = [name for name in CONTROLLERS if name in available and _turn_on(group, name)]
    if not wanted or not _make(subtree):
        return []
    return [name for name in wanted if _turn_on(subtree, name)]


def _turn_on(group, controller):
    path = os.path.join(group, "cgroup.subtree_control")
    try:
        with open(path) as source:
            if controller in source.read().split():
                return True
        _write(path, "+" + controller)
    except OSError:
        return False
    return True


def paths_of(places, name):
    """Returns `{controller: directory}` of the groups called `name`."""
    return {controller: place.path(name) for controller, place in places.items()}


def read_oom_kills(descriptor):
    if descriptor is None:
        return 0
    try:
        text = os.pread(descriptor, 4096, 0).decode()
    except OSError:
        return 0
    for line in text.splitlines():
        fields = line.split()
        if len(fields) == 2 and fields[0] == "oom_kill":
            return int(fields[1])
    return 0


def remove(paths):
    """Removes the groups. Returns True when none is left; a group that still has a process stays."""
    gone = True
    for path in set(paths):
        try:
            os.rmdir(path)
        except OSError:
            gone = gone and not os.path.exists(path)
    return gone


def remove_subtrees(places):
    """Removes Rookery's subtree if it contains no sandbox."""
    remove(place.parent for place in places.values())


def _write(path, text):
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
