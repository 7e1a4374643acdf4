"""Gives a coding agent a sandbox: it edits files, runs tests, serves a page, and rests between turns."""

import os
import urllib.request

from e2b import CommandExitException, Sandbox

TEST = """
import unittest
from greeting import greet

class Greeting(unittest.TestCase):
    def test_names(self):
        self.assertEqual(greet("Ada"), "Hello, Ada!")
"""


def model(failure):
    """Stands in for a model. It corrects its program when it sees a failed test."""
    text = "'Hello, ' + name" if failure is None else "'Hello, ' + name + '!'"
    return f"def greet(name):\n    return {text}\n"


def work(sandbox):
    """Lets the model write the program until the test succeeds. Returns the number of turns."""
    failure = None
    for turn in range(1, 4):
        sandbox.files.write("project/greeting.py", model(failure))
        try:
            sandbox.commands.run("python3 -m unittest -q test_greeting", cwd="project", timeout=30)
            return turn
        except CommandExitException as error:
            failure = error.stderr
    raise SystemExit("the model did not make the test succeed")


sandbox = Sandbox.create(timeout=300, metadata={"user": "ada"})
try:
    sandbox.files.write("project/test_greeting.py", TEST)
    print("turns:", work(sandbox))
    server = sandbox.commands.run("python3 -m http.server 8000", cwd="project", background=True, timeout=0)
    # The user leaves: memory and processes are kept, and no processor time is used.
    sandbox.pause()
    sandbox = Sandbox.connect(sandbox.sandbox_id)
    print("after the pause:", [each.pid for each in sandbox.commands.list()] == [server.pid])
    page = urllib.request.Request(
        os.environ["E2B_SANDBOX_URL"] + "/greeting.py",
        headers={"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": "8000"},
    )
    print("served:", urllib.request.urlopen(page).read().decode().splitlines()[0])
finally:
    sandbox.kill()
