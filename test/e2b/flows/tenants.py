"""Checks keys of two tenants on a service with authentication: rulings A1.4, A1.5, A1.8, A1.9."""

import os
import urllib.error
import urllib.request

from checks import check, eventually, raises, run_checks
from e2b import AuthenticationException, BuildException, Sandbox, SandboxException, SandboxNotFoundException, Template

ONE, SECOND_OF_ONE, OTHER = os.environ["KEYS"].split()
INSIDE = os.environ["E2B_SANDBOX_URL"]


def fetch(path, method="GET", base=INSIDE, **headers):
    """Returns the status of a request with headers; `_` stands for `-` in their names."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(base + path, b"{}" if method == "POST" else None, named, method=method)
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


@check("A1.4 two keys of a tenant both work, and a key of another or a changed one does not")
def keys():
    assert ONE != SECOND_OF_ONE
    sandbox = Sandbox.create(timeout=60, api_key=ONE)
    assert Sandbox.connect(sandbox.sandbox_id, api_key=SECOND_OF_ONE).commands.run("echo hi").stdout == "hi\n"
    changed = ONE[:-1] + ("0" if ONE[-1] != "0" else "1")
    with raises(AuthenticationException):
        Sandbox.create(api_key=changed)
    assert sandbox.kill(api_key=ONE) is True


@check("A1.9 a sandbox of another tenant is not found and not listed")
def tenants():
    sandbox = Sandbox.create(timeout=60, api_key=ONE)
    with raises(SandboxNotFoundException):
        Sandbox.connect(sandbox.sandbox_id, api_key=OTHER)
    with raises(SandboxNotFoundException):
        Sandbox.get_info(sandbox.sandbox_id, api_key=OTHER)
    for change in (Sandbox.fork, Sandbox.pause, lambda each, **key: Sandbox.create_snapshot(each, mode="filesystem", **key)):
        with raises(SandboxNotFoundException):
            change(sandbox.sandbox_id, api_key=OTHER)
    with raises(SandboxNotFoundException):
        Sandbox.set_timeout(sandbox.sandbox_id, 1, api_key=OTHER)
    assert Sandbox.kill(sandbox.sandbox_id, api_key=OTHER) is False
    assert sandbox.sandbox_id not in [each.sandbox_id for each in Sandbox.list(api_key=OTHER).next_items()]
    assert sandbox.sandbox_id in [each.sandbox_id for each in Sandbox.list(api_key=ONE).next_items()]
    assert sandbox.kill(api_key=ONE) is True


@check("A1.5 only the own access token opens a sandbox")
def tokens():
    sandbox, other = Sandbox.create(timeout=60, api_key=ONE), Sandbox.create(timeout=60, api_key=ONE)
    token = sandbox.connection_config.sandbox_headers["X-Access-Token"]
    foreign = other.connection_config.sandbox_headers["X-Access-Token"]
    route = {"E2b_Sandbox_Id": sandbox.sandbox_id, "E2b_Sandbox_Port": "49983", "Content_Type": "application/json"}
    list_ = ("/process.Process/List", "POST")
    assert fetch(*list_, **route, X_Access_Token=token) == 200
    bearer = {"Authorization": "Bearer " + os.environ["JWT"]}
    for wrong in ({}, {"X_API_Key": ONE}, {"X_Access_Token": foreign}, bearer):
        assert fetch(*list_, **route, **wrong) in (401, 403)
        assert fetch("/files?path=/etc/passwd", **route, **wrong) in (401, 403)
        assert fetch("/envs", **route, **wrong) in (401, 403)
        assert fetch("/metrics", **route, **wrong) in (401, 403)
    assert fetch("/health", **route) == 204
    sandbox.kill(api_key=ONE)
    other.kill(api_key=ONE)


@check("A1.2 A1.3 signed URLs and host names open no sandbox of another tenant")
def addresses():
    sandbox, foreign = Sandbox.create(timeout=60, api_key=ONE), Sandbox.create(timeout=60, api_key=OTHER)
    sandbox.files.write("secret", "of the first")
    frontend = INSIDE[: -len("/e2b/sandbox")]

    def path(url):
        return url.partition(frontend)[2] or url

    assert fetch(path(sandbox.download_url("secret")), base=frontend) == 200
    assert fetch(path(foreign.download_url("secret")), base=frontend) == 404
    forged = path(foreign.download_url("secret")).replace("path=secret", "path=%2Fhome%2Fuser%2Fsecret")
    assert fetch(forged, base=frontend) == 401
    token = foreign.connection_config.sandbox_headers["X-Access-Token"]
    host = "49983-%s.sandbox.test" % sandbox.sandbox_id
    assert fetch("/files?path=secret", base=frontend, Host=host, X_Access_Token=token) == 401
    own = sandbox.connection_config.sandbox_headers["X-Access-Token"]
    assert fetch("/files?path=secret", base=frontend, Host=host, X_Access_Token=own) == 200
    guessed = ("0" if sandbox.sandbox_id[0] != "0" else "1") + sandbox.sandbox_id[1:]
    assert fetch("/files?path=secret", base=frontend, Host=host.replace(sandbox.sandbox_id, guessed), X_Access_Token=own) == 502
    sandbox.kill(api_key=ONE)
    foreign.kill(api_key=OTHER)


@check("A1.5 a key opens nothing outside of the E2B routes")
def outside():
    frontend = INSIDE[: -len("/e2b/sandbox")]
    assert fetch("/api/agents", base=frontend, X_API_Key=ONE) in (401, 403, 404)
    assert fetch("/api/agent", base=frontend, X_API_Key=ONE) in (401, 403, 404)


@check("a template of another tenant does not exist, and only signed URLs take uploads")
def templates():
    template = Template().from_base_image().run_cmd("echo 1 > 1.txt")
    built = Template.build(template, "of-one", api_key=ONE)
    for name in ("of-one", built.template_id):
        assert Template.exists(name, api_key=ONE) and not Template.exists(name, api_key=OTHER)
        with raises(SandboxException, text="there is no template"):
            Sandbox.create(name, api_key=OTHER)
        with raises(BuildException, text="there is no template"):
            Template.build(Template().from_template(name), "of-other", api_key=OTHER)
        assert Sandbox.delete_snapshot(name, api_key=OTHER) is False
    with raises(BuildException, text="404"):
        Template.get_build_status(built, api_key=OTHER)
    api = os.environ["E2B_API_URL"]
    with raises(urllib.error.HTTPError, text="401"):
        url = "/template-files/%s?tenant=acme&until=9999999999999&signature=%s" % ("a" * 64, "b" * 64)
        urllib.request.urlopen(urllib.request.Request(api + url, b"x", method="PUT"))
    Sandbox.create("of-one", timeout=60, api_key=SECOND_OF_ONE).kill(api_key=ONE)


@check("A1.8 ports of a sandbox are public")
def ports():
    sandbox = Sandbox.create(timeout=60, api_key=ONE)
    sandbox.commands.run("python3 -m http.server 8000", background=True, timeout=0)
    route = {"E2b_Sandbox_Id": sandbox.sandbox_id, "E2b_Sandbox_Port": "8000"}
    eventually(lambda: fetch("/", **route) == 200)
    sandbox.kill(api_key=ONE)
    assert fetch("/", **route) == 502


@check("A1.2 signed URLs work with authentication on")
def signed():
    sandbox = Sandbox.create(timeout=60, api_key=ONE)
    sandbox.files.write("f", "x")
    assert fetch("", base=sandbox.download_url("f")) == 200
    sandbox.kill(api_key=ONE)


run_checks()
