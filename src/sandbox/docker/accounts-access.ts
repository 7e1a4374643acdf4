import type { Duplex } from 'node:stream';
import { deadlineExceeded, failedPrecondition, ServiceError } from '../../core/error.ts';
import { outputText } from '../../lib/output-text.ts';
import { connectUnix } from '../../lib/unix-socket.ts';
import type { OpenExec, OpenExecRequest, SandboxAccess } from '../access.ts';
import { type ExecRequest, type ExecResult, sandboxEnded } from '../driver.ts';
import { AccessConnection, framesOf, type OpenAccess } from '../host/access-connection.ts';
import { openExec } from '../host/access-exec.ts';
import { ProcessAccess } from '../host/access-processes.ts';
import { inspectExit } from './container-exits.ts';
import type { Engine } from './engine.ts';
import { controlPath } from './sandbox-directory.ts';

/** Time for the answer of a command in addition to its own time limit. */
const EXEC_MARGIN_MS = 5_000;

/** The container that an access belongs to. */
export interface AccessedContainer {
  readonly instanceId: string;
  /** Id of the container; `''` when only its directory is left. */
  readonly container: string;
  readonly directory: string;
}

/**
 * Gives access to a container with accounts, over the socket of its first process
 * (runtimes/native/src/container.c).
 */
export class AccountsAccess extends ProcessAccess implements SandboxAccess {
  readonly #engine: () => Promise<Engine>;
  readonly #of: AccessedContainer;

  constructor(engine: () => Promise<Engine>, of: AccessedContainer) {
    super();
    this.#engine = engine;
    this.#of = of;
  }

  protected readonly openAccess: OpenAccess = async (kind, request, signal) => {
    if (this.#of.container === '') throw this.#notRunning();
    try {
      const path = controlPath(this.#of.directory);
      return await AccessConnection.open(path, [{ op: 'access', way: kind }, request], signal);
    } catch (error) {
      if (error instanceof ServiceError && error.code === 'unavailable' && !(await this.#isRunning())) {
        throw this.#notRunning();
      }
      throw error;
    }
  };

  openExec(request: OpenExecRequest, signal: AbortSignal): Promise<OpenExec> {
    return openExec(this.openAccess, request, signal);
  }

  async dial(port: number, signal: AbortSignal): Promise<Duplex> {
    return (await this.openAccess('dial', { port }, signal)).socket;
  }

  /** Runs a command to its end. `SandboxDriver.exec` defines the contract. */
  async exec(request: ExecRequest, signal: AbortSignal): Promise<ExecResult> {
    if (this.#of.container === '') throw this.#notRunning();
    if (signal.aborted) throw deadlineExceeded('the command was cancelled before it started');
    const socket = connectUnix(controlPath(this.#of.directory));
    try {
      socket.write(framesOf([{ op: 'exec' }, request]));
      const connection = await AccessConnection.over(socket, signal, request.timeoutMs + EXEC_MARGIN_MS);
      const stdout = await connection.frame();
      const stderr = await connection.frame();
      const { returncode, truncated } = connection.answer;
      return {
        returncode: returncode as number,
        stdout: outputText(stdout, request.maxOutputBytes),
        stderr: outputText(stderr, request.maxOutputBytes),
        truncated: truncated === true,
      };
    } catch (error) {
      if (signal.aborted) throw deadlineExceeded('the caller cancelled the command');
      if (!(error instanceof ServiceError) || error.code !== 'unavailable') throw error;
      const exit = await inspectExit(await this.#engine(), this.#of.container);
      if (exit === 'running') throw error;
      throw sandboxEnded(typeof exit === 'string' ? null : exit, error);
    } finally {
      socket.destroy();
    }
  }

  async #isRunning(): Promise<boolean> {
    return (await inspectExit(await this.#engine(), this.#of.container)) === 'running';
  }

  #notRunning(): Error {
    return failedPrecondition(`the sandbox of ${this.#of.instanceId} does not run`);
  }
}
