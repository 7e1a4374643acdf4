"""Checks files, signed URLs and watching with the newest SDK: rulings A5 and A1.2."""

import json
import os
import urllib.error
import urllib.parse
import urllib.request
from datetime import datetime, timedelta, timezone

from checks import check, eventually, raises, run_checks
from e2b import (
    FileNotFoundException,
    FilesystemEventType,
    FileType,
    InvalidArgumentException,
    NotFoundException,
    Sandbox,
    SandboxException,
)

CREATE, WRITE, REMOVE = FilesystemEventType.CREATE, FilesystemEventType.WRITE, FilesystemEventType.REMOVE
RENAME, CHMOD = FilesystemEventType.RENAME, FilesystemEventType.CHMOD

sandbox = Sandbox.create(timeout=600)
files = sandbox.files
run = sandbox.commands.run


@check("A5.1 a written file is read back as text, bytes and stream")
def reads():
    info = files.write("hello.txt", "Grüße\n")
    assert (info.path, info.name, info.type) == ("/home/user/hello.txt", "hello.txt", FileType.FILE)
    assert files.read("hello.txt") == "Grüße\n"
    assert files.read("~/hello.txt", format="bytes") == "Grüße\n".encode()
    assert b"".join(files.read("/home/user/hello.txt", format="stream")) == "Grüße\n".encode()
    assert run("cat hello.txt").stdout == "Grüße\n"


@check("A5.1 a file of 20 MiB and an empty one pass both ways")
def sizes():
    big = os.urandom(1 << 20) * 20
    files.write("big", big)
    assert files.read("big", format="bytes") == big
    files.write("empty", "")
    assert files.read("empty") == ""
    assert files.get_info("empty").size == 0


@check("A5.1 uploads as octet-stream, gzip and from a stream give the same file")
def uploads():
    text = "line\n" * 10000
    files.write("octet", text, use_octet_stream=True)
    files.write("packed", text, gzip=True)
    files.write("packed-octet", text, gzip=True, use_octet_stream=True)
    files.write("streamed", iter([b"line\n"] * 10000))
    assert [files.read(name) == text for name in ("octet", "packed", "packed-octet", "streamed")] == [True] * 4
    assert files.read("octet", gzip=True) == text


@check("A5.1 an overwritten file keeps its inode and mode")
def in_place():
    files.write("place", "a long first text")
    run("chmod 700 place")
    before = run("stat -c '%i %a' place").stdout
    files.write("place", "short")
    assert run("stat -c '%i %a' place").stdout == before
    assert files.read("place") == "short"
    files.write("fresh", "x")
    assert run("stat -c %a fresh").stdout == "644\n"


@check("A5.1 missing parents are made for the user who writes")
def parents():
    files.write("one/two/three", "x")
    assert run("stat -c %U:%G:%a one one/two one/two/three").stdout.splitlines() == ["user:user:755"] * 2 + [
        "user:user:644"
    ]
    files.write("/opt/deep/er/file", "x", user="root")
    assert run("stat -c %U /opt/deep /opt/deep/er/file").stdout.splitlines() == ["root", "root"]


@check("A5.1 several files are written at once, with odd names")
def odd_names():
    names = ["d/1.txt", "%2e%2e", "it's", " leading", "a#b?c&d+e;f", "ünïcödé ✓", "d/.hidden"]
    written = files.write_files([{"path": "odd/" + name, "data": name} for name in names])
    assert [each.path for each in written] == ["/home/user/odd/" + name for name in names]
    # The client escapes quotes and backslashes in the names of several files.
    for name in ('quo"te', "back\\slash"):
        names.append(name)
        files.write("odd/" + name, name)
    for name in names:
        assert files.read("odd/" + name) == name
        assert files.exists("odd/" + name)
        files.write("odd/" + name, name + "!")
        assert files.read("odd/" + name) == name + "!"


@check("A5.1 files of /proc are read")
def proc():
    assert files.read("/proc/self/status").startswith("Name:")
    assert "Linux" in files.read("/proc/version")


@check("A5.1 metadata of a file is kept, and each upload replaces all of it")
def metadata():
    tags = {"kind": "report", "by": "me"}
    assert files.write("tagged", "x", metadata=tags).metadata == tags
    assert files.get_info("tagged").metadata == tags
    assert next(each for each in files.list("/home/user") if each.name == "tagged").metadata == tags
    files.write("tagged", "y")
    assert not files.get_info("tagged").metadata


@check("A5.1 a list is in byte order, depth first")
def lists():
    for path in ("tree/b/x", "tree/B", "tree/a/y/z", "tree/a.txt", "tree/ä"):
        files.write(path, "")
    assert [each.path for each in files.list("tree")] == [
        "/home/user/tree/" + name for name in ("B", "a", "a.txt", "b", "ä")
    ]
    assert [each.path[16:] for each in files.list("tree", depth=3)] == [
        *("B", "a", "a/y", "a/y/z", "a.txt", "b", "b/x", "ä")
    ]
    with raises(InvalidArgumentException):
        files.list("tree", depth=0)


@check("A5.1 the facts of an entry are right")
def facts():
    files.write("facts", "12345")
    run("chmod 640 facts")
    info = files.get_info("facts")
    assert (info.size, info.mode, info.permissions) == (5, 0o640, "-rw-r-----")
    assert (info.owner, info.group) == ("user", "user")
    assert abs(datetime.now(timezone.utc) - info.modified_time.astimezone(timezone.utc)) < timedelta(minutes=1)
    directory = files.get_info("/home/user")
    assert directory.type == FileType.DIR and directory.permissions.startswith("d")


@check("A5.2 a link shows its resolved target")
def links():
    files.write("aim/file", "through")
    run("ln -sfn aim/file link; ln -sfn link chain; ln -sfn aim dirlink")
    assert files.get_info("chain").symlink_target == "/home/user/aim/file"
    assert files.read("chain") == "through"
    assert [each.path for each in files.list("dirlink")] == ["/home/user/dirlink/file"]
    files.write("chain", "new")
    assert files.read("aim/file") == "new"
    files.remove("chain")
    assert files.exists("link") and not files.exists("chain")


@check("A5.3 what is missing is not found, and removing it succeeds")
def missing():
    with raises(FileNotFoundException):
        files.read("nothing")
    with raises(FileNotFoundException):
        files.get_info("nothing")
    with raises(FileNotFoundException):
        files.list("nothing")
    with raises(FileNotFoundException):
        files.rename("nothing", "something")
    with raises(NotFoundException):
        files.watch_dir("nothing")
    assert files.exists("nothing") is False
    files.remove("nothing")


@check("A5.3 a directory is not a file, and a file is not a directory")
def wrong_kinds():
    files.write("kind/file", "x")
    with raises(InvalidArgumentException):
        files.read("kind")
    with raises(InvalidArgumentException):
        files.write("kind", "x")
    with raises(InvalidArgumentException):
        files.list("kind/file")
    with raises(InvalidArgumentException):
        files.make_dir("kind/file")
    with raises(InvalidArgumentException):
        files.watch_dir("kind/file")


@check("A5.3 make_dir makes parents once")
def make_dir():
    assert files.make_dir("new/er/est") is True
    assert files.make_dir("new/er/est") is False
    assert run("stat -c %U:%a new/er/est").stdout == "user:755\n"
    files.write("new/er/est/file", "x")
    files.remove("new")
    assert not files.exists("new")


@check("A5.1 rename makes parents and replaces a file")
def rename():
    files.write("old", "1")
    files.write("target/is", "2")
    info = files.rename("old", "target/is")
    assert (info.path, files.read("target/is"), files.exists("old")) == ("/home/user/target/is", "1", False)
    assert files.rename("target/is", "far/away/now").name == "now"


@check("A3.2 user root reads and writes anywhere in the sandbox")
def as_root():
    files.write("/etc/by-root", "x", user="root")
    assert files.get_info("/etc/by-root").owner == "root"
    files.write("in-root-home", "y", user="root")
    assert files.read("/root/in-root-home", user="root") == "y"
    files.write("users", "z")
    files.write("/home/user/users", "zz", user="root")
    assert files.read("users") == "zz"


def fetch(url, method="GET", body=None, content_type="application/octet-stream"):
    """Returns the status and the body of a request without any credential."""
    request = urllib.request.Request(url, body, {"Content-Type": content_type}, method=method)
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def changed(url, **values):
    """Returns a URL with other values in its query."""
    parts = urllib.parse.urlsplit(url)
    query = {**dict(urllib.parse.parse_qsl(parts.query)), **values}
    return parts._replace(query=urllib.parse.urlencode(query)).geturl()


@check("A1.2 A5.4 signed URLs read and write without a credential")
def signed():
    files.write("a b.txt", "signed")
    assert fetch(sandbox.download_url("a b.txt")) == (200, b"signed")
    assert fetch(sandbox.download_url("a b.txt", user="root"))[0] == 404
    assert fetch(sandbox.download_url("/home/user/a b.txt", use_signature_expiration=60)) == (200, b"signed")
    form = b'--x\r\nContent-Disposition: form-data; name="file"; filename="any"\r\n\r\nuploaded\r\n--x--\r\n'
    status, _ = fetch(sandbox.upload_url("up.txt"), "POST", form, "multipart/form-data; boundary=x")
    assert (status, files.read("up.txt")) == (200, "uploaded")
    status, _ = fetch(sandbox.upload_url("up.txt"), "POST", b"octets")
    assert (status, files.read("up.txt")) == (200, "octets")


@check("A5.4 signatures that are wrong, expired or of another use are refused")
def wrong_signatures():
    files.write("secret", "x")
    url = sandbox.download_url("secret", use_signature_expiration=-10)
    status, body = fetch(url)
    assert (status, json.loads(body)) == (401, {"code": 401, "message": "signature is already expired"})
    later = str(int(datetime.now().timestamp()) + 1000)
    good = sandbox.download_url("secret")
    for wrong in (
        changed(url, signature_expiration=later),
        changed(good, signature="v1_" + "A" * 43),
        changed(good, path="hello.txt"),
        good.split("&signature")[0],
    ):
        assert fetch(wrong)[0] == 401
    assert fetch(good, "POST", b"y")[0] == 401
    assert files.read("secret") == "x"


def types(handle):
    return [(each.type, each.name) for each in handle.get_new_events()]


@check("A5.5 the write of a new file is exactly create, chmod, write, without waiting")
def watch_write():
    files.make_dir("watched")
    handle = files.watch_dir("watched")
    files.write("watched/new", "x")
    assert types(handle) == [(CREATE, "new"), (CHMOD, "new"), (WRITE, "new")]
    assert types(handle) == []
    handle.stop()
    with raises(SandboxException):
        handle.get_new_events()


@check("A5.5 rename, remove, chmod, make_dir and commands are seen, each watcher on its own")
def watch_changes():
    files.make_dir("changes")
    files.write("changes/a", "x")
    one, two = files.watch_dir("changes"), files.watch_dir("changes")
    files.rename("changes/a", "changes/b")
    assert types(one) == [(RENAME, "a"), (CREATE, "b")]
    run("chmod 600 changes/b")
    assert set(types(one)) == {(CHMOD, "b")}
    files.remove("changes/b")
    assert set(types(one)) == {(REMOVE, "b")}
    run("echo hi > changes/f")
    seen = types(one)
    assert seen[0] == (CREATE, "f") and set(seen) == {(CREATE, "f"), (WRITE, "f")}
    files.make_dir("changes/sub")
    assert types(one)[0] == (CREATE, "sub")
    files.write("changes/sub/below", "x")
    assert [name for _, name in types(one) if "below" in name] == []
    assert {(RENAME, "a"), (REMOVE, "b"), (CREATE, "f")} <= set(types(two))


@check("A5.5 a recursive watcher sees directories that are made later, two levels at once")
def watch_recursive():
    files.make_dir("deep/before")
    handle = files.watch_dir("deep", recursive=True)
    files.write("deep/before/x", "1")
    assert (CREATE, "before/x") in types(handle)
    run("mkdir -p deep/one/two")
    files.write("deep/one/two/y", "1")
    assert (CREATE, "one/two/y") in types(handle)


@check("A5.5 events carry the entry when asked, except for what is removed")
def watch_entries():
    files.make_dir("entries")
    handle = files.watch_dir("entries", include_entry=True)
    files.write("entries/x", "123")
    write = next(each for each in handle.get_new_events() if each.type == WRITE)
    assert write.entry.path == "/home/user/entries/x" and write.entry.size == 3
    files.remove("entries/x")
    assert [each.entry for each in handle.get_new_events() if each.type == REMOVE] == [None]


@check("A5.5 500 new files lose no event")
def watch_many():
    files.make_dir("many")
    handle = files.watch_dir("many")
    run("for i in $(seq 500); do echo $i > many/$i; done")
    created = set()

    def all_seen():
        created.update(name for kind, name in types(handle) if kind == CREATE)
        return len(created) == 500

    eventually(all_seen)


run_checks()
