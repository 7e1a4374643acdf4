import { spawn, spawnSync } from 'node:child_process';
import { createHmac, randomBytes, randomUUID } from 'node:crypto';
import { chmodSync, chownSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { PodManager, type PodOrder } from '../../src/sandbox/kubernetes/manager.ts';

const PACKAGES = fileURLToPath(new URL('../../runtimes/python', import.meta.url));
const BOOT = 'import sys; sys.path.insert(0, sys.argv.pop(1)); from rookery_pod import keys, manager; ';
/** Makes the manager behave like a version that does not report its protocols. */
const FIRST = 'keys.PROTOCOLS = []; ';
const RUN = 'manager.main()';
/** The system's Python, which other users may run too. */
const PYTHON = existsSync('/usr/bin/python3') ? '/usr/bin/python3' : 'python3';
const VERSION = spawnSync(PYTHON, ['-c', "import sys; print('%d.%d' % sys.version_info[:2])"]).stdout.toString().trim();

/** The manager of a pod as a process of this machine, without a cluster or a container. */
export interface StartedManager {
  readonly manager: PodManager;
  readonly pid: number;
  readonly key: string;
  /** Directory of its sockets, and of its keys until the manager reads them. */
  readonly run: string;
  /** Directory that a reset empties. */
  readonly writable: string;
  readonly python: string;
  readonly exited: Promise<number | null>;
  /** Returns the output of the manager and of the code. */
  log(): string;
  order(changes?: Partial<PodOrder>): PodOrder;
  dispose(): Promise<void>;
}

/**
 * Starts a manager. `uid` is the user of the manager and needs root. `isOld` starts one of the first version.
 */
export async function startManager({
  uid,
  proofSeconds,
  isOld = false,
}: {
  readonly uid?: number;
  readonly proofSeconds?: number;
  readonly isOld?: boolean;
} = {}): Promise<StartedManager> {
  const directory = mkdtempSync(join(tmpdir(), 'rookery-pod-'));
  chmodSync(directory, 0o755);
  const [run, writable, secretFile] = [join(directory, 'run'), join(directory, 'writable'), join(directory, 'secret')];
  const [secret, podUid] = [randomBytes(32), randomUUID()];
  writeFileSync(secretFile, secret);
  for (const path of [run, writable, secretFile]) {
    if (path !== secretFile) mkdirSync(path);
    if (uid !== undefined) chownSync(path, uid, uid);
  }
  const as = uid === undefined ? {} : { uid, gid: uid };
  const install = join(PACKAGES, 'rookery_pod/install.py');
  const installed = spawnSync(PYTHON, ['-IB', install, '--source', '', '--run', run, '--secret', secretFile], {
    ...as,
    env: { PATH: process.env.PATH, ROOKERY_POD_UID: podUid },
  });
  if (installed.status !== 0) throw new Error(`the keys were not made: ${installed.stderr}`);
  const options = ['--run', run, '--listen', '127.0.0.1:0', '--writable', writable];
  if (proofSeconds !== undefined) options.push('--proof-seconds', `${proofSeconds}`);
  const child = spawn(PYTHON, ['-IB', '-c', `${BOOT}${isOld ? FIRST : ''}${RUN}`, PACKAGES, ...options], {
    ...as,
    cwd: '/',
    env: { PATH: process.env.PATH },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let log = '';
  const exited = new Promise<number | null>(resolve => child.once('exit', resolve));
  const port = await new Promise<number>((resolve, reject) => {
    const take = (chunk: Buffer) => {
      log += chunk.toString();
      const line = /^(\d+)\n/.exec(log);
      if (line !== null) resolve(Number(line[1]));
    };
    child.stdout.on('data', take);
    child.stderr.on('data', take);
    child.once('exit', code => reject(new Error(`the manager ended with ${code}: ${log}`)));
  });
  const key = createHmac('sha256', secret).update(podUid).digest('hex');
  const manager = new PodManager({ host: '127.0.0.1', port, key });
  return {
    manager,
    pid: child.pid ?? 0,
    key,
    run,
    writable,
    python: PYTHON,
    exited,
    log: () => log.replace(/^\d+\n/, ''),
    order: (changes = {}) => ({
      instanceId: 'instance-1',
      command: { kind: 'python', version: VERSION },
      secret: randomUUID(),
      user: '',
      env: { PATH: '/usr/bin:/bin' },
      ofImage: false,
      image: 'image-1',
      workingDir: '/',
      maxOpenFiles: 1024,
      endsWithInstance: false,
      ...changes,
    }),
    dispose: async () => {
      if (lives(child.pid ?? 0)) await manager.stop(0).catch(() => undefined);
      // All processes below the manager end with it.
      child.kill('SIGTERM');
      await exited;
      // The code is read-only, also for an ordinary user who owns it.
      spawnSync('chmod', ['-R', 'u+rwX', directory]);
      rmSync(directory, { recursive: true, force: true });
    },
  };
}

/** Returns true if a process exists. */
export function lives(pid: number): boolean {
  try {
    return !/\) [ZX] /.test(readFileSync(`/proc/${pid}/stat`, 'latin1'));
  } catch {
    return false;
  }
}
