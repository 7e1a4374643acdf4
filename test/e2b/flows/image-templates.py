"""Checks templates that users build from images of a Docker daemon with the newest SDK.

The environment has the names of two images, one of Debian with Python and one without Bash.
"""

import os
import subprocess
import tempfile
import urllib.request
import uuid
from contextlib import contextmanager

from checks import ask, check, eventually, raises, run_checks
from e2b import BuildException, Sandbox, SandboxException, Template, wait_for_file, wait_for_port

DEBIAN, PLAIN = os.environ["DEBIAN_IMAGE"], os.environ["PLAIN_IMAGE"]


def name_of(word):
    return "%s-%s" % (word, uuid.uuid4().hex[:8])


def docker(*args):
    done = subprocess.run(["docker", *args], stdout=subprocess.PIPE, check=True)
    return done.stdout.decode().split()


def images():
    """Returns the ids of all images of templates."""
    return set(docker("images", "--quiet", "--no-trunc", "--filter", "label=rookery.template.build"))


def images_of(build_id):
    return docker("images", "--quiet", "--no-trunc", "--filter", "label=rookery.template.build=" + build_id)


def containers():
    return set(docker("ps", "--all", "--quiet"))


def delete(name):
    url = "%s/templates/%s" % (os.environ["E2B_API_URL"], name)
    request = urllib.request.Request(url, headers={"X-API-Key": os.environ["E2B_API_KEY"]}, method="DELETE")
    with urllib.request.urlopen(request) as answer:
        return answer.status


@contextmanager
def made(template, **options):
    """Yields a new sandbox of a template and kills it afterwards."""
    sandbox = Sandbox.create(template, **{"timeout": 120, **options})
    try:
        yield sandbox
    finally:
        sandbox.kill()


def debian(**options):
    return Template(**options).from_image(DEBIAN)


@check("a template of an image has the files, variables, user and directory of its steps")
def builds():
    name, said = name_of("steps"), []
    with tempfile.TemporaryDirectory() as directory:
        for file, text in (("a.txt", "a"), ("dir/c.txt", "c"), ("dir/.hidden", "h")):
            os.makedirs(os.path.dirname(os.path.join(directory, file)), exist_ok=True)
            with open(os.path.join(directory, file), "w") as out:
                out.write(text)
        template = (
            debian(file_context_path=directory)
            .run_cmd("echo 'echo from the tool' > /usr/local/bin/tool; chmod 755 /usr/local/bin/tool; rm /etc/issue", user="root")
            .run_cmd("echo made > made.txt; sleep 1000 > /dev/null 2>&1 &")
            .copy("a.txt", "sub/", mode=0o600)
            .copy("dir", "/srv/dir", user="root")
            .set_envs({"COLOR": "blue", "PATH": "/opt/tool:$PATH", "WHERE": "$HOME/x"})
            .set_workdir("/home/user/work")
            .run_cmd("pwd > where.txt; whoami > who.txt; echo $COLOR > color.txt")
            .set_user("root")
        )
        info = Template.build(template, name, cpu_count=1, memory_mb=256, on_build_logs=lambda entry: said.append(str(entry)))
    assert any("begins with the image " + DEBIAN in text for text in said), said
    assert len(images_of(info.build_id)) == 1
    with made(name) as sandbox:
        run = sandbox.commands.run
        assert run("whoami; pwd; tool; cat where.txt who.txt color.txt").stdout == (
            "root\n/home/user/work\nfrom the tool\n/home/user/work\nuser\nblue\n"
        )
        assert run("cat ../made.txt ../sub/a.txt /srv/dir/c.txt /srv/dir/.hidden; echo $WHERE").stdout == "made\nach/home/user/x\n"
        assert run("stat -c '%U %a' ../sub/a.txt /srv/dir/c.txt ../made.txt").stdout == "user 600\nroot 644\nuser 644\n"
        assert run("ls /etc/issue /opt/rookery/upload/* 2>/dev/null; echo $PATH").stdout.split(":")[-1].endswith("/bin\n")
        assert run("whoami; sudo whoami", user="user").stdout == "user\nuser\n"
        assert "sleep 1000" not in [" ".join([each.cmd, *each.args]) for each in sandbox.commands.list()]
        assert sandbox.files.read("/home/user/work/where.txt") == "/home/user/work\n"
        info = sandbox.get_info()
        assert (info.name, info.memory_mb) == (name, 256)
        assert run("echo $E2B_TEMPLATE_ID").stdout == name + "\n"
        with made(name, envs={"COLOR": "red"}) as other:
            assert other.commands.run("echo $COLOR; echo own > file").stdout == "red\n"
            assert not sandbox.files.exists("/home/user/work/file")


@check("a Dockerfile is built, and its command starts in each sandbox")
def dockerfile():
    name = name_of("dockerfile")
    text = "FROM %s\nENV WORD=hello\nWORKDIR /srv/app\nRUN echo $WORD > index.html\nUSER user\n"
    text += 'CMD ["python3", "-m", "http.server", "8124"]\n'
    with tempfile.TemporaryDirectory() as directory:
        template = Template(file_context_path=directory).from_dockerfile(text % DEBIAN)
        Template.build(template.set_start_cmd("python3 -m http.server 8124", wait_for_http()), name)
    with made(name) as sandbox:
        headers = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": "8124"}
        request = urllib.request.Request(os.environ["E2B_SANDBOX_URL"] + "/", headers=headers)
        with urllib.request.urlopen(request) as answer:
            assert answer.read() == b"hello\n"
        assert sandbox.commands.run("whoami; pwd; echo $WORD").stdout == "user\n/srv/app\nhello\n"


def wait_for_http():
    """Returns a ready command, because the image has neither curl nor ss."""
    return "python3 -c \"import socket; socket.create_connection(('127.0.0.1', 8124))\""


@check("the account of a Dockerfile may be a number or have a group")
def accounts():
    name = name_of("accounts")
    text = "FROM %s\nUSER 1000\nRUN whoami > /tmp/first\nUSER root:root\nRUN whoami > /tmp/second\nUSER 1000:1000\n"
    Template.build(Template().from_dockerfile(text % DEBIAN), name)
    with made(name) as sandbox:
        assert sandbox.commands.run("cat /tmp/first /tmp/second; whoami").stdout == "worker\nroot\nworker\n"


@check("the start command runs in each sandbox, and its files are not part of the template")
def starts():
    name = name_of("start")
    start = "echo $$ >> /home/user/starts; exec sleep 1000"
    Template.build(debian().set_start_cmd(start, wait_for_file("/home/user/starts")), name)
    with made(name) as sandbox:
        assert len(sandbox.files.read("starts").splitlines()) == 1
        assert any("sleep" in " ".join([each.cmd, *each.args]) for each in sandbox.commands.list())


@check("an image without Bash runs steps with its own shell")
def plain():
    name = name_of("plain")
    Template.build(Template().from_image(PLAIN).run_cmd("echo 1 > one").set_workdir("/srv/x").set_envs({"A": "$HOME"}), name)
    with made(name) as sandbox:
        assert sandbox.commands.run("pwd; cat /home/user/one; echo $A").stdout == "/srv/x\n1\n/home/user\n"


@check("a template that begins with a template of an image survives the deletion of that one")
def layered():
    first, second = name_of("first"), name_of("second")
    info = Template.build(debian().set_envs({"FIRST": "1"}).run_cmd("echo 1 > 1.txt").set_workdir("/home/user/w"), first)
    other = Template.build(Template().from_template(first).run_cmd("echo $FIRST > 2.txt"), second)
    assert delete(first) == 204
    eventually(lambda: not Template.exists(first))
    with made(second) as sandbox:
        assert sandbox.commands.run("pwd; cat 2.txt ../1.txt; echo $FIRST").stdout == "/home/user/w\n1\n1\n1\n"
    assert delete(second) == 204
    eventually(lambda: images_of(info.build_id) + images_of(other.build_id) == [], seconds=90)


@check("a rebuild, a removed tag and a deleted template remove images that no sandbox uses")
def removes():
    name = name_of("removed")
    first = Template.build(debian().run_cmd("echo 1 > version"), name)
    with made(name) as sandbox:
        second = Template.build(debian().run_cmd("echo 2 > version"), name, tags=["default", "old"])
        with made(name) as other:
            assert other.files.read("version") == "2\n"
        assert sandbox.files.read("version") == "1\n" and images_of(first.build_id)
    eventually(lambda: images_of(first.build_id) == [], seconds=90)
    third = Template.build(debian().run_cmd("echo 3 > version"), name)
    assert images_of(second.build_id) and images_of(third.build_id)
    Template.remove_tags(name, "old")
    eventually(lambda: images_of(second.build_id) == [])
    assert images_of(third.build_id)
    assert delete(name) == 204
    eventually(lambda: images_of(third.build_id) == [])


@check("a build that fails leaves neither an image nor a container")
def fails():
    before = containers()
    known = images()
    with raises(BuildException, text="step 1 (RUN echo oh no >&2; exit 3) failed: the command exited with status 3: oh no"):
        Template.build(debian().run_cmd("echo oh no >&2; exit 3"), name_of("broken"))
    with raises(BuildException, text="the start command exited with status 4"):
        Template.build(debian().set_start_cmd("exit 4", wait_for_port(8124)), name_of("broken"))
    with raises(BuildException, text="apt-get"):
        Template.build(debian().run_cmd("apt-get install -y no-such-package-x", user="root"), name_of("broken"))
    eventually(lambda: containers() <= before and images() <= known)


@check("an image that the daemon lacks, and credentials, are refused with the command that helps")
def refusals():
    with raises(BuildException, text="run there: docker pull python:3.1-no-such"):
        Template.build(Template().from_python_image("3.1-no-such"), name_of("image"))
    with raises(BuildException, text="docker pull node:no-such"):
        Template.build(Template().from_node_image("no-such"), name_of("image"))
    with raises(BuildException, text="use from_image() without credentials"):
        Template.build(Template().from_image(DEBIAN, username="a", password="b"), name_of("image"))


@check("an image of a template is unknown by its name and by its id")
def names():
    name = name_of("hidden")
    info = Template.build(debian(), name)
    (reference,) = docker("images", "--format", "{{.Repository}}:{{.Tag}}", "--filter", "label=rookery.template.build=" + info.build_id)
    (image_id,) = images_of(info.build_id)
    for sent in (reference, image_id, image_id[7:], image_id[7:19]):
        with raises(SandboxException, text="there is no template and no image"):
            Sandbox.create(sent)
        with raises(BuildException, text="is not on the machine of the service"):
            Template.build(Template().from_image(sent), name_of("thief"))
    assert delete(name) == 204


@check("a template of an image survives a killed service, and an interrupted build leaves nothing")
def survives():
    name = name_of("kept")
    info = Template.build(debian().run_cmd("echo kept > file"), name)
    with made(name) as sandbox:
        before = containers()
        interrupted = Template.build_in_background(debian().run_cmd("echo begun; sleep 1000"), name_of("interrupted"))
        eventually(lambda: any(each.message == "begun" for each in Template.get_build_status(interrupted).log_entries))
        assert containers() - before
        assert ask("kill -9 and start") == "done"
        assert sandbox.files.read("file") == "kept\n"
        eventually(lambda: containers() <= before, seconds=90)
        status = Template.get_build_status(interrupted)
        assert (status.status.value, status.reason.message) == ("error", "the build was interrupted: the service was restarted")
        assert images_of(interrupted.build_id) == [] and images_of(info.build_id)
        with made(name) as other:
            assert other.files.read("file") == "kept\n"


run_checks()
