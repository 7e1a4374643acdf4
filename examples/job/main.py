"""Counts the words of the text files beside this program, and prints its progress."""

import collections
import pathlib

words = collections.Counter()
for path in sorted(pathlib.Path(__file__).parent.glob("*.txt")):
    words.update(path.read_text().lower().split())
    print("read", path.name)

for word, count in words.most_common(3):
    print(word, count)
