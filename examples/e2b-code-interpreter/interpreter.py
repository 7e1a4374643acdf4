"""Gives a model a code interpreter: runs its cells in an E2B sandbox and returns errors to it."""

import sys

from e2b_code_interpreter import Sandbox

PROMPT = "sales.csv has the columns month and sales. "


def model(messages):
    """Stands in for a model. Its first attempt forgets an import, its second reads the error."""
    if len(messages) == 1:
        return "rows = list(csv.DictReader(open('sales.csv')))"
    return "import csv\nrows = list(csv.DictReader(open('sales.csv')))\nsum(int(row['sales']) for row in rows)"


def answer(sandbox, question):
    """Runs what the model writes until a cell succeeds. Returns the value of the cell."""
    messages = [PROMPT + question]
    for attempt in range(1, 4):
        execution = sandbox.run_code(model(messages), on_stdout=lambda each: print(each.line, end=""))
        if execution.error is None:
            return execution.text
        print(f"attempt {attempt}: {execution.error.name}: {execution.error.value}")
        messages.append(execution.error.traceback)
    raise SystemExit("the model did not find an answer")


with Sandbox.create(timeout=120) as sandbox:
    sandbox.files.write("sales.csv", "month,sales\n1,20\n2,22\n")
    print("answer:", answer(sandbox, sys.argv[1]))
    print("still known:", sandbox.run_code("len(rows)").text)
