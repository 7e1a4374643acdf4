import type { RuntimeEndpoint } from '../../core/instance.ts';
import { connectProven, forgetProven, prepareProven } from '../../lib/proven-tls.ts';
import type { ExecRequest, ExecResult, ExitResult, RuntimeCommand, SandboxStats } from '../driver.ts';
import { AccessConnection, framesOf, type OpenWay } from '../host/access-connection.ts';
import { sendDirectory } from './code-archive.ts';

/** A start may ask programs of the image for their versions. */
const START_TIMEOUT_MS = 60_000;
const RESET_TIMEOUT_MS = 60_000;
const START_CONNECTIONS = 3;
const STATS_TIMEOUT_MS = 5_000;
/** What a stop may take beyond its grace, and a command beyond its own time. */
const MARGIN_MS = 15_000;
const PUT_TIMEOUT_MS = 60_000;
/** As long as a timer can be: the caller's signal is the bound. */
const MAX_WAIT_MS = 2 ** 31 - 1;

/** Where the manager of every pod listens. */
export const MANAGER_PORT = 8710;

/**
 * What a pod's template must have, beside the security context, so that there is a manager in it.
 *
 * The volume of `home` is an emptyDir that the init container writes and the main container mounts read-only: the code runs as the manager's
 * user, and the manager starts programs from there again after a reset. That of `run` is a small emptyDir in memory that both may write to. Init
 * container and main container run as the same user.
 */
export const POD = {
  /** Of the init container, whose image is ours. */
  installCommand: ['rookery-pod-install'],
  /** Variable of the init container: the pod's uid (downward API, `metadata.uid`). */
  uidVariable: 'ROOKERY_POD_UID',
  /** Variable of the init container: directories that it makes, with colons between them, in volumes that it has below `directories`. */
  directoriesVariable: 'ROOKERY_POD_DIRECTORIES',
  directories: '/run/rookery-directories',
  /** The installation's Secret, mounted in the init container only; its entry `key` is the secret itself. */
  secretDir: '/run/rookery-secret',
  secretEntry: 'key',
  home: '/rookery',
  run: '/run/rookery',
  managerCommand: ['/rookery/bin/manager'],
} as const;

/** How a manager is reached, and what both sides prove that they know. Plain JSON: part of a handle. */
export interface PodAddress {
  readonly host: string;
  readonly port: number;
  /** HMAC-SHA256 of the installation's secret over the pod's uid, in hex. */
  readonly key: string;
}

/** What an image's own command is; the cluster does not tell it. Without `argv` something else in the pod serves HTTP on 127.0.0.1:8000. */
export type PodCommand =
  | Exclude<RuntimeCommand, { readonly kind: 'image' }>
  | { readonly kind: 'image'; readonly argv?: readonly string[] };

/** A directory that comes with the order: as `PutOptions`, of the user that the pod runs as. */
export interface PodCode {
  readonly target: string;
  readonly readonly: boolean;
  /** A tar archive, in base64. */
  readonly archive: string;
}

export interface PodOrder {
  readonly instanceId: string;
  readonly command: PodCommand;
  /** Opens each connection to the runtime. */
  readonly secret: string;
  /** `''`: the user that the pod runs as. Another one only where the manager is root. */
  readonly user: string;
  readonly env: Readonly<Record<string, string>>;
  /**
   * The main container's image is the caller's: its Python runs `python`, its variables are there below those of `env` (never those that the
   * cluster adds). Else the Python is the manager's own, which has started already.
   */
  readonly ofImage: boolean;
  /** For sentences. */
  readonly image: string;
  readonly workingDir: string;
  readonly maxOpenFiles: number;
  /** The end of the instance is the end of the manager, with the same exit code: in a pod that was made for it. */
  readonly endsWithInstance: boolean;
  /** In this order; none where `put` has put it. */
  readonly code?: readonly PodCode[];
}

export interface PodStarted {
  /** Of the user's code. */
  readonly uid: number;
  /** Sentences for the caller. */
  readonly warnings: readonly string[];
}

export interface PutOptions {
  /** Absolute, inside; a directory that is there and can be written to, or below one. What is in it goes first. */
  readonly target: string;
  /** Nothing in it has a write bit, and where the manager is root all of it is root's. */
  readonly readonly: boolean;
  /** Whose it becomes when it is not read-only, as in `PodOrder`. */
  readonly user: string;
}

/** The manager of the pod is that of an earlier version, which takes code by `put` alone. */
export class TakesNoCode extends Error {
  override readonly name = 'TakesNoCode';

  constructor() {
    super('the manager of the pod is older than this server: it takes no code with an order');
  }
}

/**
 * The manager of one pod (`runtimes/python/rookery_pod/`). Holds no connection: each method opens one, and proves the key on it. Every method is bounded.
 *
 * Errors are `ServiceError`s: `unavailable` when the pod does not answer, or nobody there knows the key; `failed_precondition` when the order
 * cannot be met, or the state does not allow it; `deadline_exceeded` when `signal` ended it.
 */
export class PodManager {
  readonly address: PodAddress;

  constructor(address: PodAddress) {
    this.address = address;
  }

  /** Where the runtime of the instance is reached. */
  get endpoint(): RuntimeEndpoint {
    const { host, port, key } = this.address;
    return { kind: 'pod', host, port, key };
  }

  /** Begins the connections of a start: one for the order, two for the runtime. */
  prepare(): void {
    prepareProven(this.address, START_CONNECTIONS);
  }

  /** They are not wanted. */
  forget(): void {
    forgetProven(this.address);
  }

  /** Puts the code of a directory of this host in place. Only before `start`. `directory` may be a path through a descriptor; links in it stay links. */
  async put(directory: string, { target, readonly, user }: PutOptions, signal: AbortSignal): Promise<void> {
    const connection = await this.#open([{ op: 'put', target, readonly, user }], PUT_TIMEOUT_MS, signal);
    try {
      await sendDirectory(connection, directory, signal);
    } finally {
      connection.socket.destroy();
    }
  }

  /**
   * Starts an instance; its runtime can be connected to from then on. Fails with `failed_precondition` when the order cannot be met (the
   * message is the `<cause>` of a create), `already_exists` when the pod has an instance: the same one too, and with `TakesNoCode`, before anything
   * is said, when the order has code and the manager would not look at it.
   */
  async start(order: PodOrder, signal: AbortSignal): Promise<PodStarted> {
    const answer = await this.#ask({ op: 'start', ...order }, START_TIMEOUT_MS, signal, order.code !== undefined);
    return { uid: answer.uid as number, warnings: answer.warnings as string[] };
  }

  /** Resolves at its end, at once when it has ended. Fails with `failed_precondition` when there was none since the last reset. */
  async wait(signal: AbortSignal): Promise<ExitResult> {
    return (await this.#ask({ op: 'wait' }, MAX_WAIT_MS, signal)).exit as ExitResult;
  }

  /**
   * Asks it to end, kills it after `graceMs`; resolves when nothing of it runs any more with how it ended, at once with null when there is none.
   * `cause`: of the exit, when it was not this service's own wish.
   */
  async stop(graceMs: number, cause?: string): Promise<ExitResult | null> {
    const answer = await this.#ask({ op: 'stop', graceMs, cause: cause ?? null }, graceMs + MARGIN_MS);
    return (answer.exit as ExitResult | undefined) ?? null;
  }

  /** Kills and empties everything, and makes the pod ready for another instance. Resolves when it is; a pod for which it fails is of no use. */
  async reset(signal: AbortSignal): Promise<void> {
    await this.#ask({ op: 'reset' }, RESET_TIMEOUT_MS, signal);
  }

  async stats(): Promise<SandboxStats> {
    const { memoryBytes, cpuMicros, processes } = await this.#ask({ op: 'stats' }, STATS_TIMEOUT_MS);
    return { memoryBytes, cpuMicros, processes } as SandboxStats;
  }

  /** As `SandboxDriver.exec`. */
  async exec(request: ExecRequest, signal: AbortSignal): Promise<ExecResult> {
    const timeoutMs = request.timeoutMs + MARGIN_MS;
    const connection = await this.#open([{ op: 'exec' }, request], timeoutMs, signal);
    try {
      const { returncode, truncated } = connection.answer;
      const stdout = await connection.frame(timeoutMs);
      const stderr = await connection.frame(timeoutMs);
      return {
        returncode: returncode as number,
        stdout: stdout.toString('utf8'),
        stderr: stderr.toString('utf8'),
        truncated: truncated === true,
      };
    } finally {
      connection.socket.destroy();
    }
  }

  /** For `host/access-{exec,files}.ts`; a port is `(await openWay('dial', { port }, signal)).socket`. */
  readonly openWay: OpenWay = (way, request, signal) => this.#open([{ op: 'access', way }, request], undefined, signal);

  async #ask(
    message: object,
    timeoutMs: number,
    signal: AbortSignal = NEVER,
    hasCode = false,
  ): Promise<AccessConnection['answer']> {
    const connection = await this.#open([message], timeoutMs, signal, hasCode);
    connection.socket.destroy();
    return connection.answer;
  }

  /** `timeoutMs`: of the answer. */
  async #open(
    messages: readonly object[],
    timeoutMs: number | undefined,
    signal: AbortSignal,
    hasCode = false,
  ): Promise<AccessConnection> {
    const first = framesOf(messages);
    const socket = await connectProven(this.address, signal, protocol => {
      if (hasCode && protocol === '') throw new TakesNoCode();
      return first;
    });
    return await AccessConnection.over(socket, signal, timeoutMs);
  }
}

const NEVER = new AbortController().signal;
