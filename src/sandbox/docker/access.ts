import type { Duplex } from 'node:stream';
import type Docker from 'dockerode';
import { failedPrecondition, resourceExhausted, unavailable } from '../../core/error.ts';
import type { Counter } from '../../lib/counter.ts';
import type { Logger } from '../../telemetry/logger.ts';
import type { OpenExec, OpenExecRequest, SandboxAccess } from '../access.ts';
import type { OpenAccess } from '../host/access-connection.ts';
import { ProcessAccess } from '../host/access-processes.ts';
import { connectTcp } from '../host/connect-tcp.ts';
import { openCommand } from './access-exec.ts';
import { addressOf, type ContainerEntry, mayEnter, type OpenAccesses } from './container-entry.ts';
import { type Engine, statusOf } from './engine.ts';

/** Limit on open commands per container, as `SandboxAccess` documents it. */
const MOST_COMMANDS = 32;

/** Parts that the access objects of all containers of a driver share. */
export interface AccessParts {
  readonly engine: Engine;
  readonly entry: ContainerEntry;
  readonly accesses: OpenAccesses;
  readonly logger: Logger;
  /** Container → number of open commands. */
  readonly commands: Counter;
}

/**
 * Gives access to one container. The daemon runs commands. Ports and files are reached through a helper
 * process that enters the container; this needs a server that is root on the daemon's machine.
 */
export class ContainerAccess extends ProcessAccess implements SandboxAccess {
  readonly #open: () => Promise<AccessParts>;
  readonly #instanceId: string;
  readonly #container: string;

  /** `open` resolves to the shared parts once the driver has found the daemon. */
  constructor(open: () => Promise<AccessParts>, instanceId: string, container: string) {
    super();
    this.#open = open;
    this.#instanceId = instanceId;
    this.#container = container;
  }

  async openExec(request: OpenExecRequest, signal: AbortSignal): Promise<OpenExec> {
    const { engine, commands, logger } = await this.#parts();
    if (commands.get(this.#container) >= MOST_COMMANDS) {
      throw resourceExhausted(`too many commands are open in this sandbox (${MOST_COMMANDS})`);
    }
    commands.add(this.#container);
    const leave = () => commands.add(this.#container, -1);
    try {
      const command = await openCommand(engine, this.#container, request, signal, logger);
      command.ended.then(leave, leave);
      return command;
    } catch (error) {
      leave();
      throw error;
    }
  }

  async dial(port: number, signal: AbortSignal): Promise<Duplex> {
    if (mayEnter()) return (await this.openAccess('dial', { port }, signal)).socket;
    const address = addressOf(await this.#inspect());
    if (address === null) {
      throw failedPrecondition('a sandbox without a network can be reached only by a server that runs as root');
    }
    return await connectToAddress(address, port, signal);
  }

  protected readonly openAccess: OpenAccess = async (kind, request, signal) => {
    if (kind === 'exec') throw failedPrecondition('commands in containers are started by the daemon');
    if (kind === 'processes') throw failedPrecondition('processes that outlive connections are not supported here');
    if (!mayEnter()) {
      throw failedPrecondition('files of a container can be reached only by a server that runs as root on its machine');
    }
    const { State: state, Config: config } = await this.#inspect();
    const { entry, accesses } = await this.#parts();
    const place = { container: this.#container, pid: state.Pid, workingDir: config.WorkingDir || '/' };
    return await accesses.add(this.#container, kind, () => entry.open(place, kind, request, signal));
  };

  #parts(): Promise<AccessParts> {
    if (this.#container === '') return Promise.reject(this.#notRunning());
    return this.#open();
  }

  /** Inspects the container. Fails with `failed_precondition` when it does not run. */
  async #inspect(): Promise<Docker.ContainerInspectInfo> {
    const { engine } = await this.#parts();
    try {
      const container = (docker: Docker) => docker.getContainer(this.#container);
      const inspected = await engine.request('inspect the container', docker => container(docker).inspect());
      if (inspected.State.Running) return inspected;
    } catch (error) {
      if (statusOf(error) !== 404) throw error;
    }
    throw this.#notRunning();
  }

  #notRunning(): Error {
    return failedPrecondition(`the sandbox of ${this.#instanceId} does not run`);
  }
}

async function connectToAddress(address: string, port: number, signal: AbortSignal): Promise<Duplex> {
  try {
    return await connectTcp(address, port, signal);
  } catch (error) {
    if (signal.aborted) throw error;
    const why = 'it must listen on 0.0.0.0, since this server (not root) may not enter the network of a container';
    throw unavailable(`nothing listens on port ${port}: ${why}`, { cause: error });
  }
}
