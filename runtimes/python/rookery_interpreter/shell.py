"""What `get_ipython()` returns in a cell: shell commands and magics."""
import os
import re
import subprocess
import sys
import time

_BRACES = re.compile(r'\{([^{}]+)\}')
_VARIABLE = re.compile(r'\$\$|\$([A-Za-z_]\w*)')


class UsageError(Exception):
    """A magic that does not exist, or that is used wrongly."""


class Shell(object):
    """Runs commands and magics with the names of a cell. `run_source` runs Python as a cell does."""

    def __init__(self, names, run_source):
        self.user_ns = names
        self.config = {}
        self._run_source = run_source

    def system(self, command):
        """Runs a shell command. Its output is the cell's output; `_exit_code` gets its exit code."""
        sys.stdout.flush()
        sys.stderr.flush()
        self.user_ns['_exit_code'] = _run(self._expanded(command))

    def getoutput(self, command):
        """Runs a shell command and returns the lines of its output."""
        process = subprocess.Popen(
            self._expanded(command), shell=True, executable=_shell(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        output = process.communicate()[0]
        self.user_ns['_exit_code'] = process.returncode
        return output.decode('utf-8', 'replace').splitlines()

    def run_line_magic(self, name, line):
        """Runs `%name line`."""
        magic = _LINE_MAGICS.get(name)
        if magic is None:
            if name in _COMMANDS:
                return self.system('%s %s' % (name, line))
            raise UsageError('Line magic function `%%%s` not found.' % name)
        return magic(self, line)

    def run_cell_magic(self, name, line, body):
        """Runs `%%name line` with the rest of the cell."""
        if name in _SCRIPTS:
            command = [_SCRIPTS[name] or sys.executable] + line.split()
            sys.stdout.flush()
            process = subprocess.Popen(command, stdin=subprocess.PIPE)
            process.communicate(body.encode('utf-8'))
            self.user_ns['_exit_code'] = process.returncode
            if process.returncode != 0:
                raise subprocess.CalledProcessError(process.returncode, ' '.join(command))
            return None
        magic = _CELL_MAGICS.get(name)
        if magic is None:
            raise UsageError('Cell magic `%%%%%s` not found.' % name)
        return magic(self, line, body)

    # IPython's names of the same things
    def magic(self, text):
        """Runs a line magic given as one text."""
        name, _, line = text.lstrip('%').strip().partition(' ')
        return self.run_line_magic(name, line)

    def _expanded(self, command):
        """Replaces `{expression}` and `$name` by values of the cell's names; what has none stays."""
        def evaluated(match):
            try:
                return str(eval(match.group(1), self.user_ns))
            except Exception:
                return match.group()

        def named(match):
            if match.group() == '$$':
                return '$'
            name = match.group(1)
            return str(self.user_ns[name]) if name in self.user_ns else match.group()

        return _VARIABLE.sub(named, _BRACES.sub(evaluated, command))


def _shell():
    return '/bin/bash' if os.path.exists('/bin/bash') else '/bin/sh'


def _run(command):
    process = subprocess.Popen(command, shell=True, executable=_shell(), stdin=subprocess.DEVNULL)
    try:
        return process.wait()
    except BaseException:
        process.kill()
        process.wait()
        raise


def _cd(shell, line):
    path = shell._expanded(line).strip().strip('\'"') or '~'
    if path == '-':
        path = shell.user_ns.get('_oldpwd', os.getcwd())
    before = os.getcwd()
    os.chdir(os.path.expanduser(path))
    shell.user_ns['_oldpwd'] = before
    print(os.getcwd())


def _pwd(_shell, _line):
    return os.getcwd()


def _env(shell, line):
    line = shell._expanded(line)
    name, is_set, value = line.partition('=') if '=' in line else line.partition(' ')
    if not line.strip():
        return dict(os.environ)
    if not is_set:
        return os.environ.get(name.strip())
    os.environ[name.strip()] = value.strip()
    print('env: %s=%s' % (name.strip(), value.strip()))


def _time(shell, line, body=None):
    processor, wall = time.process_time(), time.time()
    try:
        return shell._run_source(line if body is None else body)
    finally:
        print('CPU times: %.3g s' % (time.process_time() - processor))
        print('Wall time: %.3g s' % (time.time() - wall))


def _pip(shell, line):
    if _run('%s -m pip %s' % (sys.executable, shell._expanded(line))) != 0:
        print('pip failed', file=sys.stderr)
    import importlib
    importlib.invalidate_caches()


def _run_file(shell, line):
    words = line.split()
    if not words:
        raise UsageError('%run needs the path of a file')
    path = words[0] if words[0].endswith('.py') else words[0] + '.py'
    with open(path) as source:
        code = compile(source.read(), path, 'exec')
    before, sys.argv = sys.argv, words
    try:
        exec(code, shell.user_ns)
    finally:
        sys.argv = before


def _nothing(_shell, _line):
    """Magics of notebooks without a meaning here, such as `%matplotlib inline`."""


def _write_file(_shell, line, body):
    words = line.split()
    if not words:
        raise UsageError('%%writefile needs the path of a file')
    mode = 'a' if '-a' in words else 'w'
    path = os.path.expanduser(words[-1])
    verb = 'Appending to' if mode == 'a' else 'Overwriting' if os.path.exists(path) else 'Writing'
    with open(path, mode) as target:
        target.write(body)
    print('%s %s' % (verb, words[-1]))


def _capture(shell, _line, body):
    import contextlib
    import io
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        shell._run_source(body)


def _shows(kind):
    def show(shell, _line, body):
        shell.user_ns['__builtins__']['display']({kind: body}, raw=True)
    return show


#: Shell commands that work as magics: `%ls`.
_COMMANDS = ('cat', 'cp', 'ls', 'll', 'mkdir', 'mv', 'rm', 'rmdir', 'man')
#: Programs that run the rest of a cell; None is this Python.
_SCRIPTS = {'bash': 'bash', 'sh': 'sh', 'script': 'sh', 'python': None, 'python3': None, 'perl': 'perl', 'ruby': 'ruby'}
_LINE_MAGICS = {
    'cd': _cd, 'pwd': _pwd, 'env': _env, 'set_env': _env, 'time': _time, 'pip': _pip, 'run': _run_file,
    'matplotlib': _nothing, 'load_ext': _nothing, 'reload_ext': _nothing, 'autoreload': _nothing, 'config': _nothing,
    'pylab': _nothing, 'precision': _nothing,
}
_CELL_MAGICS = {
    'time': _time, 'writefile': _write_file, 'file': _write_file, 'capture': _capture,
    'html': _shows('text/html'), 'HTML': _shows('text/html'), 'markdown': _shows('text/markdown'),
    'latex': _shows('text/latex'), 'svg': _shows('image/svg+xml'), 'javascript': _shows('application/javascript'),
    'js': _shows('application/javascript'),
}
