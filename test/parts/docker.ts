import { type ChildProcess, execFile, spawn, spawnSync } from 'node:child_process';
import { closeSync, existsSync, openSync, readFileSync, writeFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';
import { IMAGES, type ImageName, imageFile } from './docker-images.ts';
import { killProcesses, type Residue, removeResidue } from './docker-residue.ts';
import { withMachineLock } from './machine-lock.ts';

const execute = promisify(execFile);

/** Generous for a machine that is busy with other tests. */
const START_TIMEOUT_MS = 60_000;
const STOP_TIMEOUT_MS = 40_000;
const LOCK_TIMEOUT_MS = 120_000;
const COMMAND_TIMEOUT_MS = 120_000;
const LOG_TAIL_CHARS = 2_000;
/** `10.<n>.0.0/16` is the range of one daemon. */
const FIRST_RANGE = 128;
const RANGES = 64;

/** What a daemon of ours needs, with the Debian package that has it. */
const NEEDED: readonly (readonly [program: string, inPackage: string])[] = [
  ['dockerd', 'docker.io'],
  ['docker', 'docker.io'],
  ['containerd', 'containerd'],
  ['runc', 'runc'],
  ['iptables', 'iptables'],
  ['ip', 'iproute2'],
  ['debootstrap', 'debootstrap'],
];

/** Why no daemon can be started here, as a sentence; null when one can. */
export function whyNoDocker(): string | null {
  if (process.getuid?.() !== 0) return 'a docker daemon can only be started as root';
  for (const [program, inPackage] of NEEDED) {
    const { status } = spawnSync('sh', ['-c', `command -v ${program}`], { stdio: 'ignore' });
    if (status !== 0) return `${program} is not installed (apt-get install ${inPackage})`;
  }
  return null;
}

type DaemonConfig = Readonly<Record<string, unknown>>;

export interface DaemonOptions {
  /** Whether containers outlive the daemon; default: they do not. */
  readonly liveRestore?: boolean;
  /** Imported before `start` returns. */
  readonly images?: readonly ImageName[];
}

/**
 * A real Docker daemon with files, addresses and interfaces of its own, beside whatever other daemon runs on the machine. `stop` leaves
 * nothing of it; it ends with the process that started it.
 */
export class DockerDaemon implements AsyncDisposable {
  /** As `DOCKER_HOST` has it. */
  readonly host: string;
  readonly #residue: Residue;
  #process: ChildProcess | null = null;

  private constructor(residue: Residue) {
    this.#residue = residue;
    this.host = `unix://${residue.directory}/docker.sock`;
  }

  static async start(options: DaemonOptions = {}): Promise<DockerDaemon> {
    const directory = await mkdtemp(join(tmpdir(), 'rookery-docker-'));
    const daemon = await withDaemonsLeftAlone(() => DockerDaemon.#make(directory, options));
    try {
      for (const image of options.images ?? []) await daemon.import(image);
    } catch (error) {
      await daemon.stop();
      throw error;
    }
    return daemon;
  }

  static async #make(directory: string, { liveRestore = false }: DaemonOptions): Promise<DockerDaemon> {
    const prefix = `10.${freeRange()}`;
    const name = directory.slice(-6).toLowerCase();
    const residue = { directory, bridge: `rkt-${name}`, cgroup: `rookery-test-${name}`, addresses: `${prefix}.` };
    const daemon = new DockerDaemon(residue);
    const config = {
      'data-root': join(directory, 'data'),
      'exec-root': join(directory, 'exec'),
      pidfile: join(directory, 'pid'),
      hosts: [daemon.host],
      bridge: residue.bridge,
      'default-address-pools': [{ base: `${prefix}.128.0/17`, size: 24 }],
      'cgroup-parent': `/${residue.cgroup}`,
      // Those of a containerd that runs here already, should the daemon use it.
      'containerd-namespace': residue.cgroup,
      'containerd-plugins-namespace': `${residue.cgroup}-plugins`,
      'live-restore': liveRestore,
      'shutdown-timeout': 5,
      'log-level': 'warn',
    };
    writeFileSync(join(directory, 'daemon.json'), JSON.stringify(config));
    try {
      // Docker would make DROP the policy of all forwarding on the machine if it were the one to switch this on.
      writeFileSync('/proc/sys/net/ipv4/ip_forward', '1');
      await execute('ip', ['link', 'add', 'name', residue.bridge, 'type', 'bridge']);
      await execute('ip', ['address', 'add', `${prefix}.0.1/24`, 'dev', residue.bridge]);
      await execute('ip', ['link', 'set', residue.bridge, 'up']);
      await daemon.#launch();
    } catch (error) {
      await daemon.#remove();
      throw error;
    }
    return daemon;
  }

  /** The pid of the daemon itself; null while it does not run. */
  get pid(): number | null {
    return this.#process?.pid ?? null;
  }

  /** What a program needs in its environment to speak to this daemon only. */
  get environment(): Readonly<Record<string, string>> {
    return { DOCKER_HOST: this.host, DOCKER_CONFIG: join(this.#residue.directory, 'client') };
  }

  /** Runs the docker command line client to its end. Fails with what it wrote. */
  async docker(...args: readonly string[]): Promise<string> {
    return await runDocker(this.environment, args);
  }

  /** Brings an image of the tests in, and returns its reference. */
  async import(image: ImageName): Promise<string> {
    await this.docker('import', '--change', 'CMD ["sh"]', await imageFile(image), IMAGES[image]);
    return IMAGES[image];
  }

  /** Ends the daemon; its containers live on or not, as `liveRestore` says (with SIGKILL they do). */
  async halt(signal: 'SIGTERM' | 'SIGKILL' = 'SIGTERM'): Promise<void> {
    const child = this.#process;
    if (child === null) return;
    this.#process = null;
    const ended = new Promise<void>(resolve => child.once('exit', () => resolve()));
    child.kill(signal);
    const timer = setTimeout(() => child.kill('SIGKILL'), STOP_TIMEOUT_MS);
    await ended;
    clearTimeout(timer);
    // A killed daemon leaves its pid file and that of its containerd, which ends with it; a next one would believe a recycled pid.
    const { directory } = this.#residue;
    const containerd = join(directory, 'exec/containerd/containerd.pid');
    if (existsSync(containerd)) await killProcesses([Number(readFileSync(containerd, 'utf8'))]);
    await Promise.all([rm(containerd, { force: true }), rm(join(directory, 'pid'), { force: true })]);
  }

  /**
   * Starts the daemon again after `halt`, on the same files. A daemon that finds a default network of an earlier start, and has
   * `default-address-pools` but no `live-restore`, deletes the interface `docker0` whoever made it (moby, `initNetworkController`). So
   * it begins again without the pools: dockerd chooses ranges that no route of the machine has.
   */
  async resume(): Promise<void> {
    const file = join(this.#residue.directory, 'daemon.json');
    const { 'default-address-pools': _pools, ...config } = JSON.parse(readFileSync(file, 'utf8')) as DaemonConfig;
    if (!config['live-restore']) writeFileSync(file, JSON.stringify(config));
    await withDaemonsLeftAlone(() => this.#launch());
  }

  /** Once more when it ends: another daemon may have changed the packet filter in the very moment in which this one did. */
  async #launch(): Promise<void> {
    await this.#tryLaunch().catch(() => this.#tryLaunch());
  }

  async #tryLaunch(): Promise<void> {
    const { directory } = this.#residue;
    const log = openSync(join(directory, 'log'), 'a');
    // It must not outlive the tests, whatever becomes of them.
    const args = ['--pdeathsig', 'SIGTERM', 'dockerd', '--config-file', join(directory, 'daemon.json')];
    // A containerd that is slow to end writes what it does into the temporary directory.
    const child = spawn('setpriv', args, { stdio: ['ignore', log, log], env: { ...process.env, TMPDIR: directory } });
    closeSync(log);
    this.#process = child;
    let failure: string | null = null;
    child.once('error', error => {
      failure = error.message;
    });
    child.once('exit', code => {
      failure = `it ended with ${code}`;
    });
    const giveUpAt = Date.now() + START_TIMEOUT_MS;
    while (failure === null && Date.now() < giveUpAt) {
      if (existsSync(join(directory, 'docker.sock')) && (await this.#answers())) return;
      await delay(50);
    }
    child.kill('SIGKILL');
    this.#process = null;
    const said = readFileSync(join(directory, 'log'), 'utf8').slice(-LOG_TAIL_CHARS);
    throw new Error(`dockerd did not start: ${failure ?? `it did not answer within ${START_TIMEOUT_MS} ms`}\n${said}`);
  }

  async #answers(): Promise<boolean> {
    try {
      await this.docker('version', '--format', '{{.Server.Version}}');
      return true;
    } catch {
      return false;
    }
  }

  /** Ends it with everything that it runs and removes everything that it made. */
  async stop(): Promise<void> {
    if (this.#process !== null) {
      const containers = await this.docker('ps', '--all', '--quiet').catch(() => '');
      if (containers !== '') await this.docker('rm', '--force', ...containers.split('\n')).catch(() => '');
      await this.docker('network', 'prune', '--force').catch(() => '');
    }
    await this.halt();
    await this.#remove();
  }

  async #remove(): Promise<void> {
    await withMachineLock('docker-residue', LOCK_TIMEOUT_MS, () => removeResidue(this.#residue));
    await rm(this.#residue.directory, { recursive: true, force: true, maxRetries: 5 });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }
}

/**
 * A daemon that starts empties the chains of packet rules that all daemons of a machine share: what is true of the networks of another one
 * is true only of those that it makes afterwards. So no daemon starts during `body`.
 */
export function withDaemonsLeftAlone<T>(body: () => Promise<T>): Promise<T> {
  return withMachineLock('docker', LOCK_TIMEOUT_MS, body);
}

/** Runs the docker command line client to its end. Fails with what it wrote. */
export async function runDocker(
  environment: Readonly<Record<string, string>>,
  args: readonly string[],
): Promise<string> {
  const { stdout } = await execute('docker', args, {
    env: { ...process.env, ...environment, DOCKER_CONTEXT: '' },
    timeout: COMMAND_TIMEOUT_MS,
    maxBuffer: 64 * 1024 * 1024,
  });
  return stdout.trim();
}

/** A range of addresses that nothing on this machine uses. */
function freeRange(): number {
  const { stdout } = spawnSync('ip', ['-4', 'route', 'show', 'table', 'all'], { encoding: 'utf8' });
  const start = Math.floor(Math.random() * RANGES);
  for (let step = 0; step < RANGES; step += 1) {
    const range = FIRST_RANGE + ((start + step) % RANGES);
    if (!stdout.includes(` 10.${range}.`) && !stdout.includes(`\n10.${range}.`)) return range;
  }
  throw new Error(`every range from 10.${FIRST_RANGE}.0.0/16 on is used by an interface of this machine`);
}
