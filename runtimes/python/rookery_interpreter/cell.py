"""The source of a cell: from the syntax of notebooks to Python, and to code objects."""
import __future__
import ast
import io
import re
import tokenize

#: Flag with which a cell may use `await` outside of functions; 0 before Python 3.8.
TOP_LEVEL_AWAIT = getattr(ast, 'PyCF_ALLOW_TOP_LEVEL_AWAIT', 0)
IS_COROUTINE = 0x80
_FUTURES = 0
for _name in __future__.all_feature_names:
    _FUTURES |= getattr(__future__, _name).compiler_flag

_ASSIGNED = re.compile(r'^(\s*)([A-Za-z_][\w.,\s\[\]\'"]*?)\s*=\s*([!%])(.*)$')
_MAGIC = re.compile(r'^(\s*)(%|!!?)(?![%=])(.*)$')
_QUOTES = re.compile(r'"""|\'\'\'|"|\'')


def python_of(source):
    """Returns a cell as Python: `%magic`, `!command` and `%%magic` become calls of `get_ipython()`."""
    source = _dedented(source)
    if source.lstrip().startswith('%%'):
        first, _, body = source.lstrip().partition('\n')
        name, _, line = first[2:].strip().partition(' ')
        return 'get_ipython().run_cell_magic(%r, %r, %r)\n' % (name, line.strip(), body)
    try:
        compile(source, '<cell>', 'exec', ast.PyCF_ONLY_AST | TOP_LEVEL_AWAIT, True)
        return source
    except (SyntaxError, ValueError):
        return _without_magics(source)


def _dedented(source):
    """Removes the indentation of the first line from all lines, as notebooks do."""
    rows = source.split('\n')
    first = next((row for row in rows if row.strip() and not row.lstrip().startswith('#')), '')
    indent = first[:len(first) - len(first.lstrip())]
    if not indent:
        return source
    return '\n'.join(row[len(indent):] if row.startswith(indent) else row for row in rows)


def _without_magics(source):
    done, opened = [], _Opened()
    rows = source.split('\n')
    while rows:
        row = rows.pop(0)
        if not opened.is_inside():
            while row.rstrip().endswith('\\') and rows and (_MAGIC.match(row) or _ASSIGNED.match(row)):
                row = row.rstrip()[:-1] + rows.pop(0)
            row = _call_of(row)
        opened.read(row)
        done.append(row)
    return '\n'.join(done)


def _call_of(row):
    magic = _MAGIC.match(row)
    if magic is not None:
        indent, sign, text = magic.groups()
        if sign == '%':
            return indent + _line_magic(text)
        method = 'getoutput' if sign == '!!' else 'system'
        return '%sget_ipython().%s(%r)' % (indent, method, text)
    assigned = _ASSIGNED.match(row)
    if assigned is not None:
        indent, target, sign, text = assigned.groups()
        call = 'get_ipython().getoutput(%r)' % text if sign == '!' else _line_magic(text)
        return '%s%s = %s' % (indent, target, call)
    return row


def _line_magic(text):
    name, _, line = text.strip().partition(' ')
    return 'get_ipython().run_line_magic(%r, %r)' % (name, line.strip())


class _Opened(object):
    """Which quotes and brackets are open after the lines read so far."""

    def __init__(self):
        self._quote = None
        self._depth = 0
        self._is_continued = False

    def is_inside(self):
        """Returns True if the next line is not the beginning of a statement."""
        return self._quote is not None or self._depth > 0 or self._is_continued

    def read(self, row):
        """Reads one line."""
        at = 0
        while at < len(row):
            sign = row[at]
            if sign == '\\':
                at += 2
                continue
            if self._quote is not None:
                if row.startswith(self._quote, at):
                    at += len(self._quote)
                    self._quote = None
                    continue
            elif sign == '#':
                break
            elif _QUOTES.match(row, at):
                self._quote = _QUOTES.match(row, at).group()
                at += len(self._quote)
                continue
            elif sign in '([{':
                self._depth += 1
            elif sign in ')]}':
                self._depth = max(0, self._depth - 1)
            at += 1
        self._is_continued = row.endswith('\\')
        if self._quote is not None and len(self._quote) == 1 and not self._is_continued:
            self._quote = None  # a string of one line that is not closed: a syntax error


class Compiled(object):
    """Code objects of a cell: `body`, and `last` for the value of a last expression; both may be None."""

    def __init__(self, source, filename, flags):
        """Compiles Python. `flags` are those of `from __future__` in earlier cells. Raises SyntaxError."""
        flags |= TOP_LEVEL_AWAIT
        tree = compile(source, filename, 'exec', ast.PyCF_ONLY_AST | flags, True)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        self.body = compile(tree, filename, 'exec', flags, True) if tree.body else None
        self.flags = (self.body.co_flags & _FUTURES) if self.body is not None else 0
        self.last = None
        if last is not None:
            self.last = compile(ast.Expression(last.value), filename, 'eval', flags | self.flags, True)
        self.is_quiet = last is not None and _ends_with_semicolon(source)


def _ends_with_semicolon(source):
    """Returns True if the last token is `;`, which hides the value of a notebook's cell."""
    found = False
    skipped = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.ENDMARKER, tokenize.DEDENT)
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type not in skipped:
                found = token.string == ';'
    except (tokenize.TokenError, SyntaxError):
        return False
    return found
