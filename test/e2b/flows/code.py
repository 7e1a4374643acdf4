"""Checks the code interpreter with the newest SDK: ruling A6."""

import base64
import threading

from checks import check, eventually, raises, run_checks
from e2b import NotFoundException, SandboxException, TimeoutException
from e2b_code_interpreter import Sandbox

sandbox = Sandbox.create(timeout=600, envs={"WORD": "create"})
run = sandbox.run_code


@check("A2.1 A6.5 the default template is code-interpreter-v1, whose server is healthy")
def template():
    assert sandbox.get_info().name == "code-interpreter-v1"
    program = "import urllib.request as r; assert r.urlopen(\"http://127.0.0.1:49999/health\").status == 200"
    # The interpreter opens its port after the create has been answered.
    command = "until python3 -c '%s' 2>/dev/null; do sleep 0.05; done" % program
    sandbox.commands.run(command, timeout=30)


@check("A6.1 names are kept between cells, and the last expression is the result")
def keeps():
    assert run("x = 41").results == []
    execution = run("x += 1\nx")
    assert execution.text == "42" and execution.results[0].is_main_result
    assert run("'quoted'").text == "quoted"
    assert run("_ = 5").text is None


@check("A6.1 output is streamed as it comes")
def streams():
    # The cell waits for a file that only the first line of its output causes.
    code = "import os, sys, time\nprint('first')\nwhile not os.path.exists('/tmp/seen'): time.sleep(0.02)\n"
    code += "print('second', file=sys.stderr)\nprint('third')"
    execution = run(code, on_stdout=lambda each: sandbox.files.write("/tmp/seen", each.line))
    assert "".join(execution.logs.stdout) == "first\nthird\n" and "".join(execution.logs.stderr) == "second\n"


@check("A6.1 errors have the name, the value and the traceback of the exception")
def errors():
    execution = run("1/0")
    assert (execution.error.name, execution.error.value) == ("ZeroDivisionError", "division by zero")
    assert "ZeroDivisionError" in execution.error.traceback
    assert run("def f(:").error.name == "SyntaxError"
    assert run("undefined_name").error.name == "NameError"
    assert run("1").text == "1"


@check("A6.1 cells run as user in /home/user, on the files of the sandbox")
def place():
    sandbox.files.write("data.txt", "from the SDK")
    assert run("open('data.txt').read()").text == "from the SDK"
    assert run("import os, getpass; (os.getcwd(), getpass.getuser())").text == "('/home/user', 'user')"
    run("open('made', 'w').write('by a cell')")
    assert sandbox.files.read("made") == "by a cell"
    assert sandbox.files.get_info("made").owner == "user"


@check("A6.1 a cell may await, display, run commands and change its directory")
def notebook():
    assert run("import asyncio\nawait asyncio.sleep(0.01)\n'awaited'").text == "awaited"
    execution = run("display('shown')\n'main'")
    assert execution.text == "main" and len(execution.results) == 2
    assert [each.is_main_result for each in execution.results].count(True) == 1
    assert "".join(run("!echo from a command").logs.stdout) == "from a command\n"
    run("%cd /tmp")
    assert run("import os; os.getcwd()").text == "/tmp"
    run("%cd /home/user")


RICH = """
class Rich:
    def _repr_html_(self): return "<b>x</b>"
    def _repr_markdown_(self): return "**x**"
    def _repr_svg_(self): return "<svg/>"
    def _repr_png_(self): return b"png"
Rich()
"""


@check("A6.1 representations of a value become formats of the result")
def formats():
    result = run(RICH).results[0]
    assert (result.html, result.markdown, result.svg) == ("<b>x</b>", "**x**", "<svg/>")
    assert base64.b64decode(result.png) == b"png"


@check("A6.1 variables of an execution hold for it only, those of the create always")
def variables():
    code = "import os; (os.environ.get('ONE'), os.environ.get('WORD'))"
    assert run(code, envs={"ONE": "1"}).text == "('1', 'create')"
    assert run(code).text == "(None, 'create')"


@check("A6.2 contexts have names and directories of their own")
def contexts():
    one = sandbox.create_code_context(cwd="/tmp")
    two = sandbox.create_code_context()
    assert run("import os; y = 1; os.getcwd()", context=one).text == "/tmp"
    assert run("y", context=two).error.name == "NameError"
    assert [each.id for each in sandbox.list_code_contexts()][-2:] == [one.id, two.id]
    sandbox.restart_code_context(one)
    assert run("y", context=one).error.name == "NameError"
    sandbox.remove_code_context(one)
    with raises(NotFoundException):
        run("1", context=one)
    assert one.id not in [each.id for each in sandbox.list_code_contexts()]


@check("A6.2 contexts run side by side, and cells of one context one after another")
def side_by_side():
    one, two = sandbox.create_code_context(), sandbox.create_code_context()
    texts = []
    meet = "import os, time\nopen('/tmp/meet-%s', 'w')\nuntil = time.time() + 60\n"
    meet += "while not os.path.exists('/tmp/meet-%s') and time.time() < until: time.sleep(0.02)\n"
    meet += "time.time() < until"
    pairs = ((one, meet % ("a", "b")), (two, meet % ("b", "a")))

    def take(context, cell):
        texts.append(run(cell, context=context).text)

    threads = [threading.Thread(target=take, args=pair) for pair in pairs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == ["True", "True"]
    run("order = []", context=one)
    cell = "import time\norder.append('in')\ntime.sleep(0.3)\norder.append('out')"
    threads = [threading.Thread(target=run, args=(cell,), kwargs={"context": one}) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert run("order", context=one).text == "['in', 'out', 'in', 'out']"


@check("A6.2 the end of the interpreter of one context does not end another")
def exits():
    one = sandbox.create_code_context()
    run("z = 7")
    run("import os; os._exit(1)", context=one)
    assert run("z").text == "7"


@check("A6.3 an execution is interrupted when its client leaves")
def interrupted():
    context = sandbox.create_code_context()
    with raises(TimeoutException):
        run("while True: pass", context=context, timeout=1)
    assert run("'next'", context=context).text == "next"


@check("A6.3 1 MiB of output and of a result pass whole")
def large():
    execution = run("print('x' * 1048576)\n'y' * 1048576")
    assert len("".join(execution.logs.stdout)) == 1048577 and len(execution.text) == 1048576


@check("A6.3 the kill of the sandbox ends a running cell with an error")
def kill():
    other = Sandbox.create(timeout=60)
    assert other.run_code("1").text == "1"
    seen = []

    def wait():
        try:
            other.run_code("import time; open('/tmp/runs', 'w'); time.sleep(100)")
        except Exception as error:
            seen.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    eventually(lambda: other.files.exists("/tmp/runs"))
    other.kill()
    thread.join()
    assert len(seen) == 1


@check("A2.7 A6.1 names of cells are kept over pause and connect")
def pause():
    run("kept = 'over the pause'")
    sandbox.pause()
    sandbox.connect()
    assert run("kept").text == "over the pause"


@check("A6.4 JavaScript cells, where the sandbox has Node.js")
def javascript():
    try:
        execution = run("console.log('Hello, World!'); 1 + 1", language="javascript")
    except SandboxException:
        return
    assert execution.logs.stdout == ["Hello, World!\n"] and execution.text == "2"
    run("var a = 5", language="javascript")
    assert run("a + 1", language="javascript").text == "6"
    assert run("throw new TypeError('no')", language="javascript").error.name == "TypeError"


run_checks()
