"""Prints a report: the number of words in the text files beside this program."""

import datetime
import pathlib

texts = sorted(pathlib.Path(__file__).parent.glob("*.txt"))
words = sum(len(path.read_text().split()) for path in texts)
print("report of %s: %d words in %d files" % (datetime.date.today(), words, len(texts)))
