import type { Environment } from '../core/environment.ts';
import { failedPrecondition } from '../core/error.ts';
import type { MountSpec } from '../core/mount.ts';
import { findJdk, findRuntimeJar } from './jdks.ts';

/** What a sandbox runs: `RuntimeCommand` of the sandbox contract, which says what its members mean. */
export type ExecutorCommand =
  | { readonly kind: 'python'; readonly version: string }
  | {
      readonly kind: 'exec';
      readonly argv: readonly string[];
      readonly makesSocket?: boolean;
      readonly orServesHttp?: boolean;
      readonly deployDir?: string;
      readonly javaVersion?: string;
    }
  | { readonly kind: 'http'; readonly argv: readonly string[]; readonly deployDir: string }
  | { readonly kind: 'image' };

/** What the executor of an instance looks at. */
export interface ExecutorSubject {
  readonly runtime: string;
  /** Inside the sandbox. */
  readonly codePath: string;
  readonly handler: string;
  readonly memoryMb: number;
  /** `host`: programs are the host's. `image`: the image has them. */
  readonly rootfs: { readonly type: 'host' | 'image' };
}

/** What an executor makes of an instance. */
export interface Execution {
  readonly command: ExecutorCommand;
  /** What the command needs inside, beside the caller's mounts. */
  readonly mounts: readonly MountSpec[];
}

const NO_IMAGE =
  'it runs the command of an image, and this sandbox runs on the files of the host; choose sandbox_type docker, or start the server from a bootstrap with runtime http';
/** Of the instance's memory: the rest is for the machine itself, its threads and its classes. Java does not see the limit of its sandbox. */
const HEAP_SHARE = 0.6;
const MIN_HEAP_MB = 16;

interface Executor {
  readonly runtimes: RegExp;
  /** As the specification calls it. */
  readonly name: string;
  /** The execution of an instance, or the sentence why there is none. */
  readonly execution: (subject: ExecutorSubject, environment: Environment) => Execution | string;
}

/** The runtime table of the specification, first match wins. */
const EXECUTORS: readonly Executor[] = [
  {
    runtimes: /^python3\.(?:[6-9]|1[0-4])$/,
    name: 'Python3.x',
    execution: ({ runtime }) => ({
      command: { kind: 'python', version: runtime.slice('python'.length) },
      mounts: [],
    }),
  },
  { runtimes: /^go$/, name: 'Go1.x', execution: subject => program(subject, { makesSocket: false }) },
  { runtimes: /^http$/, name: 'Go1.x', execution: http },
  { runtimes: /^custom image$/, name: 'Go1.x', execution: customImage },
  { runtimes: /^java(?:8|11|17|21)$/, name: 'Java', execution: java },
];

// A program of any language: it may know nothing of inherited sockets, nor of the runtime protocol.
const FALLBACK: Executor = {
  runtimes: /^/,
  name: 'PosixCustom',
  execution: subject => program(subject, { makesSocket: true, orServesHttp: true }),
};

/** The executor of a runtime value, by its name. Every value has one. */
export function executorName(runtime: string): string {
  return executorOf(runtime).name;
}

/**
 * What a sandbox runs for an instance; the host's own programs are looked for where `environment` says. Fails with `failed_precondition`
 * (`invalid function: runtime <r> is not available: <why>`).
 */
export function executionOf(subject: ExecutorSubject, environment: Environment = {}): Execution {
  const execution = executorOf(subject.runtime).execution(subject, environment);
  if (typeof execution === 'string') {
    throw failedPrecondition(`invalid function: runtime ${subject.runtime} is not available: ${execution}`);
  }
  return execution;
}

const KNOWN = 'python3.6 to python3.14, go, http, custom image, java8, java11, java17, java21';

/** What to tell beside a start that failed of a runtime value that nobody knows; `''` for one that is known. */
export function unknownRuntimeHint({ runtime, codePath, handler }: ExecutorSubject): string {
  if (executorOf(runtime) !== FALLBACK || runtime === 'posix-custom-runtime') return '';
  const path = `${codePath.replace(/\/+$/, '')}/${handler}`;
  return `; "${runtime}" is no known runtime (there are ${KNOWN}), so it is taken as posix-custom-runtime, which runs the program <codePath>/<handler>, here ${path}`;
}

function executorOf(runtime: string): Executor {
  return EXECUTORS.find(executor => executor.runtimes.test(runtime)) ?? FALLBACK;
}

/** The program `<codePath>/<handler>`; without a handler none, so that each call learns that it is missing. */
function program(
  { codePath, handler }: ExecutorSubject,
  ways: { readonly makesSocket: boolean; readonly orServesHttp?: boolean },
): Execution {
  if (handler === '') return { command: { kind: 'exec', argv: [] }, mounts: [] };
  const directory = codePath.replace(/\/+$/, '');
  return {
    command: { kind: 'exec', argv: [`${directory}/${handler}`], deployDir: codePath, ...ways },
    mounts: [],
  };
}

/** The host's own Java, at its own path inside; that of an image is the one that its PATH has. */
function java({ runtime, memoryMb, rootfs }: ExecutorSubject, environment: Environment): Execution | string {
  const runtimeJar = findRuntimeJar();
  if (typeof runtimeJar === 'string') return runtimeJar;
  const { jar, libraries } = runtimeJar;
  const isImage = rootfs.type === 'image';
  const version = runtime.slice('java'.length);
  const jdk = isImage ? { java: 'java', home: null } : findJdk(version, environment);
  if (typeof jdk === 'string') return jdk;
  const heapMb = Math.max(MIN_HEAP_MB, Math.floor(memoryMb * HEAP_SHARE));
  const shown = [jar, libraries, jdk.home].filter(path => path !== null && (isImage || !isShown(path)));
  const argv = [jdk.java, '-XX:+UseSerialGC', `-Xmx${heapMb}m`, '-jar', jar];
  return {
    command: { kind: 'exec', argv, makesSocket: true, ...(isImage ? { javaVersion: version } : {}) },
    mounts: shown.map(path => ({ source: path as string, target: path as string, readonly: true })),
  };
}

/** Every sandbox on the host's files sees this. */
function isShown(path: string): boolean {
  return path.startsWith('/usr/');
}

/** The handler is for the server to know. */
function customImage({ rootfs }: ExecutorSubject): Execution | string {
  return rootfs.type === 'image' ? { command: { kind: 'image' }, mounts: [] } : NO_IMAGE;
}

/** `<codePath>/bootstrap` starts the server; the handler is for the server to know. */
function http({ codePath }: ExecutorSubject): Execution {
  const directory = codePath.replace(/\/+$/, '');
  return { command: { kind: 'http', argv: [`${directory}/bootstrap`], deployDir: codePath }, mounts: [] };
}
