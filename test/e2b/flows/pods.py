"""Checks sandboxes in pods of a cluster with the newest SDK."""

import os
import urllib.error
import urllib.request

from checks import check, raises, run_checks
from e2b import AuthenticationException, Sandbox, SandboxException


@check("commands and files work in a pod of the image of Rookery, with its one account")
def commands():
    with Sandbox.create(timeout=300, envs={"WORD": "kept"}) as sandbox:
        said = sandbox.commands.run("id -u; echo $HOME $WORD").stdout
        assert said == "10001\n/tmp kept\n", said
        sandbox.files.write("a/b.txt", "x")
        assert sandbox.commands.run("cat /tmp/a/b.txt", user="user").stdout == "x"
        with raises(AuthenticationException, text="no user root"):
            sandbox.commands.run("true", user="root")


def paused(sandbox):
    """Pauses with the API, because the SDK takes 409 for a sandbox that is paused already."""
    url = "%s/sandboxes/%s/pause" % (os.environ["E2B_API_URL"], sandbox.sandbox_id)
    headers = {"X-API-Key": os.environ["E2B_API_KEY"], "Content-Type": "application/json"}
    try:
        urllib.request.urlopen(urllib.request.Request(url, b"{}", headers, method="POST")).close()
        return True
    except urllib.error.HTTPError as error:
        assert b"sandboxes of type kubernetes cannot be paused" in error.read()
        return False


@check("forks and pauses of a sandbox in a pod are refused")
def lacking():
    with Sandbox.create(timeout=300) as sandbox:
        with raises(SandboxException, text="cannot be forked"):
            sandbox.fork()
        assert not paused(sandbox) and sandbox.is_running()
        assert sandbox.commands.run("echo here").stdout == "here\n"


run_checks()
