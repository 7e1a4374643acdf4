import { randomUUID } from 'node:crypto';
import { mkdir, readdir, readFile, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Environment } from '../../core/environment.ts';
import { failedPrecondition, messageOf, type ServiceError, unavailable } from '../../core/error.ts';
import type { HostPathPolicy } from '../../core/host-path.ts';
import { Counter } from '../../lib/counter.ts';
import { within } from '../../lib/deadline.ts';
import { OpenedLog } from '../../lib/opened-log.ts';
import { findPythonDir } from '../../lib/own-paths.ts';
import type { Removals } from '../../lib/removals.ts';
import type { Logger } from '../../telemetry/logger.ts';
import type { SandboxAccess } from '../access.ts';
import type {
  DriverImages,
  ExecRequest,
  ExecResult,
  ExitResult,
  ListedSandbox,
  LogChunks,
  LogRequest,
  ProbeResult,
  SandboxDriver,
  SandboxHandle,
  SandboxSpec,
  SandboxState,
  SandboxStats,
  StartedSandbox,
} from '../driver.ts';
import { ContainerAccess } from './access.ts';
import { AccountsAccess } from './accounts-access.ts';
import { BridgeRules } from './bridge-rules.ts';
import { ContainerEntry, OpenAccesses } from './container-entry.ts';
import { Exits, inspectState, unknownExit } from './container-exits.ts';
import { readStats, removeContainer } from './container-requests.ts';
import { ContainerStarter } from './container-starter.ts';
import { askDaemon, type DaemonFacts, refuseWithoutIsolation, SecurityOptions } from './daemon.ts';
import { Engine, LABEL_ACCOUNTS, LABEL_INSTALLATION, LABEL_INSTANCE, statusOf } from './engine.ts';
import { runCommand } from './exec.ts';
import { HostPython } from './host-python.ts';
import { ImagePrograms } from './image-programs.ts';
import { Images, type RegistryRules } from './images.ts';
import { readLogs } from './logs.ts';
import { bridgesOf, TenantNetworks } from './networks.ts';
import { type DockerSandbox, makeHandle, readHandle } from './sandbox-directory.ts';
import { factsOf } from './started-facts.ts';
import { installationFile, refuseForeignTemplate, TemplateImages } from './template-images.ts';

const PROBE_TIMEOUT_MS = 5_000;
const DEFAULT_PULL_TIMEOUT_MS = 600_000;
const ANY_REGISTRY: RegistryRules = { named: null, onlyNamed: false };
/** Longest delay that a timer supports. */
const NO_TIMEOUT_MS = 2 ** 31 - 1;
/** Time limit for the end of a killed container and for the clean-up of networks at shutdown. */
const KILL_TIMEOUT_MS = 10_000;

export interface DockerDriverOptions {
  /** Data directory of the server, resolved. Sockets of sandboxes are in `run/docker` below it. */
  readonly dataDir: string;
  /** Paths that may not be mounted; checked again at the mount. */
  readonly mountPolicy: HostPathPolicy;
  readonly removals: Removals;
  readonly logger: Logger;
  /**
   * Environment of the server: selects the daemon, the registry logins and the Python of the host. The rules
   * for daemon and logins are those of Docker's own command line.
   */
  readonly environment: Environment;
  /** The daemon; null finds it as Docker's own command line does. */
  readonly host?: string | null;
  readonly pullTimeoutMs?: number;
  /**
   * Registries from which images may be pulled. Absent: all registries, with tokens only for the large public
   * ones.
   */
  readonly registries?: RegistryRules;
  /** The directory of `rookery_runtime`; absent uses this installation's. */
  readonly pythonDir?: string;
}

/** Parts that exist once the driver has found the daemon. */
interface Parts {
  readonly engine: Engine;
  readonly exits: Exits;
  readonly networks: TenantNetworks;
  readonly rules: BridgeRules;
  readonly starter: ContainerStarter;
  readonly security: SecurityOptions;
  readonly installation: string;
  readonly entry: ContainerEntry;
  readonly accesses: OpenAccesses;
}

/** Runs instances as containers of a Docker daemon on this machine. See docs/operate/docker.md. */
export class DockerDriver implements SandboxDriver {
  readonly name = 'docker';
  readonly #options: DockerDriverOptions;
  readonly #dockerDir: string;
  readonly images: DriverImages;
  #parts: Promise<Parts> | undefined;
  #facts: Promise<DaemonFacts> | undefined;
  /** Container → number of open commands. */
  readonly #commands = new Counter();
  #isClosed = false;

  constructor(options: DockerDriverOptions) {
    this.#options = options;
    const dockerDir = join(options.dataDir, 'run', 'docker');
    this.#dockerDir = dockerDir;
    this.images = new TemplateImages({
      dockerDir,
      installation: () => installationOf(dockerDir),
      // A connection of its own: on a machine without a daemon nothing of this driver may come into being.
      connect: async work => {
        const engine = await Engine.open(options.host ?? null, options.environment);
        try {
          return await work(engine);
        } finally {
          engine.close();
        }
      },
    });
  }

  async probe(): Promise<ProbeResult> {
    try {
      // A new connection shows whether the daemon answers now; `#facts` may be stale.
      const engine = await Engine.open(this.#options.host ?? null, this.#options.environment);
      // A random prefix matches no bridge, so that the probe leaves existing bridges alone.
      const rules = new BridgeRules(
        new HostPython(this.#options.pythonDir ?? findPythonDir(), this.#options.environment),
        bridgesOf(randomUUID()),
      );
      try {
        const late = `the daemon at ${engine.endpoint.host} did not answer within ${PROBE_TIMEOUT_MS / 1000} s`;
        const facts = await within(askDaemon(engine, rules), PROBE_TIMEOUT_MS, late);
        return {
          available: true,
          capabilities: {
            images: true,
            mounts: true,
            ports: true,
            users: true,
            cpuLimit: facts.hasCpuLimit,
            memoryLimit: facts.hasMemoryLimit,
            pidsLimit: facts.hasPidsLimit,
            exec: true,
            isolation: facts.isolation,
          },
          degraded: facts.degraded,
        };
      } finally {
        engine.close();
      }
    } catch (error) {
      return { available: false, reason: messageOf(error) };
    }
  }

  async warm(): Promise<void> {
    try {
      const { exits, security } = await this.#open();
      await Promise.all([exits.open(), this.#daemonFacts(), security.get()]);
    } catch (error) {
      this.#options.logger.warn({ error: messageOf(error) }, 'docker is not available');
    }
  }

  async start(spec: SandboxSpec, signal: AbortSignal): Promise<StartedSandbox> {
    if (spec.rootfs.imageUrl === '') throw noImage();
    const { engine, starter } = await this.#open();
    // Start the query early; only a spec that requires isolation waits for it before the start.
    const asking = this.#daemonFacts();
    asking.catch(() => undefined);
    if (spec.requireIsolation) refuseWithoutIsolation(spec, await asking);
    await refuseForeignTemplate(engine, spec);
    const started = await starter.start(spec, signal);
    const handle = makeHandle(this.#dockerDir, spec.instanceId, started.id, spec.hasAccounts);
    return { handle, endpoint: handle.endpoint, facts: await factsOf(spec, started, await asking) };
  }

  async wait(handle: SandboxHandle, signal?: AbortSignal): Promise<ExitResult> {
    const { container } = readHandle(handle);
    const { exits } = await this.#open();
    const ended = container === '' ? Promise.resolve(unknownExit()) : exits.wait(container);
    if (signal === undefined) return await ended;
    return await within(ended, NO_TIMEOUT_MS, 'the sandbox has not ended', signal);
  }

  async stop(handle: SandboxHandle, graceMs: number): Promise<void> {
    const { container } = readHandle(handle);
    if (container === '') return;
    const { exits } = await this.#open();
    const ended = exits.wait(container);
    exits.isEnding(container);
    ended.catch(() => undefined);
    if (graceMs > 0) {
      if (!(await this.#signal(container, 'SIGTERM'))) return;
      if (await endsWithin(ended, graceMs)) return;
    }
    if (!(await this.#signal(container, 'SIGKILL'))) return;
    await within(ended, KILL_TIMEOUT_MS, `the container of ${handle.instanceId} did not end although it was killed`);
  }

  async pause(handle: SandboxHandle): Promise<void> {
    const { engine } = await this.#open();
    const container = this.#containerOf(handle);
    if ((await inspectState(engine, container)) === 'paused') return;
    await engine.request('pause the container', docker => docker.getContainer(container).pause());
  }

  async resume(handle: SandboxHandle): Promise<void> {
    const { engine } = await this.#open();
    const container = this.#containerOf(handle);
    if ((await inspectState(engine, container)) !== 'paused') return;
    await engine.request('resume the container', docker => docker.getContainer(container).unpause());
  }

  async remove(handle: SandboxHandle): Promise<void> {
    const { container, directory } = readHandle(handle);
    const { engine, exits, networks } = await this.#open();
    if (container !== '') {
      exits.isEnding(container);
      await removeContainer(engine, container);
      exits.forget(container);
      networks.removeUnusedSoon();
    }
    await this.#options.removals.remove(directory);
  }

  async inspect(handle: SandboxHandle): Promise<SandboxState> {
    const { container } = readHandle(handle);
    if (container === '') return { state: 'gone' };
    const { engine } = await this.#open();
    const state = await inspectState(engine, container);
    if (state === 'running' || state === 'paused' || state === 'gone') return { state };
    // The server ended after it created the container and before it started it.
    return { state: 'exited', exit: state === 'created' ? unknownExit() : state };
  }

  async list(): Promise<readonly ListedSandbox[]> {
    const { engine, installation } = await this.#open();
    const filters = { label: [`${LABEL_INSTALLATION}=${installation}`, LABEL_INSTANCE] };
    const [containers, directories] = await Promise.all([
      engine.request('list containers', docker => docker.listContainers({ all: true, filters })),
      readdir(this.#dockerDir, { withFileTypes: true }).catch(() => []),
    ]);
    const listed = containers.map(({ Id: id, Labels: labels, State: state }) => {
      const instanceId = labels[LABEL_INSTANCE] ?? '';
      return {
        instanceId,
        handle: makeHandle(this.#dockerDir, instanceId, id, LABEL_ACCOUNTS in labels),
        running: state === 'running' || state === 'paused',
      };
    });
    const known = new Set(listed.map(({ instanceId }) => instanceId));
    const left = directories
      .filter(entry => entry.isDirectory() && !known.has(entry.name))
      .map(({ name }) => ({ instanceId: name, handle: makeHandle(this.#dockerDir, name, ''), running: false }));
    return [...listed, ...left];
  }

  async exec(handle: SandboxHandle, request: ExecRequest, signal: AbortSignal): Promise<ExecResult> {
    const of = readHandle(handle);
    if (of.hasAccounts) return await this.#accountsAccess(of).exec(request, signal);
    const { engine } = await this.#open();
    return await runCommand(engine, this.#containerOf(handle), request, signal, this.#options.logger);
  }

  async stats(handle: SandboxHandle): Promise<SandboxStats> {
    const { engine } = await this.#open();
    return await readStats(engine, this.#containerOf(handle));
  }

  logs(handle: SandboxHandle, request: LogRequest, signal: AbortSignal): LogChunks {
    return new OpenedLog(() => this.#readLogs(handle, request, signal));
  }

  async *#readLogs(handle: SandboxHandle, request: LogRequest, signal: AbortSignal): AsyncGenerator<Buffer> {
    const { container } = readHandle(handle);
    if (container === '') return;
    const { engine } = await this.#open();
    yield* readLogs(engine, container, request, signal);
  }

  access(handle: SandboxHandle): SandboxAccess {
    const of = readHandle(handle);
    if (of.hasAccounts) return this.#accountsAccess(of);
    const { container, instanceId } = of;
    const parts = async () => ({ ...(await this.#open()), logger: this.#options.logger, commands: this.#commands });
    return new ContainerAccess(parts, instanceId, container);
  }

  #accountsAccess(of: DockerSandbox): AccountsAccess {
    return new AccountsAccess(async () => (await this.#open()).engine, of);
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    const parts = await this.#parts?.catch(() => undefined);
    if (parts === undefined) return;
    // A stopped server needs no networks that have no containers.
    await within(parts.networks.removeUnused(), KILL_TIMEOUT_MS, 'docker did not answer in time').catch(error =>
      this.#options.logger.warn({ err: error }, 'cannot remove docker networks'),
    );
    await parts.rules.released();
    parts.exits.close();
    await parts.entry.close();
    parts.engine.close();
  }

  #open(): Promise<Parts> {
    if (this.#isClosed) return Promise.reject(unavailable('the docker driver is closed'));
    if (this.#parts === undefined) {
      const opening = this.#connect();
      this.#parts = opening;
      opening.catch(() => {
        this.#parts = undefined;
      });
    }
    return this.#parts;
  }

  async #connect(): Promise<Parts> {
    const { logger, host, pullTimeoutMs, mountPolicy, registries, environment } = this.#options;
    const pythonDir = this.#options.pythonDir ?? findPythonDir();
    const hostPython = new HostPython(pythonDir, environment);
    await mkdir(this.#dockerDir, { recursive: true, mode: 0o700 });
    const [engine, installation] = await Promise.all([
      Engine.open(host ?? null, environment),
      installationOf(this.#dockerDir),
    ]);
    const exits = new Exits(engine, installation, logger);
    const images = new Images(engine, logger, {
      pullTimeoutMs: pullTimeoutMs ?? DEFAULT_PULL_TIMEOUT_MS,
      registries: registries ?? ANY_REGISTRY,
      environment,
    });
    const rules = new BridgeRules(hostPython, bridgesOf(installation));
    const networks = new TenantNetworks(engine, installation, rules, logger);
    const security = new SecurityOptions(engine, pythonDir);
    const entry = new ContainerEntry(hostPython, this.#dockerDir);
    const starter = new ContainerStarter({
      entry,
      engine,
      exits,
      images,
      imagePrograms: new ImagePrograms(engine, images, installation, security),
      security,
      hostPython,
      networks,
      installation,
      removals: this.#options.removals,
      logger,
      dockerDir: this.#dockerDir,
      mountPolicy,
      pythonDir,
    });
    const accesses = new OpenAccesses(container => exits.wait(container));
    return { engine, exits, networks, rules, starter, security, installation, entry, accesses };
  }

  #daemonFacts(): Promise<DaemonFacts> {
    if (this.#facts === undefined) {
      const asking = this.#open().then(({ engine, rules }) => askDaemon(engine, rules));
      this.#facts = asking;
      asking.catch(() => {
        this.#facts = undefined;
      });
    }
    return this.#facts;
  }

  #containerOf(handle: SandboxHandle): string {
    const { container, instanceId } = readHandle(handle);
    if (container === '') throw failedPrecondition(`the sandbox of ${instanceId} does not run`);
    return container;
  }

  /** Sends a signal. Returns false when the container does not run. */
  async #signal(container: string, signal: string): Promise<boolean> {
    const { engine } = await this.#open();
    try {
      await engine.request('send a signal', docker => docker.getContainer(container).kill({ signal }));
      return true;
    } catch (error) {
      const status = statusOf(error);
      if (status === 404 || status === 409) return false;
      throw error;
    }
  }
}

async function endsWithin(ended: Promise<ExitResult>, timeoutMs: number): Promise<boolean> {
  try {
    await within(ended, timeoutMs, 'it has not ended');
    return true;
  } catch {
    return false;
  }
}

/**
 * Returns the id that marks this server's containers on a shared daemon. The id is stored in the data
 * directory.
 */
async function installationOf(dockerDir: string): Promise<string> {
  const file = installationFile(dockerDir);
  const known = (await readFile(file, 'utf8').catch(() => '')).trim();
  if (known !== '') return known;
  const made = randomUUID();
  await writeFile(`${file}.new`, made);
  await rename(`${file}.new`, file);
  return made;
}

function noImage(): ServiceError {
  return failedPrecondition('no Docker image specified', {
    advice:
      'Name one in rootfs.imageurl, of the create request or of the registered function: one that the daemon has (docker images) or can pull.',
  });
}
