import type { Duplex } from 'node:stream';
import { failedPrecondition } from '../../core/error.ts';
import type { OpenExec, OpenExecRequest, SandboxAccess } from '../access.ts';
import type { OpenWay } from '../host/access-connection.ts';
import { openExec } from '../host/access-exec.ts';
import { FileAccess } from '../host/file-access.ts';
import type { PodSandbox } from './handle.ts';

/** Gives access to a pod through its manager. */
export class PodAccess extends FileAccess implements SandboxAccess {
  readonly #sandbox: PodSandbox;
  readonly #hasEnded: () => boolean;

  constructor(sandbox: PodSandbox, hasEnded: () => boolean) {
    super();
    this.#sandbox = sandbox;
    this.#hasEnded = hasEnded;
  }

  protected readonly openWay: OpenWay = async (way, request, signal) => {
    if (this.#hasEnded()) throw failedPrecondition(`the sandbox of ${this.#sandbox.instanceId} does not run`);
    return await this.#sandbox.manager.openWay(way, request, signal);
  };

  openExec(request: OpenExecRequest, signal: AbortSignal): Promise<OpenExec> {
    return openExec(this.openWay, request, signal);
  }

  async dial(port: number, signal: AbortSignal): Promise<Duplex> {
    return (await this.openWay('dial', { port }, signal)).socket;
  }
}
