import { createHmac, randomBytes, randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { secretName } from '../../src/sandbox/kubernetes/labels.ts';
import { MANAGER_PORT, POD, PodManager, type PodOrder } from '../../src/sandbox/kubernetes/manager.ts';
import { podTemplate } from '../../src/sandbox/kubernetes/pod-template.ts';
import { KUBERNETES_START_MS, kubernetesImage, kubernetesNamespace, type TestNamespace } from '../parts/kubernetes.ts';
import { describeWith } from '../probe.ts';

const WAIT_MS = 60_000;
/** Timeout of a start. A node may be full of other pods for a while. */
const START_MS = 180_000;
const TEST_MS = START_MS + 2 * WAIT_MS;
const PYTHON = `${POD.home}/bin/python3`;
const signal = () => AbortSignal.timeout(WAIT_MS);

/** Script that searches for secrets as hostile code would, and prints the findings as one line of JSON. */
const LOOK = `
import ctypes, json, os
def tried(path):
    try:
        with open(path, 'rb') as source:
            source.read(1)
        return 'read'
    except OSError as error:
        return type(error).__name__
libc = ctypes.CDLL(None, use_errno=True)
print(json.dumps({
    'manager': sorted(set(tried('/proc/1/' + name) for name in ('mem', 'environ', 'maps', 'fd/3'))),
    'traced': libc.ptrace(16, 1, None, None),
    'run': os.listdir('/run/rookery'),
    'writable': [path for path in ('/rookery', '/rookery/python', '/rookery/bin/python3', '/etc', '/opt/rookery', '/var/lib/rookery') if os.access(path, os.W_OK)],
    'secrets': [path for path in ('/run/rookery-secret', '/var/run/secrets/kubernetes.io') if os.path.exists(path)],
    'env': sorted(os.environ),
    'capabilities': [line.split()[1] for line in open('/proc/self/status') if line.startswith('CapEff')],
    'uid': os.getuid(),
}))
`;

/** Script that leaves files, IPC objects and a process in all places. */
const LITTER = `
import ctypes, fcntl, os, subprocess
for place in ('/tmp', '/dev/shm', '/opt/function', '/run/rookery', '/run/rookery/sockets'):
    os.makedirs(place + '/left/deep')
    open(place + '/left/deep/file', 'w').close()
    os.chmod(place + '/left', 0)
libc = ctypes.CDLL(None)
assert libc.shmget(0, 4096, 0o1600) >= 0 and libc.msgget(0, 0o1600) >= 0 and libc.semget(0, 1, 0o1600) >= 0
open('/dev/termination-log', 'w').write('left')
fcntl.fcntl(1, fcntl.F_SETFL, os.O_NONBLOCK)
if os.fork() == 0:
    os.setsid()
    os.execvp('sleep', ['sleep', '1000'])
`;

/** Script that prints which of these remain. */
const FIND = `
import json, os
from fcntl import fcntl, F_GETFL
found = [os.path.join(top, name) for top in ('/tmp', '/dev/shm', '/opt/function', '/run/rookery') for name in os.listdir(top)]
ipc = [len(open('/proc/sysvipc/' + kind).readlines()) - 1 for kind in ('shm', 'msg', 'sem')]
processes = [open('/proc/%s/comm' % pid).read().strip() for pid in os.listdir('/proc') if pid.isdigit()]
print(json.dumps([found, ipc, 'sleep' in processes, os.path.getsize('/dev/termination-log'), fcntl(1, F_GETFL) & os.O_NONBLOCK]))
`;

describeWith(['kubernetes'], 'the manager in a pod', () => {
  const installationId = randomUUID();
  const secret = randomBytes(32);
  let namespace: TestNamespace;
  let image: string;

  beforeAll(async () => {
    namespace = await kubernetesNamespace();
    image = await kubernetesImage();
    const name = secretName(installationId);
    const data = { [POD.secretEntry]: secret.toString('base64') };
    await namespace.core.createNamespacedSecret({ namespace: namespace.name, body: { metadata: { name }, data } });
  }, KUBERNETES_START_MS);

  afterAll(async () => {
    await namespace.close();
  }, WAIT_MS * 3);

  async function pod(
    mode: 'ours' | 'foreign',
    filesCommand?: string,
  ): Promise<{ readonly manager: PodManager; readonly name: string }> {
    const name = `pod-${randomBytes(4).toString('hex')}`;
    const { metadata, spec } = podTemplate({
      installationId,
      secretName: secretName(installationId),
      labels: {},
      image,
      ourImage: image,
      mode,
      resources: { requests: { cpu: '10m', memory: '32Mi' }, limits: { cpu: '1', memory: '128Mi' } },
      restartPolicy: 'Never',
      // Another name of the same image.
      ...(filesCommand !== undefined && { initImage: `docker.io/${image}` }),
    });
    const [files] = spec.initContainers ?? [];
    if (filesCommand !== undefined && files !== undefined) files.command = ['/bin/sh', '-c', filesCommand];
    await namespace.core.createNamespacedPod({
      namespace: namespace.name,
      body: { metadata: { ...metadata, name }, spec },
    });
    let address: { readonly host: string; readonly uid: string } | undefined;
    await expect
      .poll(
        async () => {
          const { metadata: made, status } = await namespace.core.readNamespacedPod({
            namespace: namespace.name,
            name,
          });
          if (status?.podIP !== undefined) address = { host: status.podIP, uid: made?.uid ?? '' };
          return status?.phase;
        },
        { timeout: START_MS, interval: 200 },
      )
      .toBe('Running');
    const { host, uid } = address as NonNullable<typeof address>;
    const key = createHmac('sha256', secret).update(uid).digest('hex');
    const manager = new PodManager({ host, port: MANAGER_PORT, key });
    // The manager answers once its worker waits.
    await expect.poll(() => manager.stop(0).then(() => 'answers', String), { timeout: WAIT_MS }).toBe('answers');
    return { manager, name };
  }

  function order(code: string, changes: Partial<PodOrder> = {}): PodOrder {
    return {
      instanceId: 'instance-1',
      command: { kind: 'exec', argv: [PYTHON, '-c', code] },
      secret: randomUUID(),
      user: '',
      env: { PATH: '/usr/bin:/bin', GIVEN: '1' },
      ofImage: false,
      image,
      workingDir: '/',
      maxOpenFiles: 1024,
      endsWithInstance: false,
      ...changes,
    };
  }

  /** Returns the last line that the code wrote. */
  async function lastLine(name: string): Promise<unknown> {
    let line = '';
    await expect
      .poll(
        async () => {
          const log = await namespace.core.readNamespacedPodLog({ namespace: namespace.name, name });
          line = log.trim().split('\n').at(-1) ?? '';
          return line;
        },
        { timeout: WAIT_MS },
      )
      .toMatch(/^[[{]/);
    return JSON.parse(line);
  }

  test.each([
    ['ours', '', 10_001],
    ['foreign', 'nobody', 65_534],
  ] as const)(
    'code in a pod of mode %s finds no key and no rights, and cannot touch its manager',
    async (mode, user, uid) => {
      const { manager, name } = await pod(mode);
      await manager.start(order(LOOK, { user }), signal());
      expect(await manager.wait(signal())).toMatchObject({ code: 0 });
      expect(await lastLine(name)).toEqual({
        manager: ['PermissionError'],
        traced: -1,
        run: ['sockets'],
        writable: [],
        secrets: [],
        env: expect.not.arrayContaining(['KUBERNETES_SERVICE_HOST', 'HOSTNAME']),
        capabilities: ['0000000000000000'],
        uid,
      });
    },
    TEST_MS,
  );

  test('an init image of a pool finds no Secret and no key', { timeout: TEST_MS }, async () => {
    const look = `awk '{ print $5 }' /proc/self/mountinfo | grep -E 'rookery|secret'; env | grep -i -E 'secret|key'`;
    const { name } = await pod('ours', `${POD.filesCommand[2]} || exit 1; ${look}; true`);
    const container = 'rookery-files';
    const log = await namespace.core.readNamespacedPodLog({ namespace: namespace.name, name, container });
    // The volume that our image declares is empty.
    expect(log.trim().split('\n').sort()).toEqual([POD.home, '/var/lib/rookery']);
  });

  test('a reset removes everything that hostile code has left, and the next instance starts', {
    timeout: TEST_MS,
  }, async () => {
    const { manager, name } = await pod('ours');
    await manager.start(order(LITTER), signal());
    expect(await manager.wait(signal())).toMatchObject({ code: 0 });
    await manager.reset(signal());
    await manager.start(order(FIND), signal());
    expect(await manager.wait(signal())).toMatchObject({ code: 0 });
    expect(await lastLine(name)).toEqual([['/run/rookery/sockets'], [0, 0, 0], false, 0, 0]);
  });

  test('an instance that exceeds its memory ends with that reason, and the manager continues', {
    timeout: TEST_MS,
  }, async () => {
    const { manager } = await pod('ours');
    await manager.start(order('held = []\nwhile True: held.append(bytearray(1 << 20))'), signal());
    expect(await manager.wait(signal())).toMatchObject({ signal: 'SIGKILL', oomKilled: true });
    await manager.reset(signal());
  });

  test('a single-instance pod ends with its instance, with the exit code and the log', {
    timeout: TEST_MS,
  }, async () => {
    const { manager, name } = await pod('ours');
    await manager.start(order('print("[1]"); raise SystemExit(7)', { endsWithInstance: true }), signal());
    const ended = async () => {
      const { status } = await namespace.core.readNamespacedPod({ namespace: namespace.name, name });
      return [status?.phase, status?.containerStatuses?.[0]?.state?.terminated?.exitCode];
    };
    await expect.poll(ended, { timeout: WAIT_MS, interval: 200 }).toEqual(['Failed', 7]);
    expect(await lastLine(name)).toEqual([1]);
  });
});
