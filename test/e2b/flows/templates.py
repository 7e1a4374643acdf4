"""Checks templates that users build with the newest SDK."""

import json
import os
import tempfile
import urllib.request
import uuid
from contextlib import contextmanager

from checks import ask, check, raises, run_checks
from e2b import BuildException, InvalidArgumentException, Sandbox, SandboxException, Template, wait_for_file, wait_for_port


def name_of(word):
    return "%s-%s" % (word, uuid.uuid4().hex[:8])


@contextmanager
def made(template, **options):
    """Yields a new sandbox of a template and kills it afterwards."""
    sandbox = Sandbox.create(template, **{"timeout": 120, **options})
    try:
        yield sandbox
    finally:
        sandbox.kill()


@contextmanager
def context(**files):
    """Yields a directory with these files, as the context of a build."""
    with tempfile.TemporaryDirectory() as directory:
        for name, text in files.items():
            path = os.path.join(directory, name.replace("__", "/"))
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w") as file:
                file.write(text)
        yield directory


def base(**options):
    return Template(**options).from_base_image()


@check("a template has the files, variables, user and directory of its steps")
def builds():
    name = name_of("steps")
    template = (
        base()
        .run_cmd("echo made > made.txt; mkdir -p data; touch -d '2001-01-01 00:00:00 UTC' data/old")
        .run_cmd("mkdir -p /opt/tool; echo 'echo from the tool' > /opt/tool/run; chmod 755 /opt/tool/run", user="root")
        .run_cmd("echo changed > /etc/of-template; rm -f /home/user/gone", user="root")
        .set_envs({"COLOR": "blue", "PATH": "/opt/tool:$PATH"})
        .set_workdir("/home/user/work")
        .run_cmd("pwd > where.txt; echo $COLOR > color.txt; ln -s ../made.txt link")
    )
    said = []
    info = Template.build(template, name, cpu_count=1, memory_mb=256, on_build_logs=lambda entry: said.append(str(entry)))
    assert info.name == name and info.template_id and info.build_id
    assert any("[2/6] RUN mkdir -p /opt/tool" in text for text in said), said
    assert Template.exists(name) and Template.alias_exists(info.template_id)
    with made(name) as sandbox:
        assert sandbox.files.read("/home/user/made.txt") == "made\n"
        assert sandbox.files.read("work/where.txt") == "/home/user/work\n"
        run = sandbox.commands.run
        assert run("run; pwd; whoami; cat color.txt link; echo $COLOR").stdout == (
            "from the tool\n/home/user/work\nuser\nblue\nmade\nblue\n"
        )
        assert run("cat /etc/of-template; stat -c %Y ../data/old; stat -c '%U %a' /opt/tool/run").stdout == (
            "changed\n978307200\nroot 755\n"
        )
        assert run("stat -c %U /home/user /home/user/made.txt; whoami", user="root").stdout == "user\nuser\nroot\n"
        assert sandbox.get_info().name == name and sandbox.get_info().memory_mb == 256
        assert run("echo $E2B_TEMPLATE_ID").stdout == name + "\n"


@check("packages for Python that a step installs as root are importable by all users")
def packages():
    name = name_of("packages")
    install = 'd=$(python3 -m site --user-site); mkdir -p "$d"; echo "NAME = 1" > "$d/of_template.py"'
    Template.build(base().run_cmd(install, user="root"), name)
    with made(name) as sandbox:
        for user in ("user", "root"):
            run = sandbox.commands.run("python3 -c 'import of_template; print(of_template.NAME)'", user=user)
            assert run.stdout == "1\n"
        assert sandbox.commands.run('touch "$(python3 -m site --user-site)/more.py"').exit_code == 0


@check("variables of a create replace those of the template")
def variables():
    name = name_of("variables")
    Template.build(base().set_envs({"ONE": "1", "TWO": "2"}), name)
    with made(name, envs={"TWO": "second"}) as sandbox:
        assert sandbox.commands.run("echo $ONE $TWO").stdout == "1 second\n"


@check("files and directories are copied with owner and mode")
def copies():
    name = name_of("copies")
    files = {"a.txt": "a", "b.txt": "b", "dir__c.txt": "c", "dir__sub__.hidden": "h"}
    with context(**files) as directory:
        template = (
            base(file_context_path=directory)
            .copy("a.txt", "/home/user/one.txt")
            .copy("a.txt", "sub/", mode=0o600)
            .copy("dir", "/srv/dir", user="root")
            .copy("*.txt", "all/")
            .copy("a.txt", "/home/user/again.txt")
        )
        Template.build(template, name)
        Template.build(template, name)
    with made(name) as sandbox:
        run = sandbox.commands.run
        assert run("cat one.txt sub/a.txt all/a.txt all/b.txt again.txt").stdout == "aaaba"
        assert run("cat /srv/dir/c.txt /srv/dir/sub/.hidden").stdout == "ch"
        assert run("stat -c '%U %a' sub/a.txt one.txt /srv/dir/c.txt sub").stdout.splitlines() == [
            "user 600",
            "user 644",
            "root 644",
            "user 755",
        ]


@check("a template begins with another template, and the interpreter with its files")
def layered():
    first, second = name_of("first"), name_of("second")
    Template.build(base().set_envs({"FIRST": "1"}).run_cmd("echo 1 > 1.txt; rm -rf .cache"), first)
    Template.build(Template().from_template(first).run_cmd("cat 1.txt > 2.txt; echo $FIRST >> 2.txt"), second)
    with made(second) as sandbox:
        assert sandbox.commands.run("cat 2.txt 1.txt").stdout == "1\n1\n1\n"
    interpreter = name_of("interpreter")
    Template.build(Template().from_template("code-interpreter-v1").run_cmd("echo 7 > n"), interpreter)
    from e2b_code_interpreter import Sandbox as Interpreter

    sandbox = Interpreter.create(interpreter, timeout=120)
    try:
        assert sandbox.run_code("int(open('n').read()) * 6").text == "42"
    finally:
        sandbox.kill()


@check("the start command runs in each sandbox, which is ready when the ready command succeeds")
def starts():
    name = name_of("server")
    serve = "python3 -c \"import time; time.sleep(0.5)\"; echo $HOME > ready; exec python3 -m http.server 8123"
    Template.build(base().set_start_cmd(serve, wait_for_file("/home/user/ready")), name)
    with made(name) as sandbox:
        assert sandbox.files.read("ready") == "/home/user\n"
        assert any("http.server" in " ".join([each.cmd, *each.args]) for each in sandbox.commands.list())


@check("tags name builds of a template, and move from one to the other")
def tags():
    name = name_of("tagged")
    Template.build(base().run_cmd("echo 1 > version"), name + ":v1", tags=["stable"])
    Template.build(base().run_cmd("echo 2 > version"), name + ":v2", tags=["default"])
    for tag, version in ((":v1", "1"), (":stable", "1"), (":v2", "2"), ("", "2")):
        with made(name + tag) as sandbox:
            assert sandbox.files.read("version") == version + "\n", tag
    assert sorted(each.tag for each in Template.get_tags(name)) == ["default", "stable", "v1", "v2"]
    assigned = Template.assign_tags(name + ":v2", ["stable", "new"])
    assert assigned.tags == ["stable", "new"]
    with made(name + ":stable") as sandbox:
        assert sandbox.files.read("version") == "2\n"
    Template.remove_tags(name, "v1")
    with raises(SandboxException, text="there is no template"):
        Sandbox.create(name + ":v1")


@check("packages of the system that the host has need no installation")
def on_host():
    name = name_of("system")
    said = []
    template = base().apt_install(["bash", "coreutils"], no_install_recommends=True).run_cmd("bash -c 'echo done' > done")
    Template.build(template, name, on_build_logs=lambda entry: said.append(str(entry)))
    assert any("nothing to do, because /usr belongs to the host, which has bash, coreutils" in text for text in said), said
    with made(name) as sandbox:
        assert sandbox.files.read("done") == "done\n"


@check("a step that fails names itself and its output")
def fails():
    name = name_of("broken")
    with raises(BuildException, text="step 2 (RUN echo oh no >&2; exit 3) failed: the command exited with status 3: oh no"):
        Template.build(base().run_cmd("true").run_cmd("echo oh no >&2; exit 3"), name)
    assert not Template.exists(name)
    with raises(BuildException, text="packages of the system cannot be installed"):
        Template.build(base().apt_install("a-package-that-no-host-has"), name)
    with raises(BuildException, text="install them on the host (missing there: no-host-has-this)"):
        Template.build(base().apt_install(["bash", "no-host-has-this"]), name)
    with raises(BuildException, text="the start command exited with status 4"):
        Template.build(base().set_start_cmd("exit 4", wait_for_port(8124)), name)
    with raises(BuildException, text="step 1 (USER nobody-knows) failed"):
        Template.build(base().set_user("nobody-knows"), name)


@check("images and names that cannot be templates are refused with the reason")
def refusals():
    with raises(BuildException, text="the image python:3.12 needs a Docker daemon"):
        Template.build(Template().from_python_image("3.12"), name_of("image"))
    with raises(BuildException, text="there is no template"):
        Template.build(Template().from_template(name_of("missing")), name_of("orphan"))
    with raises(BuildException, text="invalid template name"):
        Template.build(base(), "no blanks please")
    with raises(BuildException, text="belongs to the service"):
        Template.build(base(), "base")


@check("a build runs in the background, and its status has the log")
def background():
    info = Template.build_in_background(base().run_cmd("echo line"), name_of("background"))
    offset, texts = 0, []
    while True:
        status = Template.get_build_status(info, logs_offset=offset)
        offset += len(status.log_entries)
        texts += [entry.message for entry in status.log_entries]
        if status.status.value not in ("building", "waiting") and not status.log_entries:
            break
    assert status.status.value == "ready", status
    assert "line" in texts, texts


@check("a snapshot has the files of a sandbox, and sandboxes begin with it")
def snapshots():
    with made("base", envs={"OF": "first"}) as sandbox:
        sandbox.files.write("kept/file", "of the first")
        sandbox.commands.run("echo root > /opt/file", user="root")
        with raises(SandboxException, text="snapshots of the memory are not supported"):
            sandbox.create_snapshot()
        plain = sandbox.create_snapshot(mode="filesystem")
        named = sandbox.create_snapshot(name_of("named"), mode="filesystem")
        sandbox.files.write("kept/file", "later")
        assert plain.names == [] and len(named.names) == 1, (plain, named)
        listed = [each.snapshot_id for each in sandbox.list_snapshots().next_items()]
        assert sorted(listed) == sorted([plain.snapshot_id, named.snapshot_id])
        pages = sandbox.list_snapshots(limit=1)
        assert [pages.next_items()[0].snapshot_id, pages.next_items()[0].snapshot_id] == listed
        assert not pages.has_next
    for snapshot in (plain.snapshot_id, named.snapshot_id, named.names[0]):
        with made(snapshot) as copy:
            run = copy.commands.run
            assert run("cat kept/file /opt/file; echo $OF; ls /etc/passwd").stdout == "of the firstroot\nfirst\n/etc/passwd\n"
            assert run("stat -c '%U %a' kept kept/file /home/user /tmp").stdout == "user 755\nuser 644\nuser 755\nroot 1777\n"
    assert Sandbox.delete_snapshot(plain.snapshot_id) is True
    assert Sandbox.delete_snapshot(plain.snapshot_id) is False
    with raises(SandboxException, text="there is no template"):
        Sandbox.create(plain.snapshot_id)


@check("forks have the files, variables and metadata of a sandbox without processes")
def forks():
    name = name_of("forked")
    started = "test -e /home/user/ends || echo start >> /home/user/starts"
    Template.build(base().set_workdir("/home/user/work").set_start_cmd(started, wait_for_file("/home/user/starts")), name)
    with made(name, envs={"OF": "first"}, metadata={"of": "first"}) as sandbox:
        sandbox.files.write("kept/file", "of the first")
        sandbox.commands.run("echo root > /opt/file", user="root")
        forks = sandbox.fork(timeout=90, count=3)
        try:
            assert len({each.sandbox_id for each in forks} | {sandbox.sandbox_id}) == 4, forks
            sandbox.files.write("kept/file", "later")
            for fork in forks:
                said = fork.commands.run("pwd; cat ~/kept/file /opt/file ~/starts; echo $OF").stdout
                assert said == "/home/user/work\nof the firstroot\nstart\nfirst\n", said
                info = fork.get_info()
                assert (info.name, info.metadata) == (name, {"of": "first"})
                assert 80 < (info.end_at - info.started_at).total_seconds() < 100
            forks[0].files.write("kept/file", "of a fork")
            assert forks[1].files.read("kept/file") == "of the first"
            (second,) = forks[0].fork()
            forks.append(second)
            assert second.files.read("kept/file") == "of a fork"
        finally:
            for fork in forks:
                fork.kill()


@check("a fork with running processes is refused with a process and what to use instead")
def fork_of_memory():
    with made("base") as sandbox:
        handle = sandbox.commands.run("sleep 1234", background=True)
        for text in ("copies files, not memory", "sleep 1234", 'create_snapshot(mode="filesystem")'):
            with raises(SandboxException, text=text):
                sandbox.fork()
        sandbox.files.write("kept", "of the first")
        url = "%s/sandboxes/%s/fork" % (os.environ["E2B_API_URL"], sandbox.sandbox_id)
        headers = {"X-API-Key": os.environ["E2B_API_KEY"], "Content-Type": "application/json"}
        request = urllib.request.Request(url, b'{"memory": false}', headers, method="POST")
        with urllib.request.urlopen(request) as answer:
            (entry,) = json.load(answer)
        fork = Sandbox.connect(entry["sandbox"]["sandboxID"])
        assert fork.files.read("kept") == "of the first"
        fork.kill()
        handle.kill()
        sandbox.commands.run("setsid sleep 1235 > /dev/null 2>&1 &")
        with raises(SandboxException, text="sleep 1235"):
            sandbox.fork()
        sandbox.commands.run("pkill sleep; while pgrep sleep > /dev/null; do :; done")
        (fork,) = sandbox.fork()
        fork.kill()
    from e2b_code_interpreter import Sandbox as Interpreter

    sandbox = Interpreter.create(timeout=120)
    try:
        sandbox.files.write("n", "7")
        (fork,) = sandbox.fork()
        assert fork.run_code("int(open('n').read()) * 6").text == "42"
        fork.kill()
        sandbox.run_code("x = 1")
        with raises(SandboxException, text="python3"):
            sandbox.fork()
    finally:
        sandbox.kill()


@check("what needs the memory of another sandbox or rules of the network is refused with the reason")
def lacking():
    with made("base") as sandbox:
        with raises(SandboxException, text="501: changes of the network of sandboxes are not supported"):
            sandbox.update_network({"deny_out": ["0.0.0.0/0"]})
        with raises(SandboxException, text="memory: false is not supported"):
            sandbox.pause(mode="filesystem")
        assert sandbox.is_running()
    with raises(SandboxException, text="network.denyOut is not supported"):
        Sandbox.create(network={"deny_out": ["0.0.0.0/0"]})
    with raises(SandboxException, text="allow_internet_access: false is not supported"):
        Sandbox.create(allow_internet_access=False)


@check("templates and their sandboxes survive a crash of the service")
def survives():
    name = name_of("kept")
    Template.build(base().run_cmd("echo kept > file").set_user("root").set_workdir("/srv"), name)
    with made(name) as sandbox:
        assert ask("kill -9 and start") == "done"
        assert sandbox.commands.run("whoami; pwd; cat /home/user/file").stdout == "root\n/srv\nkept\n"
        with made(name) as other:
            assert other.files.read("/home/user/file") == "kept\n"


run_checks()
