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

/** Timeout for a machine that is busy with other tests. */
const START_TIMEOUT_MS = 60_000;
const STOP_TIMEOUT_MS = 40_000;
const LOCK_TIMEOUT_MS = 120_000;
const COMMAND_TIMEOUT_MS = 120_000;
const LOG_TAIL_CHARS = 2_000;
/** Second octet of the first range; `10.<n>.0.0/16` belongs to one daemon. */
const FIRST_RANGE = 128;
const RANGES = 64;

/** Programs that a test's daemon needs, with their Debian packages. */
const NEEDED: readonly (readonly [program: string, inPackage: string])[] = [
  ['dockerd', 'docker.io'],
  ['docker', 'docker.io'],
  ['containerd', 'containerd'],
  ['runc', 'runc'],
  ['iptables', 'iptables'],
  ['ip', 'iproute2'],
  ['debootstrap', 'debootstrap'],
];

/** Returns why no daemon can be started here, as a sentence, or null. */
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
  /** True if containers outlive the daemon; default false. */
  readonly liveRestore?: boolean;
  /** Images that `start` imports before it returns. */
  readonly images?: readonly ImageName[];
}

/**
 * A real Docker daemon with its own files, addresses and interfaces. It can run next to other daemons of the
 * machine. `stop` removes all residue, and the daemon ends with the process that started it.
 */
export class DockerDaemon implements AsyncDisposable {
  /** URL of the daemon, as in `DOCKER_HOST`. */
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
      // Namespaces in a containerd of the machine, for the case that the daemon uses that containerd.
      'containerd-namespace': residue.cgroup,
      'containerd-plugins-namespace': `${residue.cgroup}-plugins`,
      'live-restore': liveRestore,
      'shutdown-timeout': 5,
      'log-level': 'warn',
    };
    writeFileSync(join(directory, 'daemon.json'), JSON.stringify(config));
    try {
      // If Docker enabled forwarding itself, it would set the machine's FORWARD policy to DROP.
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

  /** The pid of the daemon itself, or null while it does not run. */
  get pid(): number | null {
    return this.#process?.pid ?? null;
  }

  /** Environment of a program that uses only this daemon. */
  get environment(): Readonly<Record<string, string>> {
    return { DOCKER_HOST: this.host, DOCKER_CONFIG: join(this.#residue.directory, 'client') };
  }

  /** Runs the docker command line client until it exits; returns stdout. Fails with its output. */
  async docker(...args: readonly string[]): Promise<string> {
    return await runDocker(this.environment, args);
  }

  /** Imports an image of the tests and returns its reference. */
  async import(image: ImageName): Promise<string> {
    await this.docker('import', '--change', 'CMD ["sh"]', await imageFile(image), IMAGES[image]);
    return IMAGES[image];
  }

  /** Ends the daemon. Its containers continue to run with `liveRestore` or after SIGKILL. */
  async halt(signal: 'SIGTERM' | 'SIGKILL' = 'SIGTERM'): Promise<void> {
    const child = this.#process;
    if (child === null) return;
    this.#process = null;
    const ended = new Promise<void>(resolve => child.once('exit', () => resolve()));
    child.kill(signal);
    const timer = setTimeout(() => child.kill('SIGKILL'), STOP_TIMEOUT_MS);
    await ended;
    clearTimeout(timer);
    // A killed daemon leaves its pid file and that of its containerd, which ends with it. The next daemon
    // would trust a recycled pid.
    const { directory } = this.#residue;
    const containerd = join(directory, 'exec/containerd/containerd.pid');
    if (existsSync(containerd)) await killProcesses([Number(readFileSync(containerd, 'utf8'))]);
    await Promise.all([rm(containerd, { force: true }), rm(join(directory, 'pid'), { force: true })]);
  }

  /**
   * Starts the daemon again after `halt` on the same files. With `default-address-pools` and without
   * `live-restore`, a restarted daemon deletes the interface `docker0` of any owner (moby,
   * `initNetworkController`). Therefore it restarts without the pools, and dockerd chooses ranges without a
   * route on this machine.
   */
  async resume(): Promise<void> {
    const file = join(this.#residue.directory, 'daemon.json');
    const { 'default-address-pools': _pools, ...config } = JSON.parse(readFileSync(file, 'utf8')) as DaemonConfig;
    if (!config['live-restore']) writeFileSync(file, JSON.stringify(config));
    await withDaemonsLeftAlone(() => this.#launch());
  }

  /** Starts the daemon, twice at most: another daemon may change the packet filter at the same moment. */
  async #launch(): Promise<void> {
    await this.#tryLaunch().catch(() => this.#tryLaunch());
  }

  async #tryLaunch(): Promise<void> {
    const { directory } = this.#residue;
    const log = openSync(join(directory, 'log'), 'a');
    // The daemon must not outlive the tests in any case.
    const args = ['--pdeathsig', 'SIGTERM', 'dockerd', '--config-file', join(directory, 'daemon.json')];
    // A containerd that ends slowly writes into the temporary directory.
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

  /** Ends the daemon with its containers and removes everything that it made. */
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
 * Runs `body` while no daemon starts. A starting daemon empties the packet rule chains that all daemons
 * share. Afterwards the rules of another daemon hold only for its newer networks.
 */
export function withDaemonsLeftAlone<T>(body: () => Promise<T>): Promise<T> {
  return withMachineLock('docker', LOCK_TIMEOUT_MS, body);
}

/** Runs the docker command line client until it exits; returns stdout. Fails with its output. */
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

/** Returns the second octet of an address range that this machine does not use. */
function freeRange(): number {
  const { stdout } = spawnSync('ip', ['-4', 'route', 'show', 'table', 'all'], { encoding: 'utf8' });
  const start = Math.floor(Math.random() * RANGES);
  for (let step = 0; step < RANGES; step += 1) {
    const range = FIRST_RANGE + ((start + step) % RANGES);
    if (!stdout.includes(` 10.${range}.`) && !stdout.includes(`\n10.${range}.`)) return range;
  }
  throw new Error(`every range from 10.${FIRST_RANGE}.0.0/16 on is used by an interface of this machine`);
}
