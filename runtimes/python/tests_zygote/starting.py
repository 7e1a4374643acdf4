"""
A native program that waits for its instance, without layers: shared by the tests of its start and its life.
"""
import array
import ctypes
import json
import os
import shutil
import socket
import tempfile
import unittest

from rookery_zygote import frames, native, syscalls

SECONDS = 30
MS_BIND, _MS_REC, _MS_PRIVATE = 0x1000, 0x4000, 0x40000
POLICY = {
    'closed': ['/etc', '/proc', '/sys', '/dev', '/data', '/run/docker', '/run/docker.sock', '/var/lib/docker'],
    'closedNames': ['/.docker', '/.local/share/docker', '/.local/share/containers', '/.local/share/containerd'],
    'closedTexts': ['docker.sock'],
    'allow': None,
}
ID = 'one'


def request(**changed):
    """Returns the request of a start."""
    asked = {
        'instanceId': ID, 'command': {'kind': 'python', 'version': '3'}, 'secret': 'hidden', 'init': None, 'user': '',
        'env': {'A': 'b'}, 'workingDir': '/', 'mounts': [], 'platformMounts': [], 'survivesCaller': False, 'cpuMillis': 1500,
        'memoryMb': 64, 'maxProcesses': 8, 'maxOpenFiles': 256, 'network': 'host', 'policy': POLICY, 'requireIsolation': False,
    }
    asked.update(changed)
    return asked


def execute(facts, descriptors, limits):
    """
    Turns this process into the native program. Never returns.

    `facts` describe a finished sandbox (`worker.c`). `descriptors` are the numbers with which the program
    continues. `limits` are the files of limits as (name, descriptor).
    """
    program = native.Program().fileno()
    descriptors = dict(descriptors, program=program)
    files = [{'name': name, 'file': descriptor} for name, descriptor in limits]
    about = native.memory_file(json.dumps(dict(facts, limits=files, **descriptors)).encode())
    for descriptor in [about] + list(descriptors.values()) + [descriptor for _name, descriptor in limits]:
        if descriptor >= 0:
            os.set_inheritable(descriptor, True)
    # The command line reserves the space for later titles.
    os.execve(program, ['rookery: worker'.ljust(96), str(about)], {})


def mount(source, target, kind=None, flags=0, data=None):
    """Mounts a file system. Raises OSError."""
    texts = [text and os.fsencode(text) for text in (source, target, kind, data)]
    if syscalls.LIBC.mount(texts[0], texts[1], texts[2], ctypes.c_ulong(flags), texts[3]) < 0:
        number = ctypes.get_errno()
        raise OSError(number, 'mount %s: %s' % (target, os.strerror(number)))


class Starting(unittest.TestCase):
    """
    Base of tests of a start.

    The user's process waits for a byte, which becomes its exit code. The test holds the orders and writes the
    output.
    """

    def setUp(self):
        self.base = os.path.realpath(tempfile.mkdtemp(prefix='rookery-init-'))
        self.addCleanup(shutil.rmtree, self.base)
        self.directory = os.path.join(self.base, 'instances', ID)
        self.waiting = os.path.join(self.base, 'workers', 'worker')
        self.root = os.path.join(self.base, 'root')
        for path in (self.waiting, os.path.dirname(self.directory), self.root):
            os.makedirs(path)
        self.init = None

    def begin(self, root=False, limits=(), **facts):
        """Starts the native program. With `root` it has a mount namespace with an empty root."""
        code, self.code = os.pipe()
        output, self.output = os.pipe()
        self.control, control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        orders, self.orders = socket.socketpair()
        self.listener = self.listen(os.path.join(self.waiting, 'init.sock'))
        runtime = self.listen(os.path.join(self.waiting, 'runtime.sock'))
        self.init = os.fork()
        if self.init == 0:
            try:
                # Closed here, because the user's process would keep them open too.
                for held in (self.control, self.orders):
                    held.close()
                os.close(self.code)
                if root:
                    syscalls.unshare(syscalls.CLONE_NEWNS)
                    mount(None, '/', None, _MS_REC | _MS_PRIVATE)
                    mount('test', self.root, 'tmpfs', 0, 'mode=755')
                    self.furnish(self.root)
                self.become(root, limits, facts, code, {
                    'output': output, 'outputWriter': os.dup(output), 'control': control.fileno(), 'orders': orders.fileno(),
                    'runtimeListener': runtime.fileno(),
                })
            except BaseException as error:
                os.write(2, ('%s\n' % error).encode())
            finally:
                os._exit(1)
        for held in (code, output):
            os.close(held)
        for held in (control, orders, self.listener, runtime):
            held.close()
        self.addCleanup(self.control.close)
        self.addCleanup(self.orders.close)
        self.addCleanup(self.end)
        self.control.settimeout(SECONDS)
        self.orders.settimeout(SECONDS)

    @staticmethod
    def listen(path):
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(path)
        listener.listen(8)
        return listener

    def furnish(self, root):
        """Fills the root before the request. Overridden by tests."""

    def become(self, root, limits, facts, code, descriptors):
        os.close(self.output)
        user = os.fork()
        if user == 0:
            for held in descriptors.values():
                os.close(held)
            said = os.read(code, 1)
            os._exit(said[0] if said else 0)
        os.close(code)
        about = {
            'name': 'worker', 'pid': 42, 'state': '{"pid": 42}', 'warnings': [], 'isSupervised': False, 'isIsolated': False,
            'hasOwnNetwork': False, 'networkMissing': 'there is none', 'setsIds': False, 'hasPid': False, 'hasUser': False,
            'hasCapabilities': False, 'hasNoNewPrivs': False, 'hasMemoryGroup': True, 'hasPidsGroup': True, 'filter': None,
            'root': self.root if root else '', 'needed': [], 'runtime': '/runtime', 'instancesPath': '/instances',
            'usualPath': '/usual', 'path': None, 'resident': None, 'user': user, 'limitsOwner': None, 'logBytes': 1000, 'logFiles': 3,
        }
        about.update(facts)
        directories = {
            'directory': self.waiting, 'workers': os.path.dirname(self.waiting), 'instances': os.path.dirname(self.directory),
        }
        descriptors.update({name: os.open(path, os.O_RDONLY) for name, path in directories.items()})
        descriptors.update(listener=self.listener.fileno(), connection=-1, oomKills=-1, limitsNamespace=-1, networkTie=-1, networkWords=-1)
        execute(about, descriptors, [(name, os.open(path, os.O_WRONLY)) for name, path in limits])

    def ask(self, **changed):
        """Returns the answer to a start."""
        if self.init is None:
            self.begin()
        self.connection, theirs = socket.socketpair()
        self.addCleanup(self.connection.close)
        self.connection.settimeout(SECONDS)
        with theirs:
            self.control.sendmsg([b's'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [theirs.fileno()]))])
        frames.write_message(self.connection, request(**changed))
        return frames.read_message(self.connection)

    def refused(self, **changed):
        """Returns the text of the refusal, and checks that no residue is left."""
        answer = self.ask(**changed)
        self.assertFalse(answer['ok'], answer)
        self.end()
        self.assertEqual([os.listdir(os.path.dirname(path)) for path in (self.directory, self.waiting)], [[], []])
        return answer['message']

    def end(self):
        if self.init is not None:
            os.close(self.output)
            os.close(self.code)
            self.control.close()
            os.waitpid(self.init, 0)
            self.init = None

    def connect(self):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.addCleanup(connection.close)
        connection.settimeout(SECONDS)
        connection.connect(os.path.join(self.directory, 'init.sock'))
        return connection
