import { readlink } from 'node:fs/promises';
import type { Socket } from 'node:net';
import { join } from 'node:path';
import type { Duplex, Readable } from 'node:stream';
import { failedPrecondition, resourceExhausted, ServiceError, unavailable } from '../../core/error.ts';
import type { OpenExec, OpenExecRequest, SandboxAccess, WriteFileOptions, WrittenFile } from '../access.ts';
import type { SandboxState } from '../driver.ts';
import { AccessConnection, type OpenAccess } from './access-connection.ts';
import { openExec } from './access-exec.ts';
import { ProcessAccess } from './access-processes.ts';
import { connectTcp } from './connect-tcp.ts';
import { hasOomKill } from './control-groups.ts';
import type { ProcessSandbox } from './handle.ts';
import { CONTROL_SOCKET } from './init.ts';
import { isAlive } from './kernel.ts';

/** Access to a sandbox with Rookery's init, over init's control socket. */
export class InitAccess extends ProcessAccess implements SandboxAccess {
  readonly #sandbox: ProcessSandbox;
  readonly #inspect: () => Promise<SandboxState>;

  /** Creates the access. `inspect` returns the sandbox's current state. */
  constructor(sandbox: ProcessSandbox, inspect: () => Promise<SandboxState>) {
    super();
    this.#sandbox = sandbox;
    this.#inspect = inspect;
  }

  protected readonly openAccess: OpenAccess = async (kind, request, signal) => {
    await this.#assertRunning();
    const path = join(this.#sandbox.directory, CONTROL_SOCKET);
    return await AccessConnection.open(path, [{ op: 'access', way: kind }, request], signal);
  };

  openExec(request: OpenExecRequest, signal: AbortSignal): Promise<OpenExec> {
    return openExec(this.openAccess, request, signal);
  }

  async dial(port: number, signal: AbortSignal): Promise<Duplex> {
    await this.#assertRunning();
    return await dial(this.openAccess, this.#sandbox, port, signal);
  }

  override async writeFile(
    path: string,
    options: WriteFileOptions,
    content: Readable,
    signal: AbortSignal,
  ): Promise<WrittenFile> {
    try {
      return await super.writeFile(path, options, content, signal);
    } catch (error) {
      if (await this.#isOutOfMemory(error)) {
        throw resourceExhausted(`${path} cannot be written: the memory of the sandbox is full`, { cause: error });
      }
      throw error;
    }
  }

  async #assertRunning(): Promise<void> {
    const { state } = await this.#inspect();
    if (state !== 'running') throw failedPrecondition(`the sandbox of ${this.#sandbox.instanceId} does not run`);
  }

  /**
   * Checks whether the sandbox's memory limit caused the error.
   * Files in memory count towards the sandbox, and the kernel kills the writing process first.
   */
  async #isOutOfMemory(error: unknown): Promise<boolean> {
    if (!(error instanceof ServiceError) || error.code !== 'unavailable') return false;
    return (await hasOomKill(this.#sandbox.groups)) && (await this.#inspect()).state === 'running';
  }
}

const LOOPBACKS = ['127.0.0.1', '::1'];

/**
 * Connects to a port inside: directly when the sandbox shares this process's network, else through a process
 * inside.
 */
export async function dial(
  openAccess: OpenAccess,
  sandbox: ProcessSandbox,
  port: number,
  signal: AbortSignal,
): Promise<Duplex> {
  if (await sharesNetwork(sandbox)) return await dialHere(port, signal);
  const { socket } = await openAccess('dial', { port }, signal);
  return socket;
}

/**
 * Checks whether the sandbox's loopback is this process's own.
 * Returns false when that cannot be read, because a connection through the inside works in both cases.
 */
async function sharesNetwork({ init }: ProcessSandbox): Promise<boolean> {
  if (init === null) return false;
  try {
    const [theirs, ours] = await Promise.all([readlink(`/proc/${init.pid}/ns/net`), readlink('/proc/self/ns/net')]);
    return theirs === ours && isAlive(init);
  } catch {
    return false;
  }
}

async function dialHere(port: number, signal: AbortSignal): Promise<Socket> {
  let refusal: Error | null = null;
  for (const host of LOOPBACKS) {
    try {
      return await connectTcp(host, port, signal);
    } catch (error) {
      if (signal.aborted) throw error;
      refusal ??= error as Error;
    }
  }
  throw unavailable(`nothing listens on port ${port}`, { cause: refusal });
}
