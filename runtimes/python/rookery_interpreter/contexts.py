"""The contexts of an interpreter: names and a directory each, with a kernel that starts with the first cell."""
import collections
import os
import threading
import time
import uuid

from rookery_interpreter import lines
from rookery_interpreter.kernel_process import KernelProcess

#: How often a waiting request checks that its client is still connected.
CHECK_SECONDS = 0.5
#: Seconds of silence after which a client gets a `keepalive` line.
KEEPALIVE_SECONDS = 5
MOST_CONTEXTS = 256
#: Languages whose default context is listed before its first cell.
FROM_THE_BEGINNING = ('python', 'javascript')


class Unknown(Exception):
    """There is no such context."""


class Unusable(Exception):
    """A context cannot be made as asked; `status` is the status of the answer."""

    def __init__(self, status, text):
        Exception.__init__(self, text)
        self.status = status


class ClientGone(Exception):
    """The client of an execution has closed its connection."""


class Context(object):
    """A context. Cells run one after another, in the order in which they were asked for."""

    def __init__(self, language, cwd, command):
        self.id = str(uuid.uuid4())
        self.language = language
        self.cwd = cwd
        self._command = command
        self._turns = collections.deque()
        self._changed = threading.Condition()
        self._kernel = None
        self._is_removed = False

    def view(self):
        """Returns the context as clients see it."""
        return {'id': self.id, 'language': self.language, 'cwd': self.cwd}

    def execute(self, code, env, client):
        """
        Runs a cell and sends its lines to the client, without `end_of_execution`.

        Interrupts the cell and raises ClientGone when the client has closed its connection.
        """
        turn = object()
        with self._changed:
            self._turns.append(turn)
        try:
            self._wait_turn(turn, client)
            client.check()
            try:
                kernel = self._usable_kernel()
            except (OSError, Unknown) as error:
                client.send(lines.line_of(lines.failure('ContextUnusable', str(error))))
                return
            self._pass_on(kernel, kernel.execute(code, env), client)
        finally:
            with self._changed:
                self._turns.remove(turn)
                self._changed.notify_all()

    def _wait_turn(self, turn, client):
        sent_at = time.monotonic()
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._turns[0] is turn, CHECK_SECONDS)
                if self._turns[0] is turn:
                    return
            sent_at = _keep_alive(client, sent_at)

    @staticmethod
    def _pass_on(kernel, execution, client):
        is_last = False
        sent_at = time.monotonic()
        try:
            while not is_last:
                taken, is_last = execution.take(CHECK_SECONDS)
                if taken:
                    client.send(taken)
                    sent_at = time.monotonic()
                elif not is_last:
                    sent_at = _keep_alive(client, sent_at)
        except (ClientGone, OSError):
            kernel.interrupt(execution)
            raise

    def _usable_kernel(self):
        """Returns the kernel, a new one if it has ended. Raises Unknown after the context's removal, OSError."""
        with self._changed:
            if self._is_removed:
                raise Unknown('Context %s was removed' % self.id)
            if self._kernel is None or self._kernel.is_over:
                cwd = self.cwd if os.path.isdir(self.cwd) else '/'
                self._kernel = KernelProcess(self._command, cwd)
            return self._kernel

    def restart(self):
        """Ends the process, and with it all names. The next cell starts a new one."""
        self._end(lines.failure('ContextRestarted', 'The context was restarted while the cell was running.'))

    def remove(self):
        """Ends the process for ever."""
        with self._changed:
            self._is_removed = True
        self._end(lines.failure('ContextRemoved', 'The context was removed while the cell was running.'))

    def _end(self, failure):
        with self._changed:
            kernel, self._kernel = self._kernel, None
        if kernel is not None:
            kernel.kill(failure)


def _keep_alive(client, sent_at):
    """Sends a line after long silence; returns when the last one was sent. Raises ClientGone."""
    client.check()
    if time.monotonic() - sent_at < KEEPALIVE_SECONDS:
        return sent_at
    client.send(lines.KEEPALIVE)
    return time.monotonic()


class Contexts(object):
    """All contexts of an interpreter; `commands` has the command of the kernel of each language."""

    def __init__(self, home, commands, aliases):
        self._home = home
        self._commands = commands
        self._aliases = aliases
        self._lock = threading.Lock()
        self._all = collections.OrderedDict()
        self._defaults = {}
        for language in FROM_THE_BEGINNING:
            if language in commands:
                self.default(language)

    def views(self):
        """Returns all contexts as clients see them, oldest first."""
        with self._lock:
            return [context.view() for context in self._all.values()]

    def find(self, context_id):
        """Returns a context, or raises Unknown."""
        with self._lock:
            context = self._all.get(context_id)
        if context is None:
            raise Unknown('Context %s not found' % context_id)
        return context

    def default(self, language):
        """Returns the context of cells that name only a language, or none. Raises Unusable."""
        language = self._language(language)
        with self._lock:
            context = self._all.get(self._defaults.get(language))
            if context is None:
                context = self._add(language, self._home)
                self._defaults[language] = context.id
            return context

    def create(self, language, cwd):
        """Makes a context in a directory, which is made if it is missing. Raises Unusable."""
        language = self._language(language)
        path = os.path.normpath(os.path.join(self._home, os.path.expanduser(cwd or self._home)))
        try:
            os.makedirs(path, exist_ok=True)
        except (OSError, ValueError) as error:  # a ValueError for characters that no path has
            raise Unusable(400, 'cwd %r cannot be used: %s' % (cwd, getattr(error, 'strerror', None) or error))
        with self._lock:
            if len(self._all) >= MOST_CONTEXTS:
                raise Unusable(429, 'there are %d contexts, the most possible; remove one first' % MOST_CONTEXTS)
            return self._add(language, path)

    def remove(self, context_id):
        """Removes a context and ends its process. Raises Unknown."""
        self.find(context_id).remove()
        with self._lock:
            self._all.pop(context_id, None)

    def _language(self, name):
        language = self._aliases.get((name or 'python').lower(), (name or 'python').lower())
        if language not in self._commands:
            known = ', '.join(sorted(self._commands))
            raise Unusable(500, 'language %s cannot be started in this sandbox; it has %s' % (name, known))
        return language

    def _add(self, language, cwd):
        context = Context(language, cwd, self._commands[language])
        self._all[context.id] = context
        return context
