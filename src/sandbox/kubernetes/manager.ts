import type { RuntimeEndpoint } from '../../core/instance.ts';
import { outputText } from '../../lib/output-text.ts';
import { connectProven, forgetProven, prepareProven } from '../../lib/proven-tls.ts';
import type { ExecRequest, ExecResult, ExitResult, RuntimeCommand, SandboxStats } from '../driver.ts';
import { AccessConnection, framesOf, type OpenAccess } from '../host/access-connection.ts';
import { sendDirectory } from './code-archive.ts';

/** Time limit for a start, which may run programs of the image to find their versions. */
const START_TIMEOUT_MS = 60_000;
const RESET_TIMEOUT_MS = 60_000;
const START_CONNECTIONS = 3;
const STATS_TIMEOUT_MS = 5_000;
/** Extra time for a stop beyond its grace, and for a command beyond its own time limit. */
const MARGIN_MS = 15_000;
const PUT_TIMEOUT_MS = 60_000;
/** Longest delay that a timer supports; the caller's signal sets the limit. */
const MAX_WAIT_MS = 2 ** 31 - 1;

/** Port on which the manager of every pod listens. */
export const MANAGER_PORT = 8710;

/**
 * Parts of a pod's template, in addition to the security context, that its manager needs.
 *
 * The volume of `home` is an emptyDir. The init container writes it, and the main container mounts it
 * read-only. The code runs as the manager's user, and the manager starts programs from there again after a
 * reset. The volume of `run` is a small emptyDir in memory that both containers may write. Init container and
 * main container run as the same user.
 */
export const POD = {
  /** Command of the init container, which runs the installation's image. */
  installCommand: ['rookery-pod-install'],
  /** Command of the init container when another image brings the files: it creates only the key. */
  keyCommand: ['rookery-pod-install', '--source', ''],
  /**
   * Command of the image that brings the files; older versions of Rookery's image work too. Removes files
   * first, because a node that lost power runs the command again.
   */
  filesCommand: ['/bin/sh', '-c', 'rm -rf /rookery/* && cp -RPp /opt/rookery/pod/* /rookery/'],
  /** Variable of the init container: the pod's uid (downward API, `metadata.uid`). */
  uidVariable: 'ROOKERY_POD_UID',
  /**
   * Variable of the init container: directories to create, separated by colons. The directories are in
   * volumes that the init container mounts below `directories`.
   */
  directoriesVariable: 'ROOKERY_POD_DIRECTORIES',
  directories: '/run/rookery-directories',
  /**
   * Directory of the installation's Secret, mounted only in the init container. The entry `key` is the secret
   * itself.
   */
  secretDir: '/run/rookery-secret',
  secretEntry: 'key',
  home: '/rookery',
  run: '/run/rookery',
  managerCommand: ['/rookery/bin/manager'],
} as const;

/**
 * Address of a manager, with the key that both sides prove to know. Plain JSON, because it is part of a
 * handle.
 */
export interface PodAddress {
  readonly host: string;
  readonly port: number;
  /** HMAC-SHA256 of the installation's secret over the pod's uid, in hex. */
  readonly key: string;
}

/**
 * Command of an instance. The cluster does not report the command of an image. Without `argv` another
 * container of the pod serves HTTP on 127.0.0.1:8000.
 */
export type PodCommand =
  | Exclude<RuntimeCommand, { readonly kind: 'image' }>
  | { readonly kind: 'image'; readonly argv?: readonly string[] };

/** Directory sent with an order. The fields are those of `PutOptions`; the pod's user owns it. */
export interface PodCode {
  readonly target: string;
  readonly readonly: boolean;
  /** Tar archive in base64. */
  readonly archive: string;
}

export interface PodOrder {
  readonly instanceId: string;
  readonly command: PodCommand;
  /** Secret that opens each connection to the runtime. */
  readonly secret: string;
  /** User of the instance; `''` is the pod's user. Another user needs a manager that is root. */
  readonly user: string;
  readonly env: Readonly<Record<string, string>>;
  /**
   * True when the caller's image is the main container's image. The image's Python then runs `python`, and
   * the image's variables apply below those of `env` (never those that the cluster adds). Otherwise the
   * manager's own Python, which has already started, runs the code.
   */
  readonly ofImage: boolean;
  /** Name of the image, for messages. */
  readonly image: string;
  readonly workingDir: string;
  readonly maxOpenFiles: number;
  /**
   * True in a pod that was created for its instance. The manager then ends with the instance, with the same
   * exit code.
   */
  readonly endsWithInstance: boolean;
  /** Directories to unpack, in this order; absent when `put` has sent them. */
  readonly code?: readonly PodCode[];
}

export interface PodStarted {
  /** Uid of the user's code. */
  readonly uid: number;
  /** Sentences for the caller. */
  readonly warnings: readonly string[];
}

export interface PutOptions {
  /**
   * Absolute path in the pod: an existing writable directory, or a path below one. Previous contents are
   * removed.
   */
  readonly target: string;
  /** True removes all write bits. If the manager is root, root then owns all of it. */
  readonly readonly: boolean;
  /** Owner when it is not read-only, as in `PodOrder`. */
  readonly user: string;
}

/** The manager is of an older version, which takes code only through `put`. */
export class TakesNoCode extends Error {
  override readonly name = 'TakesNoCode';

  constructor() {
    super('the manager of the pod is older than this server: it takes no code with an order');
  }
}

/**
 * Client for the manager of a pod (`runtimes/python/rookery_pod/`). Each method opens a connection and proves
 * the key on it. Every method has a time limit.
 *
 * Errors are `ServiceError`s:
 * - `unavailable`: the pod does not answer, or does not prove the key
 * - `failed_precondition`: the order cannot be met, or the state does not permit it
 * - `deadline_exceeded`: `signal` aborted
 */
export class PodManager {
  readonly address: PodAddress;

  constructor(address: PodAddress) {
    this.address = address;
  }

  /** Returns the endpoint of the instance's runtime. */
  get endpoint(): RuntimeEndpoint {
    const { host, port, key } = this.address;
    return { kind: 'pod', host, port, key };
  }

  /** Opens the connections of a start in advance: one for the order, two for the runtime. */
  prepare(): void {
    prepareProven(this.address, START_CONNECTIONS);
  }

  /** Closes connections that `prepare` opened. */
  forget(): void {
    forgetProven(this.address);
  }

  /**
   * Sends a directory of this host to the pod, before `start`. `directory` may be a path through a
   * descriptor; links in it stay links.
   */
  async put(directory: string, { target, readonly, user }: PutOptions, signal: AbortSignal): Promise<void> {
    const connection = await this.#open([{ op: 'put', target, readonly, user }], PUT_TIMEOUT_MS, signal);
    try {
      await sendDirectory(connection, directory, signal);
    } finally {
      connection.socket.destroy();
    }
  }

  /**
   * Starts an instance and resolves when its runtime accepts connections. Fails with `failed_precondition`
   * when the order cannot be met (the message is the `<cause>` of a create). Fails with `already_exists` when
   * the pod has an instance, even this one. Fails with `TakesNoCode`, before anything is sent, when the order
   * has code and the manager would ignore it.
   */
  async start(order: PodOrder, signal: AbortSignal): Promise<PodStarted> {
    const answer = await this.#ask({ op: 'start', ...order }, START_TIMEOUT_MS, signal, order.code !== undefined);
    return { uid: answer.uid as number, warnings: answer.warnings as string[] };
  }

  /**
   * Resolves when the instance has ended. Fails with `failed_precondition` when there was none since the last
   * reset.
   */
  async wait(signal: AbortSignal): Promise<ExitResult> {
    return (await this.#ask({ op: 'wait' }, MAX_WAIT_MS, signal)).exit as ExitResult;
  }

  /**
   * Asks the instance to end and kills it after `graceMs`. Resolves with its exit when all of its processes
   * have ended; with null when there is no instance. `cause`: reason for the exit record, when this service
   * did not want the stop itself.
   */
  async stop(graceMs: number, cause?: string): Promise<ExitResult | null> {
    const answer = await this.#ask({ op: 'stop', graceMs, cause: cause ?? null }, graceMs + MARGIN_MS);
    return (answer.exit as ExitResult | undefined) ?? null;
  }

  /**
   * Kills all processes, removes all data and prepares the pod for another instance. If this fails, the pod
   * cannot be used again.
   */
  async reset(signal: AbortSignal): Promise<void> {
    await this.#ask({ op: 'reset' }, RESET_TIMEOUT_MS, signal);
  }

  async stats(): Promise<SandboxStats> {
    const { memoryBytes, cpuMicros, processes } = await this.#ask({ op: 'stats' }, STATS_TIMEOUT_MS);
    return { memoryBytes, cpuMicros, processes } as SandboxStats;
  }

  /** Runs a command, as `SandboxDriver.exec` defines. */
  async exec(request: ExecRequest, signal: AbortSignal): Promise<ExecResult> {
    const timeoutMs = request.timeoutMs + MARGIN_MS;
    const connection = await this.#open([{ op: 'exec' }, request], timeoutMs, signal);
    try {
      const { returncode, truncated } = connection.answer;
      const stdout = await connection.frame(timeoutMs);
      const stderr = await connection.frame(timeoutMs);
      return {
        returncode: returncode as number,
        stdout: outputText(stdout, request.maxOutputBytes),
        stderr: outputText(stderr, request.maxOutputBytes),
        truncated: truncated === true,
      };
    } finally {
      connection.socket.destroy();
    }
  }

  /**
   * Opens a connection for `host/access-{exec,files}.ts`. For a port use `(await openAccess('dial', { port },
   * signal)).socket`.
   */
  readonly openAccess: OpenAccess = (kind, request, signal) =>
    this.#open([{ op: 'access', way: kind }, request], undefined, signal);

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

  /** Opens a connection, sends the messages and reads the answer within `timeoutMs`. */
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
