import { type ServiceError, unavailable } from '../core/error.ts';
import type {
  MountSpec,
  PoolPreference,
  PortSpec,
  RuntimeEndpoint,
  SandboxFacts,
  SandboxType,
} from '../core/instance.ts';
import type { SandboxAccess } from './access.ts';
import type { PoolBackend } from './pools.ts';

/**
 * The contract of everything that can run an instance: the drivers of `core/sandbox-types.ts`, and the tests'
 * fake one.
 *
 * A driver translates and never decides: each spec that it gets is fully resolved. After a crash of the
 * service, every method may be called again with a handle from storage. `test/suites/sandbox-driver.ts` is
 * the contract as tests.
 *
 * Errors are `ServiceError`s:
 * - `unavailable`: the driver's backend does not answer. When `start` fails so, no user code has run.
 * - `failed_precondition`: the spec cannot be honoured here. The message is the `<cause>` of `failed to
 *   create agent: <cause>`.
 * - `deadline_exceeded`: `signal` or a time limit ended the operation.
 */
export interface SandboxDriver {
  readonly name: SandboxType;
  /** Sandboxes that are kept ready for instances, on drivers that support pools. */
  readonly pools?: PoolBackend;
  /** The images from which this driver makes sandboxes without code. Absent: it has none. */
  readonly images?: DriverImages;

  /** Checks whether the driver works on this machine now. Never throws; takes at most 5 s. */
  probe(): Promise<ProbeResult>;

  /** Prepares a zygote or pre-forked workers, so that the first `start` is fast. Never throws. */
  warm?(): Promise<void>;

  /**
   * Returns the longest time a start of this spec may take, when that is more than usual. Uses cached
   * information only.
   */
  startBudgetMs?(spec: SandboxSpec, usualMs: number): number;

  /**
   * Starts a sandbox. Returns when its runtime accepts connections (`endpoint`), before code is loaded.
   * When the start fails, or `signal` aborts, the driver removes everything it has made.
   */
  start(spec: SandboxSpec, signal: AbortSignal): Promise<StartedSandbox>;

  /**
   * Resolves when the sandbox has ended; at once when it already has or does not exist. Bounded by `signal`.
   */
  wait(handle: SandboxHandle, signal?: AbortSignal): Promise<ExitResult>;

  /**
   * Stops the sandbox: requests its end, waits up to `graceMs`, then kills it. Returns when no process is
   * left.
   * A missing sandbox counts as success.
   */
  stop(handle: SandboxHandle, graceMs: number): Promise<void>;

  /**
   * Removes the sandbox with its files and logs, and kills it first if it runs. A missing sandbox counts as
   * removed.
   * The driver calls `cleared` when no later step can fail and `list` still shows the residue to a later
   * server. A driver without this knowledge never calls `cleared`.
   */
  remove(handle: SandboxHandle, cleared?: () => void): Promise<void>;

  /** Returns the sandbox's current state, also when no trace of the sandbox exists. */
  inspect(handle: SandboxHandle): Promise<SandboxState>;

  /**
   * Returns the reason the sandbox's state is unknown, or null. Uses cached information only.
   * A driver without this method always knows the state.
   */
  whyUnknown?(handle: SandboxHandle): string | null;

  /**
   * Lists every sandbox with this service's label, for the reconciler.
   * Covers this machine, or all nodes when the driver's sandboxes are not on the service's machines.
   */
  list(): Promise<readonly ListedSandbox[]>;

  /**
   * Runs a command inside, as the sandbox's user, in its environment.
   * After `timeoutMs` its whole process group is killed, and the return code is −1.
   */
  exec(handle: SandboxHandle, request: ExecRequest, signal: AbortSignal): Promise<ExecResult>;

  /** Returns the sandbox's present use of resources. */
  stats(handle: SandboxHandle): Promise<SandboxStats>;

  /**
   * Reads the output (stdout and stderr) of the user's code, oldest lines first.
   * Each chunk has whole lines with their newlines, and is valid until the next one is requested. A line
   * longer than `LIMITS.logLineBytes` may be split. With `follow`, reading continues until the sandbox ends
   * or `signal` aborts, without polling.
   */
  logs(handle: SandboxHandle, request: LogRequest, signal: AbortSignal): LogChunks;

  /**
   * Freezes all processes of a running sandbox, with their memory. A sandbox that is paused already counts as
   * success. `stop` and `remove` work on a paused sandbox too. Absent: the driver cannot pause.
   * Fails with `failed_precondition` if this machine cannot freeze processes or the sandbox does not run, and
   * with `unavailable` if they did not freeze in time; then some may stand still until `resume`.
   */
  pause?(handle: SandboxHandle): Promise<void>;

  /** Continues a paused sandbox. Has no effect on a sandbox that is not paused. */
  resume?(handle: SandboxHandle): Promise<void>;

  /** Returns access to a running sandbox. Has no effect until one of its methods is called. */
  access?(handle: SandboxHandle): SandboxAccess;

  /** Releases this process's resources (connections, watchers). Sandboxes continue to run. */
  close(): Promise<void>;
}

/** The images of a driver's backend. */
export interface DriverImages {
  /**
   * Returns true if the backend has the image of this name. Never pulls. Fails with `unavailable` or
   * `failed_precondition` when the backend does not answer.
   */
  has(reference: string): Promise<boolean>;

  /**
   * Makes an image of the files of a sandbox, which may run, and returns its name. `has` does not find it,
   * and `start` accepts it only for sandboxes of the tenant that have accounts. Fails as `has` does.
   */
  commit(instanceId: string, owner: ImageOwner): Promise<string>;

  /** Lists the images that `commit` has made for this service. Fails as `has` does. */
  committed(): Promise<readonly CommittedImage[]>;

  /** Removes an image that `commit` has made. Returns false if a sandbox or another image needs it. */
  remove(id: string): Promise<boolean>;
}

/** The build of a template whose files an image holds. */
export interface ImageOwner {
  readonly tenant: string;
  readonly build: string;
}

export interface CommittedImage {
  readonly id: string;
  /** The name that `commit` returned; `''` if another program has removed the name. */
  readonly name: string;
  /** Id of the build. */
  readonly build: string;
}

export interface DriverCapabilities {
  readonly images: boolean;
  readonly mounts: boolean;
  readonly ports: boolean;
  readonly users: boolean;
  readonly cpuLimit: boolean;
  readonly memoryLimit: boolean;
  readonly pidsLimit: boolean;
  readonly exec: boolean;
  /** The isolation layers that work on this machine, as in `SandboxFacts.isolation`. */
  readonly isolation: readonly string[];
}

export type ProbeResult =
  | {
      readonly available: true;
      readonly capabilities: DriverCapabilities;
      /** Features that do not work here, each a sentence with the consequence. Empty: all work. */
      readonly degraded: readonly string[];
    }
  | {
      readonly available: false;
      /** A sentence that names the missing part and the way to get it. */
      readonly reason: string;
      /**
       * True when a later try may succeed without a change: a check timed out, or a program has just ended.
       */
      readonly mayPass?: boolean;
    };

/** The command to run inside. `runtime/executors.ts` derives it from the runtime value. */
export type RuntimeCommand =
  /** The Python runtime of this interpreter version (`3.11`). */
  | { readonly kind: 'python'; readonly version: string }
  /** A program that speaks the runtime protocol on the socket named by `ROOKERY_RUNTIME_SOCKET`. */
  | {
      readonly kind: 'exec';
      /**
       * The command line. Empty: no program runs, and each call is answered with 4201 `empty user call code`.
       */
      readonly argv: readonly string[];
      /**
       * True when the program creates its own socket. Nothing exists at the path before, and no descriptor is
       * inherited.
       */
      readonly makesSocket?: boolean;
      /**
       * With `makesSocket`: the program may serve HTTP on 127.0.0.1:8000 instead, as with kind `http`.
       * The first of the two to appear decides. The port is checked only in a network of the sandbox's own.
       * In a shared network another program may own the port.
       */
      readonly orServesHttp?: boolean;
      /**
       * The program's directory, inside. A start fails with `deploy dir is empty` when it is missing or
       * empty.
       * It fails with a sentence when `argv[0]` is not a program.
       */
      readonly deployDir?: string;
      /**
       * True when the program understands `--wait-for-orders`, so that a driver may keep waiting processes of
       * this `argv`.
       * See docs/internals/process-sandbox.md.
       */
      readonly canWait?: boolean;
      /**
       * The exact program and version that `argv[0]` must be in an image; otherwise the start fails.
       * On the host, this was checked before the start.
       */
      readonly imageProgram?: { readonly name: 'java' | 'node'; readonly version: string };
    }
  /**
   * A program that serves HTTP on 127.0.0.1:8000 (docs/languages/http.md), with an HTTP client in the same
   * network.
   * `argv[0]` and `deployDir` are as above. The sandbox needs its own network: two such programs would
   * collide on the port.
   */
  | { readonly kind: 'http'; readonly argv: readonly string[]; readonly deployDir: string }
  /**
   * The image's own command, which serves HTTP on port 8000 as with `http`. Only with `rootfs.type` `image`.
   */
  | { readonly kind: 'image' };

export interface SandboxSpec {
  readonly instanceId: string;
  readonly tenant: string;
  readonly command: RuntimeCommand;
  /** The secret that opens each connection to the runtime. It is never logged. */
  readonly secret: string;
  /** The content of the later INIT. A runtime that gets it at its start loads the code at once. */
  readonly init?: object;
  readonly rootfs: { readonly type: 'host' | 'image'; readonly imageUrl: string; readonly user: string };
  /**
   * True for a sandbox with accounts of its own instead of `rootfs.user`: `root`, and `user`, which is the
   * default. An image keeps its accounts, and `user` is added if it lacks one. Absent: false.
   */
  readonly hasAccounts?: boolean;
  /** The complete environment of the user's code, including the platform's variables. */
  readonly env: Readonly<Record<string, string>>;
  /** Names in `env` whose values are secrets. Their values must not be stored or shown. Absent: none. */
  readonly secretVariables?: readonly string[];
  /** The working directory, inside the sandbox. */
  readonly workingDir: string;
  /**
   * The mounts, with the workspace first. Sources are absolute; the driver resolves and checks them again
   * when it mounts.
   */
  readonly mounts: readonly MountSpec[];
  /**
   * Mounts whose sources the platform chose, below its data directory. The policy for clients' sources does
   * not apply.
   */
  readonly platformMounts?: readonly MountSpec[];
  /**
   * True for a command that must not run twice.
   * When the service dies during the start, a sandbox whose program may have begun survives and `list` shows
   * it. Otherwise the start is undone.
   */
  readonly survivesCaller?: boolean;
  /** True for a command that runs once, to its end. Kubernetes runs it as a Job. */
  readonly runsOnce?: boolean;
  readonly ports: readonly PortSpec[];
  readonly cpuMillis: number;
  readonly memoryMb: number;
  readonly maxProcesses: number;
  readonly maxOpenFiles: number;
  /** `host`: the sandbox reaches out, over the host's network or its own. `none`: loopback only. */
  readonly network: 'host' | 'none';
  /** Refuses the start when an isolation layer that this driver supports does not work on this machine. */
  readonly requireIsolation: boolean;
  /** The pools from which to take a waiting sandbox, on drivers that have pools. Absent: any that fits. */
  readonly pool?: PoolPreference;
}

export interface StartedSandbox {
  readonly handle: SandboxHandle;
  readonly endpoint: RuntimeEndpoint;
  readonly facts: SandboxFacts;
  /**
   * Milliseconds of each start phase that the driver measures: `orders`, `mounts`, `limits`, `rights`.
   * The rest of the time is the transfer.
   */
  readonly stages?: Readonly<Record<string, number>>;
}

/** Everything that a driver needs to adopt its sandbox: plain JSON with a version, stored with the record. */
export interface SandboxHandle {
  readonly version: 1;
  readonly driver: SandboxType;
  readonly instanceId: string;
  /** The address on which the sandbox's runtime listens. */
  readonly endpoint: RuntimeEndpoint;
  /** The driver's own facts (pids, container id, paths). */
  readonly data: Readonly<Record<string, unknown>>;
}

export interface ExitResult {
  /** Exit code; null when a signal ended the sandbox or the code is unknown. */
  readonly code: number | null;
  /** Signal name such as `SIGKILL`, or null. */
  readonly signal: string | null;
  readonly oomKilled: boolean;
  readonly atMs: number;
  /**
   * The reason for the end when neither the code nor this service caused it, for example `supervisord stopped
   * it`.
   */
  readonly cause?: string;
}

export type SandboxState =
  | { readonly state: 'running' }
  /** The processes stand still until `resume`. */
  | { readonly state: 'paused' }
  /**
   * The sandbox may still run: its machine is lost, or the component that knows its state does not answer.
   * The service starts no replacement until the sandbox is known to have ended. `reason` is a sentence.
   */
  | { readonly state: 'unknown'; readonly reason: string }
  | { readonly state: 'exited'; readonly exit: ExitResult }
  | { readonly state: 'gone' };

export interface ListedSandbox {
  readonly instanceId: string;
  /** The node that started the sandbox, for drivers whose sandboxes all nodes see; absent: this node. */
  readonly nodeId?: string;
  readonly handle: SandboxHandle;
  readonly running: boolean;
}

export interface ExecRequest {
  readonly argv: readonly string[];
  /** The working directory; relative paths start at the sandbox's. `''`: the sandbox's working directory. */
  readonly workingDir: string;
  /**
   * The account that runs the command. Fails with `unauthenticated` if the sandbox has none of this name.
   * Absent: the default account.
   */
  readonly user?: string;
  /** Variables to add to the sandbox's environment. */
  readonly env: Readonly<Record<string, string>>;
  readonly stdin: string;
  readonly timeoutMs: number;
  /** Maximum number of bytes kept of each output; above it `truncated` is set. */
  readonly maxOutputBytes: number;
}

export interface ExecResult {
  readonly returncode: number;
  readonly stdout: string;
  readonly stderr: string;
  readonly truncated: boolean;
}

export interface SandboxStats {
  readonly memoryBytes: number;
  readonly cpuMicros: number;
  readonly processes: number;
  /** True if the agent sleeps: there is no sandbox. */
  readonly isAsleep?: true;
}

/** Output in chunks. */
export interface LogChunks extends AsyncIterable<Buffer> {
  /**
   * Fixes where reading begins: output after that is part of the log. The caller must read afterwards.
   * Absent, or not called: reading fixes it.
   */
  open?(): Promise<void>;
}

export interface LogRequest {
  /** Number of last lines; null: all that are kept. */
  readonly tail: number | null;
  /** Earliest time of a line; null: no bound. */
  readonly sinceMs: number | null;
  /** Time before which the lines were written. Absent: no bound. Not with `follow`. */
  readonly untilMs?: number;
  readonly follow: boolean;
}

/**
 * Describes the exit for a client: `exit code 3`, `signal SIGKILL`, `signal SIGKILL (out of memory)`,
 * or `supervisord stopped it (exit code 0)`.
 */
export function describeExit(exit: ExitResult): string {
  const how =
    exit.signal !== null ? `signal ${exit.signal}` : exit.code !== null ? `exit code ${exit.code}` : 'unknown reason';
  if (exit.cause !== undefined) return `${exit.cause} (${how})`;
  return exit.oomKilled ? `${how} (out of memory)` : how;
}

/** Returns the error of a command that failed because its sandbox ended, with the reason when it is known. */
export function sandboxEnded(exit: ExitResult | null, cause?: unknown): ServiceError {
  const why = exit === null ? '' : `: ${describeExit(exit)}`;
  return unavailable(`the sandbox ended before the command did${why}`, { cause });
}
