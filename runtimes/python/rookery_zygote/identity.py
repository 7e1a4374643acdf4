"""The user that runs the user's code."""

import grp
import os
import pwd

from .failure import StartFailure


class Identity:
    def __init__(self, name, uid, gid, groups, home):
        self.name = name
        self.uid = uid
        self.gid = gid
        self.groups = groups
        self.home = home


def find(user):
    """
    Returns the identity of `user`: a name or a number, with or without `:group`. Empty means root.

    Raises StartFailure.
    """
    name, _, group = user.partition(":")
    entry = _passwd(name or "root")
    if entry is not None:
        uid, gid, home, login = entry.pw_uid, entry.pw_gid, entry.pw_dir, entry.pw_name
    elif name == "":
        uid, gid, home, login = 0, 0, "/root", "root"
    elif name.isdigit() and int(name) < 2 ** 32 - 1:
        uid, gid, home, login = int(name), int(name), "/", name
    else:
        raise _missing("user", name)
    groups = _groups_of(login, gid) if entry is not None else [gid]
    if group:
        gid = _group_id(group)
        groups = [gid]
    return Identity(login, uid, gid, groups, home)


def _passwd(name):
    try:
        if name.isdigit():
            return pwd.getpwuid(int(name))
        return pwd.getpwnam(name)
    except (KeyError, OverflowError, ValueError):
        return None


def _groups_of(login, gid):
    try:
        return os.getgrouplist(login, gid)
    except OSError:
        return [gid]


def _group_id(group):
    try:
        return int(group) if group.isdigit() else grp.getgrnam(group).gr_gid
    except KeyError:
        raise _missing("group", group)


def _missing(kind, name):
    return StartFailure("%s %s does not exist in /etc/%s of this host" % (kind, name, "passwd" if kind == "user" else kind))
