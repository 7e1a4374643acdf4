import type { PoolPreference, RuntimeEndpoint, SandboxFacts, SandboxType } from '../core/instance.ts';
import type { MountSpec } from '../core/mount.ts';
import type { PortSpec } from '../core/port.ts';
import type { SandboxAccess } from './access.ts';
import type { PoolBackend } from './pools.ts';

/**
 * The contract of everything that can run an instance: the drivers of `core/sandbox-types.ts`, and the fake one of the tests.
 *
 * A driver translates, it never decides: the spec that reaches it is fully resolved. Every method may be called again
 * after a crash of the control plane with a handle that came out of storage. Errors are `ServiceError`s:
 * `unavailable` when the machinery behind the driver does not answer (of a start: nothing of the user's has run), `failed_precondition` when the spec cannot be
 * honoured here (the message is the `<cause>` of `failed to create agent: <cause>`), `deadline_exceeded` when
 * `signal` or a bound ended it. `test/suites/sandbox-driver.ts` is the contract as tests.
 */
export interface SandboxDriver {
  readonly name: SandboxType;
  /** Sandboxes that wait for instances, where it has them. */
  readonly pools?: PoolBackend;

  /** Whether it works on this machine, now. Never throws; bounded (5 s). */
  probe(): Promise<ProbeResult>;

  /** Prepares what can be prepared (a zygote, pre-forked workers) so that the first `start` is fast. Optional; never throws. */
  warm?(): Promise<void>;

  /** How long a start of this spec may take, when that is more than usual. Asks nobody. */
  startBudgetMs?(spec: SandboxSpec, usualMs: number): number;

  /**
   * Starts a sandbox and returns once its runtime can be connected to (`endpoint`), not once code is loaded.
   * When it fails, or `signal` aborts, nothing of the sandbox is left.
   */
  start(spec: SandboxSpec, signal: AbortSignal): Promise<StartedSandbox>;

  /** Resolves when the sandbox has ended, at once when it already has or is gone. Bounded by `signal`. */
  wait(handle: SandboxHandle, signal?: AbortSignal): Promise<ExitResult>;

  /** Ends it: asks, waits up to `graceMs`, then kills. Returns when nothing runs any more. Absent = success. */
  stop(handle: SandboxHandle, graceMs: number): Promise<void>;

  /**
   * Removes what is left of it (logs too). Implies a kill when it still runs. Absent = success. `cleared` is called when nothing can fail any more
   * and `list` has what is left for a server after this one; a driver that cannot tell does not call it.
   */
  remove(handle: SandboxHandle, cleared?: () => void): Promise<void>;

  /** Its state now; `state: 'gone'` when there is no trace of it. */
  inspect(handle: SandboxHandle): Promise<SandboxState>;

  /** Why nobody can tell whether it runs, as far as the driver has been told; null when that is known. Asks nobody. Absent: it always is. */
  whyUnknown?(handle: SandboxHandle): string | null;

  /** Everything that carries our label, for the reconciler: on this machine, or of all nodes where sandboxes do not live on machines of ours. */
  list(): Promise<readonly ListedSandbox[]>;

  /** Runs a command inside, as the sandbox's user, in its environment. `timeoutMs` ends its whole process group: returncode −1. */
  exec(handle: SandboxHandle, request: ExecRequest, signal: AbortSignal): Promise<ExecResult>;

  /** Its present use of resources. */
  stats(handle: SandboxHandle): Promise<SandboxStats>;

  /**
   * Lines of the user's code (stdout and stderr, oldest first, each chunk whole lines with their newlines).
   * With `follow` it goes on until the sandbox ends or `signal` aborts; it never polls, and a chunk is good until the next one is asked for.
   * A line that is longer than `LIMITS.logLineBytes` may come in pieces.
   */
  logs(handle: SandboxHandle, request: LogRequest, signal: AbortSignal): AsyncIterable<Buffer>;

  /** Ways into a running sandbox. Nothing happens before one of its methods is called. */
  access?(handle: SandboxHandle): SandboxAccess;

  /** Lets go of what this process holds (connections, watchers). Sandboxes live on. */
  close(): Promise<void>;
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
  /** The layers that hold on this machine, as in `SandboxFacts.isolation`. */
  readonly isolation: readonly string[];
}

export type ProbeResult =
  | {
      readonly available: true;
      readonly capabilities: DriverCapabilities;
      /** Features that do not work here, each a sentence with the consequence. Empty: nothing is missing. */
      readonly degraded: readonly string[];
    }
  | {
      readonly available: false;
      /** A sentence, and how to get it. */
      readonly reason: string;
      /** It may work a little later without anybody's doing: something did not answer in time, or has just ended. */
      readonly mayPass?: boolean;
    };

/** The command inside. `runtime/executors.ts` makes it from the runtime value. */
export type RuntimeCommand =
  /** The Python runtime of this interpreter version (`3.11`). */
  | { readonly kind: 'python'; readonly version: string }
  /** Any program that speaks the runtime protocol on the socket named by `ROOKERY_RUNTIME_SOCKET`. */
  | {
      readonly kind: 'exec';
      /** Empty: there is no program, and each call is answered with 4201 `empty user call code`. */
      readonly argv: readonly string[];
      /** It makes the socket itself: nothing is at its path before, and no descriptor is inherited. */
      readonly makesSocket?: boolean;
      /**
       * With `makesSocket`: it may serve HTTP on 127.0.0.1:8000 instead, as with kind `http`; the first of the two decides. Only in a network of
       * the sandbox's own: elsewhere the port may be another program's, and it is not looked at.
       */
      readonly orServesHttp?: boolean;
      /**
       * The directory of the program, inside. A start fails with `deploy dir is empty` when it is not there or has nothing in it, and
       * with a sentence when `argv[0]` is no program.
       */
      readonly deployDir?: string;
      /** A driver may keep processes of this `argv` that wait for their orders (docs/process-sandbox.md): it understands `--wait-for-orders`. */
      readonly canWait?: boolean;
      /** In an image: `argv[0]` is this program in exactly this version, or the start fails. On the host it was looked for beforehand. */
      readonly imageProgram?: { readonly name: 'java' | 'node'; readonly version: string };
    }
  /**
   * A program that serves HTTP on 127.0.0.1:8000 (docs/runtimes.md), with what speaks HTTP to it in the same network. `argv[0]` and
   * `deployDir` as above. The network is the sandbox's own, or two of them would meet on the port.
   */
  | { readonly kind: 'http'; readonly argv: readonly string[]; readonly deployDir: string }
  /** The image's own command, which serves HTTP on port 8000 as with `http`. Only with `rootfs.type` `image`. */
  | { readonly kind: 'image' };

export interface SandboxSpec {
  readonly instanceId: string;
  readonly tenant: string;
  readonly command: RuntimeCommand;
  /** Opens each connection to the runtime; never logged. */
  readonly secret: string;
  /** What the INIT will say: a runtime that can be told with its start loads the code at once. */
  readonly init?: object;
  readonly rootfs: { readonly type: 'host' | 'image'; readonly imageUrl: string; readonly user: string };
  /** The complete environment of the user's code, the platform's names included. */
  readonly env: Readonly<Record<string, string>>;
  /** Those of `env` whose values are secrets: they may stand in nothing that is kept or shown. Absent: none. */
  readonly secretVariables?: readonly string[];
  /** Inside the sandbox. */
  readonly workingDir: string;
  /** Workspace first when there is one. Sources are absolute; the driver resolves and checks them again when it mounts. */
  readonly mounts: readonly MountSpec[];
  /** Mounts whose sources the platform itself chose (below its data directory): the rule for callers' sources does not hold for them. */
  readonly platformMounts?: readonly MountSpec[];
  /**
   * When the control plane dies while it starts this, a sandbox whose program may have begun lives on and `list` has it; otherwise it is
   * undone. For what must not run twice.
   */
  readonly survivesCaller?: boolean;
  /** A command that is run once, to its end: where the machinery knows jobs (Kubernetes), it is one. */
  readonly runsOnce?: boolean;
  readonly ports: readonly PortSpec[];
  readonly cpuMillis: number;
  readonly memoryMb: number;
  readonly maxProcesses: number;
  readonly maxOpenFiles: number;
  /** `host`: reaches out, over the host's network or one of its own. `none`: loopback only. */
  readonly network: 'host' | 'none';
  /** Refuse to start when a layer of isolation that this driver can have does not work on this machine. */
  readonly requireIsolation: boolean;
  /** Where there are pools of sandboxes that wait: which ones to take one from. Absent: any that fits. */
  readonly pool?: PoolPreference;
}

export interface StartedSandbox {
  readonly handle: SandboxHandle;
  readonly endpoint: RuntimeEndpoint;
  readonly facts: SandboxFacts;
  /** Milliseconds that went to each part of the start, where the driver knows: `orders`, `mounts`, `limits`, `rights`. The rest is the hand-over. */
  readonly stages?: Readonly<Record<string, number>>;
}

/** Plain JSON with a version; stored with the row: nothing else of a driver is needed to adopt its sandbox. */
export interface SandboxHandle {
  readonly version: 1;
  readonly driver: SandboxType;
  readonly instanceId: string;
  /** Where its runtime listens. */
  readonly endpoint: RuntimeEndpoint;
  /** The driver's own facts (pids, container id, paths). */
  readonly data: Readonly<Record<string, unknown>>;
}

export interface ExitResult {
  /** Exit code, null when a signal ended it or it is not known. */
  readonly code: number | null;
  /** `SIGKILL`, … or null. */
  readonly signal: string | null;
  readonly oomKilled: boolean;
  readonly atMs: number;
  /** Who ended it, when that was neither its code nor this service: `supervisord stopped it`. */
  readonly cause?: string;
}

export type SandboxState =
  | { readonly state: 'running' }
  /**
   * It may run, and nobody can tell: the machine that it is on is lost, or what knows of it does not answer. Nothing takes its place before
   * it is known to have ended. `reason` is a sentence.
   */
  | { readonly state: 'unknown'; readonly reason: string }
  | { readonly state: 'exited'; readonly exit: ExitResult }
  | { readonly state: 'gone' };

export interface ListedSandbox {
  readonly instanceId: string;
  /** The node that started it, where its sandboxes are seen by all nodes; absent: this one. */
  readonly nodeId?: string;
  readonly handle: SandboxHandle;
  readonly running: boolean;
}

export interface ExecRequest {
  readonly argv: readonly string[];
  /** `''`: the sandbox's working directory; a relative one counts from it. */
  readonly workingDir: string;
  /** Added to the sandbox's environment. */
  readonly env: Readonly<Record<string, string>>;
  readonly stdin: string;
  readonly timeoutMs: number;
  /** How much of each output is kept; above it `truncated`. */
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
}

export interface LogRequest {
  /** The last n lines; null = all that is kept. */
  readonly tail: number | null;
  /** Only lines written at or after this moment; null = no bound. */
  readonly sinceMs: number | null;
  readonly follow: boolean;
}

/**
 * The exit as a caller reads it: `exit code 3`, `signal SIGKILL`, `signal SIGKILL (out of memory)`,
 * `supervisord stopped it (exit code 0)`.
 */
export function describeExit(exit: ExitResult): string {
  const how =
    exit.signal !== null ? `signal ${exit.signal}` : exit.code !== null ? `exit code ${exit.code}` : 'unknown reason';
  if (exit.cause !== undefined) return `${exit.cause} (${how})`;
  return exit.oomKilled ? `${how} (out of memory)` : how;
}
