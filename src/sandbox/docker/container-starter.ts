import { join } from 'node:path';
import type Docker from 'dockerode';
import { LRUCache } from 'lru-cache';
import { deadlineExceeded, failedPrecondition, ServiceError } from '../../core/error.ts';
import type { HostPathPolicy } from '../../core/host-path.ts';
import { endsWithin } from '../../lib/deadline.ts';
import { onAbort } from '../../lib/linked-signal.ts';
import type { Removals } from '../../lib/removals.ts';
import type { Logger } from '../../telemetry/logger.ts';
import type { ExitResult, SandboxSpec } from '../driver.ts';
import { ACCOUNTS_ARGV, type AccountsOrders, accountsOrders, initMount } from './accounts.ts';
import { containerName, containerOptions } from './container.ts';
import { type ContainerEntry, mayEnter } from './container-entry.ts';
import type { Exits } from './container-exits.ts';
import { removeContainer, statInside } from './container-requests.ts';
import type { SecurityOptions } from './daemon.ts';
import { socketPathOf } from './endpoint.ts';
import { type Engine, statusOf } from './engine.ts';
import type { HostPython } from './host-python.ts';
import { Bridge } from './image-bridge.ts';
import type { ImagePrograms } from './image-programs.ts';
import { type Images, missingImage } from './images.ts';
import { type CheckedMount, checkMounts, checkTargets, verifyMounts } from './mounts.ts';
import type { NetworkLease, TenantNetworks } from './networks.ts';
import {
  EXIT_OTHER_PYTHON,
  INSIDE_RUNTIME,
  interpreterArgv,
  interpreterNames,
  missingPython,
  NO_PYTHON,
  type PythonOrders,
  pythonNeed,
} from './python.ts';
import { explainEnd, refusalOf } from './refusals.ts';
import {
  INSIDE_DIRECTORY,
  INSIDE_SOCKET,
  makeDirectory,
  SocketWatch,
  sandboxDirectory,
  sharedPath,
  socketPath,
} from './sandbox-directory.ts';

/** Number of images whose interpreter is remembered. */
const MOST_IMAGES = 1000;
/**
 * Time limit of the daemon for a start. The daemon is slow when it starts many at once; the create's own
 * limit is usually shorter.
 */
const START_TIMEOUT_MS = 120_000;
const EXIT_NOT_FOUND = 127;
/** Maximum delay of the daemon's exit event behind other signs of the end. */
const END_TIMEOUT_MS = 500;
/** Variables that tell a program where to listen and which secret opens each connection. */
const SOCKET_VARIABLE = 'ROOKERY_RUNTIME_SOCKET';
const SECRET_VARIABLE = 'ROOKERY_RUNTIME_SECRET';

export interface StarterOptions {
  readonly engine: Engine;
  readonly exits: Exits;
  readonly images: Images;
  readonly imagePrograms: ImagePrograms;
  readonly security: SecurityOptions;
  readonly hostPython: HostPython;
  readonly networks: TenantNetworks;
  readonly entry: Pick<ContainerEntry, 'seal'>;
  readonly installation: string;
  readonly removals: Removals;
  readonly logger: Logger;
  /** Directory that contains the directories of sandboxes. */
  readonly dockerDir: string;
  readonly mountPolicy: HostPathPolicy;
  /** The directory of `rookery_runtime` and `rookery_zygote` on the host. */
  readonly pythonDir: string;
}

/** Container whose runtime accepts connections. */
export interface StartedContainer {
  readonly id: string;
  readonly inspected: Docker.ContainerInspectInfo;
  readonly mounts: readonly CheckedMount[];
  /** Requests that the daemon could not satisfy. */
  readonly warnings: readonly string[];
}

interface Attempt {
  readonly spec: SandboxSpec;
  readonly mounts: readonly CheckedMount[];
  readonly network: NetworkLease | null;
  /** Command line; null runs the image's own command. */
  readonly argv: readonly string[] | null;
  readonly orders: PythonOrders | AccountsOrders | null;
  readonly signal: AbortSignal;
}

/** The interpreter is missing or of another version; another name of it may fit. */
class OtherProgram extends Error {}

/** The tenant's network was removed after its creation. */
class NetworkGone extends ServiceError {
  constructor(message: string) {
    super('failed_precondition', message);
  }
}

/** Starts containers. A normal start sends the daemon three requests: create, start, inspect. */
export class ContainerStarter {
  readonly #options: StarterOptions;
  /** Image and Python version → name of the interpreter in the image; null: the image has none. */
  readonly #interpreters = new LRUCache<string, { readonly name: string | null }>({ max: MOST_IMAGES });

  constructor(options: StarterOptions) {
    this.#options = options;
  }

  /** Starts a container, as `SandboxDriver.start` defines. */
  async start(spec: SandboxSpec, signal: AbortSignal): Promise<StartedContainer> {
    try {
      return await this.#startOnce(spec, signal);
    } catch (error) {
      if (!(error instanceof NetworkGone)) throw error;
      // Another program removed the network after its creation (`docker network prune`).
      this.#options.networks.forget(spec.tenant);
      return await this.#startOnce(spec, signal);
    }
  }

  async #startOnce(spec: SandboxSpec, signal: AbortSignal): Promise<StartedContainer> {
    const { networks, mountPolicy, engine } = this.#options;
    const python = spec.hasAccounts === true ? NO_PYTHON : pythonNeed(spec);
    checkTargets(spec.mounts, [INSIDE_DIRECTORY, ...(python.need === 'none' ? [] : [INSIDE_RUNTIME])]);
    const [mounts, network] = await settleBoth(
      checkMounts(spec, mountPolicy, socketPathOf(engine.endpoint)),
      spec.network === 'none' ? Promise.resolve(null) : networks.lease(spec.tenant),
      lease => lease?.release(),
    );
    try {
      const { command, rootfs } = spec;
      if (command.kind === 'exec' && command.imageProgram !== undefined) {
        await this.#options.imagePrograms.assertVersion(rootfs.imageUrl, command.imageProgram, signal);
      }
      const attempt = { spec, mounts, network, signal };
      if (spec.hasAccounts === true) return await this.#startWithAccounts(attempt);
      if (python.need !== 'none') {
        const started = await this.#startOnPython(attempt, python.orders, python.need === 'must');
        if (started !== null) return started;
      }
      const argv = 'argv' in command ? command.argv : null;
      return await this.#try({ ...attempt, argv, orders: null });
    } finally {
      network?.release();
    }
  }

  #startWithAccounts(attempt: Omit<Attempt, 'argv' | 'orders'>): Promise<StartedContainer> {
    const mounts = [...attempt.mounts, initMount(this.#options.pythonDir)];
    return this.#try({ ...attempt, mounts, argv: ACCOUNTS_ARGV, orders: accountsOrders(attempt.spec) });
  }

  /**
   * Starts with the image's Python. Returns null when the image has no fitting one and `isNeeded` is false.
   */
  async #startOnPython(
    attempt: Omit<Attempt, 'argv' | 'orders'>,
    orders: PythonOrders,
    isNeeded: boolean,
  ): Promise<StartedContainer | null> {
    const { imageUrl } = attempt.spec.rootfs;
    const mounts = [
      ...attempt.mounts,
      {
        source: join(this.#options.pythonDir, 'rookery_runtime'),
        target: INSIDE_RUNTIME,
        readonly: true,
        ownerUid: null,
      },
    ];
    const key = `${orders.version} ${imageUrl}`;
    const known = this.#interpreters.get(key);
    if (known?.name === null && !isNeeded) return null;
    const names = interpreterNames(orders.version);
    const ordered = known?.name ? [known.name, ...names.filter(name => name !== known.name)] : names;
    const looked: string[] = [];
    for (const name of ordered) {
      try {
        const started = await this.#try({ ...attempt, mounts, orders, argv: interpreterArgv(name) });
        this.#interpreters.set(key, { name });
        return started;
      } catch (error) {
        if (!(error instanceof OtherProgram)) throw error;
        looked.push(`${name}: ${error.message}`);
      }
    }
    this.#interpreters.set(key, { name: null });
    if (!isNeeded) return null;
    throw failedPrecondition(missingPython(attempt.spec, looked));
  }

  /** Starts one container and waits until it listens. Removes the container and its directory on failure. */
  async #try(attempt: Attempt): Promise<StartedContainer> {
    const { dockerDir } = this.#options;
    const { spec, signal, orders } = attempt;
    assertWanted(signal);
    const directory = sandboxDirectory(dockerDir, spec.instanceId);
    let watch: SocketWatch | undefined;
    let bridge: Bridge | undefined;
    let id: string | undefined;
    try {
      await makeDirectory(directory, orders, this.#options.removals);
      watch = new SocketWatch(directory);
      // The bridge starts while the daemon creates the container.
      if (spec.command.kind === 'image') bridge = await Bridge.start(this.#options.hostPython);
      const made = await this.#make(attempt, directory);
      id = made.id;
      assertWanted(signal);
      const inspected = await this.#run(attempt, id, async running => {
        if (bridge !== undefined) await bridge.serve(spec, await running, socketPath(directory), signal);
        else await watch?.ready();
      });
      if (bridge === undefined) await watch.claim();
      if (spec.hasAccounts === true) {
        await watch.claimControl();
        if (mayEnter())
          await this.#options.entry.seal({ container: id, pid: inspected.State.Pid, workingDir: '/' }, signal);
      }
      return { id, inspected, mounts: attempt.mounts, warnings: made.warnings };
    } catch (error) {
      await this.#undo(id, directory);
      throw error;
    } finally {
      watch?.close();
      bridge?.close();
    }
  }

  /**
   * Removes a failed container. If that fails, a reconciler pass removes it later, because it has no record.
   */
  async #undo(id: string | undefined, directory: string): Promise<void> {
    try {
      if (id !== undefined) await this.#removeContainer(id);
      await this.#options.removals.remove(directory);
    } catch (error) {
      this.#options.logger.warn({ container: id, err: error }, 'removal of a container that did not start failed');
    }
  }

  /** Creates the container. Sets `HOME` to `/tmp` when the image has no home directory for the user. */
  async #make(attempt: Attempt, directory: string): Promise<{ id: string; warnings: readonly string[] }> {
    const made = await this.#makeAs(attempt, directory);
    const { env, mounts, rootfs } = attempt.spec;
    const home = env.HOME ?? '';
    const isGuess = rootfs.user !== '' && home.startsWith('/home/') && !mounts.some(({ target }) => target === home);
    if (!isGuess || (await statInside(this.#options.engine, made.id, home))?.isDirectory === true) return made;
    await this.#removeContainer(made.id);
    return await this.#makeAs({ ...attempt, spec: { ...attempt.spec, env: { ...env, HOME: '/tmp' } } }, directory);
  }

  /** Creates the container; pulls its image when it is missing. */
  async #makeAs(attempt: Attempt, directory: string): Promise<{ id: string; warnings: readonly string[] }> {
    const { engine, images, installation, security } = this.#options;
    const { spec, signal, mounts, network, argv, orders } = attempt;
    const options = containerOptions({
      spec,
      installation,
      shared: sharedPath(directory),
      mounts,
      network: network?.name ?? 'none',
      argv,
      securityOptions: await security.get(),
      env: orders === null && argv !== null ? { [SOCKET_VARIABLE]: INSIDE_SOCKET, [SECRET_VARIABLE]: spec.secret } : {},
    });
    // The library's own method drops the daemon's warnings.
    const create = () => engine.request('make the container', docker => createContainer(docker, options));
    try {
      return await create();
    } catch (error) {
      const status = statusOf(error);
      if (status === 404 && spec.hasAccounts === true) throw missingImage(spec.rootfs.imageUrl);
      if (status === 404) await images.pull(spec.rootfs.imageUrl, signal);
      // Instance ids are unique, so the container is residue of an earlier start of this instance.
      else if (status === 409) await this.#removeContainer(containerName(spec.instanceId));
      else throw refusalOf(spec, error);
    }
    assertWanted(signal);
    try {
      return await create();
    } catch (error) {
      throw refusalOf(spec, error);
    }
  }

  /** Starts the container and waits until `ready` reports that the runtime listens. */
  async #run(
    attempt: Attempt,
    id: string,
    ready: (running: Promise<Docker.ContainerInspectInfo>) => Promise<void>,
  ): Promise<Docker.ContainerInspectInfo> {
    const { engine, exits } = this.#options;
    const { spec, signal } = attempt;
    await exits.open();
    const ended = exits.expect(id);
    try {
      await engine.request('start the container', docker => docker.getContainer(id).start(), START_TIMEOUT_MS);
    } catch (error) {
      const refusal = refusalOf(spec, error);
      throw /network \S+ not found/.test(refusal.message) ? new NetworkGone(refusal.message) : refusal;
    }
    assertWanted(signal);
    const inspecting = engine.request('inspect the container', docker => docker.getContainer(id).inspect());
    const verified = inspecting.then(async inspected => {
      await verifyMounts(inspected.State.Pid, attempt.mounts);
      return inspected;
    });
    verified.catch(() => undefined);
    const exit = await firstOf(unlessEnded(ready(inspecting), ended), ended, signal);
    if (exit === null) return await verified;
    throw await this.#explainExit(attempt, id, exit);
  }

  async #explainExit({ spec, orders }: Attempt, id: string, exit: ExitResult): Promise<Error> {
    const isPython = orders !== null && 'mode' in orders;
    if (isPython && exit.code === EXIT_OTHER_PYTHON) return new OtherProgram('it is of another version');
    if (isPython && exit.code === EXIT_NOT_FOUND) return new OtherProgram('it does not exist');
    return failedPrecondition(await explainEnd(this.#options.engine, id, spec, exit));
  }

  async #removeContainer(id: string): Promise<void> {
    const { engine, exits, networks } = this.#options;
    exits.forget(id);
    await removeContainer(engine, id);
    networks.removeUnusedSoon();
  }
}

/** Creates a container and returns its warnings, which the library's own method drops. */
function createContainer(
  docker: Docker,
  options: Docker.ContainerCreateOptions,
): Promise<{ id: string; warnings: readonly string[] }> {
  const { name, ...body } = options;
  return new Promise((resolve, reject) => {
    docker.modem.dial(
      {
        path: '/containers/create?',
        method: 'POST',
        options: { _query: { name }, _body: body },
        statusCodes: { 201: true, 400: 'bad parameter', 404: 'no such image', 409: 'conflict', 500: 'server error' },
      },
      (error, data) => {
        if (error) return reject(error);
        const { Id: id, Warnings: warnings } = data as { Id: string; Warnings: string[] | null };
        resolve({ id, warnings: warnings ?? [] });
      },
    );
  });
}

/** Delays the failure of `ready` by up to 500 ms, so that the container's end is reported instead. */
async function unlessEnded(ready: Promise<void>, ended: Promise<ExitResult>): Promise<void> {
  try {
    await ready;
  } catch (error) {
    await endsWithin(ended, END_TIMEOUT_MS);
    throw error;
  }
}

/**
 * Returns the container's exit, or null when `ready` was first. Fails with `deadline_exceeded` when `signal`
 * was first.
 */
async function firstOf(
  ready: Promise<void>,
  ended: Promise<ExitResult>,
  signal: AbortSignal,
): Promise<ExitResult | null> {
  let release!: () => void;
  const aborted = new Promise<never>((_resolve, reject) => {
    release = onAbort(signal, () => reject(tooLate()));
  });
  try {
    return await Promise.race([ready.then(() => null), ended, aborted]);
  } finally {
    release();
  }
}

/**
 * Waits for both values. When only the second succeeds, passes it to `release` before the failure is thrown.
 */
async function settleBoth<A, B>(first: Promise<A>, second: Promise<B>, release: (second: B) => void): Promise<[A, B]> {
  const [a, b] = await Promise.allSettled([first, second]);
  if (a.status === 'fulfilled' && b.status === 'fulfilled') return [a.value, b.value];
  if (b.status === 'fulfilled') release(b.value);
  throw a.status === 'rejected' ? a.reason : (b as PromiseRejectedResult).reason;
}

function assertWanted(signal: AbortSignal): void {
  if (signal.aborted) throw tooLate();
}

function tooLate(): Error {
  return deadlineExceeded('the sandbox did not start in time');
}
