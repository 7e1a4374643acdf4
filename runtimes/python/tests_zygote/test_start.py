"""
Tests the native program from the request to the user's code: mounts, users, limits, orders and refusals.
"""
import json
import os
import pwd
import shutil
import subprocess
import tempfile
import unittest

from rookery_zygote import frames
from starting import ID, MS_BIND, POLICY, Starting, mount

OUTSIDE = ' (mounts.allow does not name it)'
NO_FILE = ' (it is neither a file nor a directory)'
IS_ROOT = os.geteuid() == 0


def may_mount():
    return IS_ROOT and subprocess.call(['unshare', '--mount', 'true'], stderr=subprocess.DEVNULL) == 0


class Answers(Starting):
    def test_an_instance_has_its_directory_and_its_orders(self):
        os_user = pwd.getpwuid(os.geteuid()).pw_name
        value = {'big': 12345678901234567890, 'text': 'a"\\\u2028\ud83d\ude00\udc80\n', 'list': [True, None, -1.5e3]}
        answer = self.ask(user=os_user, init=value, env={'A': 'b', 'PATH': '/other'})
        stages = answer.pop('stages')
        self.assertEqual(list(stages), ['orders', 'mounts', 'limits', 'rights'])
        self.assertTrue(all(taken >= 0 for taken in stages.values()), stages)
        self.assertEqual(answer, {'ok': True, 'data': {'pid': 42}, 'uid': os.geteuid(), 'warnings': []})
        self.assertEqual([json.loads(self.control.recv(4096).decode()) for _ in range(2)], [{'ready': 42}, {'taken': ID}])
        self.assertEqual(self.control.recv(1), b'')
        orders = frames.read_message(self.orders)
        self.assertEqual(orders.pop('identity')['uid'], os.geteuid())
        self.assertEqual(orders, {
            'instanceId': ID, 'env': {'A': 'b', 'PATH': '/other'}, 'workingDir': '/', 'secret': 'hidden',
            'init': json.loads(json.dumps(value)), 'limits': {'memoryMb': 64, 'maxOpenFiles': 256, 'maxProcesses': 8},
        })

    def test_code_finds_the_programs_of_its_interpreter_unless_it_chose_others(self):
        self.begin(path='/own:/usual')
        self.ask(env={'PATH': '/usual'})
        self.assertEqual(frames.read_message(self.orders)['env'], {'PATH': '/own:/usual'})

    def test_a_program_has_its_socket_and_its_secret(self):
        self.ask(command={'kind': 'exec', 'argv': ['/p', 'x'], 'orServesHttp': True}, env={})
        orders = frames.read_message(self.orders)
        self.assertEqual(orders['env'], {
            'ROOKERY_RUNTIME_SOCKET': '/instances/one/sock/runtime.sock', 'ROOKERY_RUNTIME_SECRET': 'hidden', 'ROOKERY_RUNTIME_FD': '3',
        })
        # In a shared network the port may belong to another program.
        self.assertEqual((orders['argv'], orders['keepsListener'], orders['mayServeHttp']), (['/p', 'x'], True, False))
        self.assertNotIn('secret', orders)

    def test_a_program_that_makes_its_socket_finds_no_file_at_the_path(self):
        self.ask(command={'kind': 'exec', 'argv': ['/p'], 'makesSocket': True})
        self.assertFalse(frames.read_message(self.orders)['keepsListener'])
        self.assertEqual(os.listdir(os.path.join(self.directory, 'sock')), [])

    def test_a_second_instance_of_a_name_is_refused_and_leaves_the_first_unchanged(self):
        os.makedirs(os.path.join(self.directory, 'kept'))
        answer = self.ask()
        self.assertEqual((answer['code'], answer['message']), ('already_exists', 'an instance one is here already'))
        self.assertEqual(os.listdir(self.directory), ['kept'])

    def test_a_name_is_no_path(self):
        for name in ('', '.', '..', '../x', 'a/b', 'a\0b', 7):
            self.assertEqual(self.refused(instanceId=name), 'the name of an instance is wrong')
            self.setUp()

    def test_a_user_process_that_has_ended_is_an_end_without_an_answer(self):
        self.begin()
        os.write(self.code, b'\0')
        self.orders.close()
        self.assertIsNone(self.ask())
        self.end()
        self.assertEqual(os.listdir(os.path.dirname(self.directory)), [])

    @unittest.skipUnless(IS_ROOT, 'needs root')
    def test_an_instance_that_cannot_drop_its_rights_is_refused(self):
        self.begin(filter='00' * 8)
        self.assertEqual(self.refused(), 'the sandbox cannot be started: seccomp: Invalid argument')
        self.end()
        self.assertEqual(os.listdir(os.path.dirname(self.directory)), [])

    def test_an_unused_worker_leaves_nothing(self):
        self.begin()
        self.control.close()
        self.end()
        self.assertEqual(os.listdir(os.path.dirname(self.waiting)), [])

    def test_a_worker_of_another_network_is_not_what_was_asked_for(self):
        wrong = 'the sandbox is in another network than was asked for'
        for facts, asked in (
            ({}, {'network': 'none'}),
            ({'hasOwnNetwork': True}, {'network': 'none'}),
            ({'isIsolated': True}, {'network': 'host'}),
            ({'networkMissing': None}, {'network': 'own'}),
            ({}, {'network': 'own', 'command': {'kind': 'http', 'argv': ['/p']}}),
        ):
            self.begin(**facts)
            self.assertEqual(self.refused(**asked), wrong)
            self.setUp()

    def test_a_program_that_waits_is_only_for_its_own_user(self):
        self.begin(resident={'uid': 12345, 'gid': 0, 'maxOpenFiles': 256})
        command = {'kind': 'exec', 'argv': ['/p']}
        self.assertEqual(self.refused(command=command), 'the program that waits here is not the one that was asked for')

    def test_an_invalid_request_ends_the_worker(self):
        for data in (b'[]', b'{', b'{"command":1}', b'{"mounts":[1]}', b'\xff', b'{"instanceId":"one","mounts":[{"source":"/"}]}'):
            self.begin()
            self.ask_bytes(data)
            self.end()
            self.assertEqual(os.listdir(os.path.dirname(self.directory)), [])
            self.setUp()

    def ask_bytes(self, data):
        packed, frames.write_message = frames.write_message, lambda connection, _message: frames.write(connection, data)
        try:
            self.assertNotEqual((self.ask() or {}).get('ok'), True)
        finally:
            frames.write_message = packed


class Users(Starting):
    def test_a_number_needs_no_user(self):
        self.ask(user='54321:12')
        identity = frames.read_message(self.orders)['identity']
        self.assertEqual(identity, {'uid': 54321, 'gid': 12, 'groups': [12], 'set': False, 'map': False})

    def test_a_name_has_its_groups(self):
        self.ask(user='root')
        identity = frames.read_message(self.orders)['identity']
        self.assertEqual((identity['uid'], set(identity['groups'])), (0, set(os.getgrouplist('root', 0))))

    def test_a_missing_user_is_named_in_the_error(self):
        for user, kind, name in (
            ('no-such-user', 'user', 'no-such-user'), ('root:no-such-group', 'group', 'no-such-group'),
            ('4294967295', 'user', '4294967295'), ('99999999999999999999', 'user', '99999999999999999999'),
        ):
            file = {'user': 'passwd', 'group': 'group'}[kind]
            self.assertEqual(self.refused(user=user), '%s %s does not exist in /etc/%s of this host' % (kind, name, file))
            self.setUp()


@unittest.skipUnless(may_mount(), 'needs the right to mount')
class UsualUser(Starting):
    """Tests the most frequent user, which a worker looks up while it waits."""

    def setUp(self):
        super(UsualUser, self).setUp()
        self.groups = os.path.join(self.base, 'group')
        self.write('root:x:0:\nfirst:x:1111:root\n')

    def write(self, text):
        with open(self.groups, 'w') as file:
            file.write(text)

    def furnish(self, root):
        mount(self.groups, '/etc/group', None, MS_BIND)

    def groups_of(self, user, meanwhile=None):
        self.begin(root=True)
        self.assertEqual(json.loads(self.control.recv(4096).decode()), {'ready': 42})
        if meanwhile is not None:
            self.write(meanwhile)
        self.assertTrue(self.ask(user=user)['ok'])
        identity = frames.read_message(self.orders)['identity']
        self.end()
        return identity['uid'], sorted(identity['groups'])

    def test_the_usual_user_is_root_with_its_groups(self):
        self.assertEqual(self.groups_of(''), (0, [0, 1111]))

    def test_users_that_change_meanwhile_count(self):
        self.assertEqual(self.groups_of('', 'root:x:0:\nsecond:x:2222:root\n'), (0, [0, 2222]))

    def test_a_different_user_is_looked_up(self):
        self.assertEqual(self.groups_of('54321'), (54321, [54321]))


@unittest.skipUnless(IS_ROOT, 'needs root')
class Limits(Starting):
    def limits_of(self, *names, **asked):
        paths = [(name, os.path.join(self.base, name)) for name in names]
        for _name, path in paths:
            open(path, 'w').close()
        self.begin(limits=paths)
        self.assertEqual(self.ask(**asked)['warnings'], [])
        found = {}
        for name, path in paths:
            with open(path) as source:
                found[name] = source.read()
        return found

    def test_version_1(self):
        names = ('memory.limit_in_bytes', 'cpu.cfs_period_us', 'cpu.cfs_quota_us', 'pids.max')
        found = self.limits_of(*names, memoryMb=64, cpuMillis=1500, maxProcesses=9)
        self.assertEqual([found[name] for name in names], [str(64 * 1024 * 1024), '100000', '150000', '10'])

    def test_version_2(self):
        names = ('memory.max', 'memory.swap.max', 'cpu.max')
        found = self.limits_of(*names, memoryMb=8192, cpuMillis=250)
        self.assertEqual([found[name] for name in names], [str(8192 * 1024 * 1024), '0', '25000 100000'])

    def test_the_smallest_share_is_a_quota_that_the_kernel_takes(self):
        self.assertEqual(self.limits_of('cpu.max', cpuMillis=1), {'cpu.max': '1000 1000000'})

    def test_a_limit_that_is_refused_is_a_warning_but_for_swap(self):
        self.begin(limits=[('pids.max', '/dev/full'), ('memory.memsw.limit_in_bytes', '/dev/full')])
        self.assertEqual(self.ask()['warnings'], ['the limit pids.max = 9 was refused: No space left on device'])


class Sources(Starting):
    """
    Tests mounts without a mount namespace: source and target must be equal, and the source is checked as
    usual.
    """

    def refusal_of(self, path, policy=POLICY, target=None):
        mount = {'source': path, 'target': target or path, 'readonly': False}
        message = self.refused(mounts=[mount], policy=policy)
        self.setUp()
        return message

    def test_the_rule_of_unsafe_paths(self):
        for path in ('/', '/etc', '/etc/ssl', '/proc', '/proc/1', '/sys', '/dev', '/run', '/var', '/var/lib'):
            self.assertEqual(self.refusal_of(path), 'unsafe mount source: %s' % path)
        self.assertEqual(self.refusal_of('/etc', dict(POLICY, allow=['/'])), 'unsafe mount source: /etc')

    def test_paths_of_container_engines_and_above_private_directories_are_unsafe(self):
        for name in ('docker.sock.d', '.docker', '.docker/x', '.local/share/containers/x', '.local/share/docker', '.local/share/containerd'):
            path = os.path.join(self.base, name)
            os.makedirs(path)
            self.assertEqual(self.refusal_of(path), 'unsafe mount source: %s' % path)
        base = self.base
        closed = dict(POLICY, closed=[os.path.join(base, 'run')])
        self.assertEqual(self.refusal_of(base, closed), 'unsafe mount source: %s' % base)

    def test_a_path_that_is_not_allowed_is_refused_by_whole_names(self):
        base = self.base
        code, longer, other = (os.path.join(base, name) for name in ('code', 'codex', '.dockers'))
        for path in (code, longer, other):
            os.makedirs(path)
        self.assertEqual(self.refusal_of(longer, dict(POLICY, allow=[code])), 'unsafe mount source: %s%s' % (longer, OUTSIDE))
        self.assertEqual(self.refusal_of(code, dict(POLICY, allow=[])), 'unsafe mount source: %s%s' % (code, OUTSIDE))
        mounts = [{'source': path, 'target': path, 'readonly': False} for path in (code, other)]
        self.assertTrue(self.ask(mounts=mounts, policy=dict(POLICY, allow=[base + '/']))['ok'])

    def test_the_resolved_path_counts(self):
        link, inside = os.path.join(self.base, 'link'), os.path.join(self.base, 'allowed')
        os.symlink('/etc', link)
        self.assertEqual(self.refusal_of(link), 'unsafe mount source: %s' % link)
        os.mkdir(inside)
        up = os.path.join(inside, 'up')
        os.symlink('..', up)
        self.assertEqual(self.refusal_of(up, dict(POLICY, allow=[inside])), 'unsafe mount source: %s%s' % (up, OUTSIDE))

    def test_only_files_and_directories_are_mounted(self):
        pipe = os.path.join(self.base, 'pipe')
        os.mkfifo(pipe)
        self.assertEqual(self.refusal_of(pipe), 'unsafe mount source: %s%s' % (pipe, NO_FILE))
        self.listen(os.path.join(self.base, 'socket')).close()
        path = os.path.join(self.base, 'socket')
        self.assertEqual(self.refusal_of(path), 'unsafe mount source: %s%s' % (path, NO_FILE))

    def test_a_source_that_was_removed_is_not_mounted(self):
        gone = os.path.join(self.base, 'gone')
        os.mkdir(gone)
        held = os.open(gone, os.O_PATH)
        self.addCleanup(os.close, held)
        os.rmdir(gone)
        path = '/proc/%d/fd/%d' % (os.getpid(), held)
        self.assertEqual(self.refusal_of(path), 'unsafe mount source: %s' % path)

    @unittest.skipUnless(may_mount(), 'needs the right to mount')
    def test_a_link_into_another_mount_namespace_does_not_count_as_a_path_here(self):
        shown, link = os.path.join(self.base, 'shown'), os.path.join(self.base, 'link')
        os.mkdir(shown)
        script = 'mount -t tmpfs none %s && echo ready && exec sleep 600' % shown
        other = subprocess.Popen(['unshare', '--mount', 'sh', '-c', script], stdout=subprocess.PIPE)
        try:
            other.stdout.readline()
            os.symlink('/proc/%d/root%s' % (other.pid, shown), link)
            self.assertEqual(self.refusal_of(link), 'unsafe mount source: %s' % link)
        finally:
            other.kill()
            other.wait()
            other.stdout.close()

    def test_missing_and_relative_sources_are_reported(self):
        self.assertEqual(self.refusal_of('/no/such/path'), 'mount source does not exist: /no/such/path')
        for path in ('relative', '', '/a\0b'):
            self.assertTrue(self.refusal_of(path, target='/x').startswith('mount source must be an absolute path: '))

    def test_another_place_needs_a_mount_namespace(self):
        self.assertIn('source and target must be the same path', self.refusal_of(self.base, target='/srv'))

    def test_a_policy_is_never_missing(self):
        self.assertEqual(self.refusal_of(self.base, None), 'there is no rule for mounts')
        for name in ('closed', 'closedNames', 'closedTexts'):
            for policy in (dict(POLICY, **{name: []}), {key: value for key, value in POLICY.items() if key != name}):
                self.assertEqual(self.refusal_of(self.base, policy), 'there is no rule for mounts')


@unittest.skipUnless(may_mount(), 'needs the right to mount')
class Targets(Starting):
    NEEDED = ['/dev', '/opt/python', '/proc', '/usr', '/usr/bin']

    def furnish(self, root):
        for name in ('usr/bin', 'opt/python', 'proc', 'dev/shm', 'deep/er', 'etc'):
            os.makedirs(os.path.join(root, name))
        for name, target in (
            ('absolute', '/etc'), ('deep/er/up', '../../../../../../etc'), ('deep/same', 'er'), ('one', '/two'), ('two', '/one'), ('up', '/..'),
        ):
            os.symlink(target, os.path.join(root, name))
        open(os.path.join(root, 'file'), 'w').close()

    def source(self, is_directory=True):
        path = tempfile.mkdtemp(prefix='rookery-source-')
        self.addCleanup(shutil.rmtree, path)
        with open(os.path.join(path, 'here'), 'w') as out:
            out.write('found')
        return path if is_directory else os.path.join(path, 'here')

    def mount(self, *targets, **asked):
        self.begin(root=True, needed=self.NEEDED)
        mounts = [{'source': self.source(asked.get('is_directory', True)), 'target': target, 'readonly': False} for target in targets]
        return self.ask(mounts=mounts)

    def refusal_of(self, target, **asked):
        answer = self.mount(target, **asked)
        self.assertFalse(answer['ok'], target)
        self.end()
        self.setUp()
        return answer['message']

    def inside(self, path):
        with open('/proc/%d/root%s' % (self.init, path)) as source:
            return source.read()

    def test_nothing_may_be_mounted_over_what_the_sandbox_needs(self):
        for target, hidden in (('/usr', '/usr'), ('/usr/bin', '/usr/bin'), ('/opt', '/opt/python'), ('/deep/er/../../usr', '/usr'), ('/up', '/dev')):
            self.assertEqual(self.refusal_of(target), 'mount target %s hides %s, which the sandbox needs' % (target, hidden))

    def test_nothing_may_be_mounted_in_proc_and_dev_but_on_shared_memory(self):
        for target, tree in (('/proc/self', '/proc'), ('/dev/pts', '/dev')):
            self.assertEqual(self.refusal_of(target), 'mount target %s is in %s, which the sandbox needs' % (target, tree))
        self.assertTrue(self.mount('/dev/shm', '/dev/shm/of-two', '/opt/pythons', '/usr/share', '/processes')['ok'])

    def test_targets_are_made_and_links_are_followed_as_if_the_root_were_the_root(self):
        found = {'/a/b/c': '/a/b/c', '/absolute/x': '/etc/x', '/deep/er/up/y': '/etc/y', '/deep/same/z': '/deep/er/z', 'q//r/../s/': '/q/s'}
        self.assertTrue(self.mount(*found)['ok'])
        for path in found.values():
            self.assertEqual(self.inside(path + '/here'), 'found')

    def test_a_file_is_mounted_on_a_file(self):
        self.assertTrue(self.mount('/new/file', is_directory=False)['ok'])
        self.assertEqual(self.inside('/new/file'), 'found')
        self.end()
        self.setUp()
        self.assertEqual(self.refusal_of('/file'), 'mount target cannot be made: /file: it is not a directory')
        self.assertEqual(self.refusal_of('/etc', is_directory=False), 'mount target cannot be made: /etc: it is a directory')

    def test_a_target_behind_a_broken_link_is_an_error(self):
        self.assertEqual(self.refusal_of('/one/x'), 'mount target cannot be made: /one/x: too many symbolic links')
        for target in ('/', '', '/..', '/a/..', '/a\0b'):
            self.assertTrue(self.refusal_of(target).startswith('mount target must be a path below /: '))
        for target in ('/' + 'x' * 300, '/' + 'x/' * 5000):
            self.assertFalse(self.mount(target)['ok'])
            self.end()
            self.setUp()

    def test_home_is_made_and_belongs_to_the_user(self):
        self.begin(root=True, setsIds=True)
        self.assertTrue(self.ask(user='1234', env={'HOME': '/home/me'})['ok'])
        about = os.stat('/proc/%d/root/home/me' % self.init)
        self.assertEqual((about.st_uid, about.st_gid), (1234, 1234))

    def test_a_missing_program_is_an_error(self):
        self.begin(root=True)
        command = {'kind': 'exec', 'argv': ['/file'], 'deployDir': '/deep'}
        self.assertEqual(self.ask(command=command)['message'], '/file is not an executable file')
        for directory, message in (
            ('deep', "codePath must be an absolute path inside the sandbox, not 'deep'"), ('/none', '/none does not exist'),
            ('/etc', 'there is nothing in /etc'),
        ):
            self.end()
            self.setUp()
            self.begin(root=True)
            self.assertIn('deploy dir is empty: ' + message[:20], self.ask(command=dict(command, deployDir=directory))['message'])


if __name__ == '__main__':
    unittest.main()
