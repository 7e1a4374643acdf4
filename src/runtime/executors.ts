import type { Environment } from '../core/environment.ts';
import { failedPrecondition } from '../core/error.ts';
import { LIMITS } from '../core/limits.ts';
import type { MountSpec } from '../core/mount.ts';
import { findJdk, findRuntimeJar } from './jdks.ts';
import { findNode, findNodeRuntime } from './nodes.ts';

/** The command of a sandbox: `RuntimeCommand` of the sandbox contract, which says what its members mean. */
export type ExecutorCommand =
  | { readonly kind: 'python'; readonly version: string }
  | {
      readonly kind: 'exec';
      readonly argv: readonly string[];
      readonly makesSocket?: boolean;
      readonly orServesHttp?: boolean;
      readonly deployDir?: string;
      readonly imageProgram?: ImageProgram;
      readonly canWait?: boolean;
    }
  | { readonly kind: 'http'; readonly argv: readonly string[]; readonly deployDir: string }
  | { readonly kind: 'image' };

/** A program that an image must have on its PATH, in this major version; `''`: the oldest that is supported, or a newer one. */
export interface ImageProgram {
  readonly name: 'java' | 'node';
  readonly version: string;
}

/** The parts of an instance that its executor looks at. */
export interface ExecutorSubject {
  readonly runtime: string;
  /** Inside the sandbox. */
  readonly codePath: string;
  readonly handler: string;
  readonly memoryMb: number;
  /** `host`: programs are the host's. `image`: the image has them. */
  readonly rootfs: { readonly type: 'host' | 'image' };
}

/** The command and the mounts that an executor makes of an instance. */
export interface Execution {
  readonly command: ExecutorCommand;
  /** Mounts that the command needs, beside the caller's. */
  readonly mounts: readonly MountSpec[];
}

const NO_IMAGE =
  'it runs the command of an image, and this sandbox runs on the files of the host; choose sandbox_type docker, or start the server from a bootstrap with runtime http';
/** Of the instance's memory: the rest is for the machine itself, its threads and its classes. Neither Java nor Node sees the limit of its sandbox. */
const HEAP_SHARE = 0.6;
const MIN_HEAP_MB = 16;
/** Node needs some to start at all. */
const MIN_NODE_HEAP_MB = 32;

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
  { runtimes: /^nodejs(?:20|22|24)?$/, name: 'Nodejs', execution: nodejs },
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
 * The command of an instance's sandbox; the host's own programs are looked for where `environment` says. Fails with `failed_precondition`
 * (`invalid function: runtime <r> is not available: <why>`).
 */
export function executionOf(subject: ExecutorSubject, environment: Environment = {}): Execution {
  const execution = executorOf(subject.runtime).execution(subject, environment);
  if (typeof execution === 'string') {
    throw failedPrecondition(`invalid function: runtime ${subject.runtime} is not available: ${execution}`);
  }
  return execution;
}

const KNOWN =
  'python3.6 to python3.14, go, http, custom image, java8, java11, java17, java21, nodejs20, nodejs22, nodejs24, nodejs';

/** A hint beside the failed start of a runtime value that nobody knows; `''` for one that is known. */
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
    command: { kind: 'exec', argv, makesSocket: true, ...(isImage ? { imageProgram: { name: 'java', version } } : {}) },
    mounts: shown.map(path => ({ source: path as string, target: path as string, readonly: true })),
  };
}

/** The host's own Node, at its own path inside; that of an image is the one that its PATH has. */
function nodejs({ runtime, memoryMb, rootfs }: ExecutorSubject, environment: Environment): Execution | string {
  const files = findNodeRuntime();
  if (typeof files === 'string') return files;
  const isImage = rootfs.type === 'image';
  const version = runtime.slice('nodejs'.length);
  const node = isImage ? 'node' : findNode(version, environment);
  if (typeof node !== 'string' && 'problem' in node) return node.problem;
  const program = typeof node === 'string' ? node : node.path;
  const heapMb = Math.max(MIN_NODE_HEAP_MB, Math.floor(memoryMb * HEAP_SHARE));
  const paths = [...files.directories, ...(isImage ? [] : [program])];
  return {
    command: {
      kind: 'exec',
      argv: [program, `--max-old-space-size=${heapMb}`, files.main],
      ...(isImage
        ? { makesSocket: true, imageProgram: { name: 'node', version } }
        : // Its heap is set when it starts, so only those of one size can be made before they are asked for.
          { canWait: memoryMb === LIMITS.memoryMb.default }),
    },
    mounts: paths
      .filter(path => isImage || !isShown(path))
      .map(path => ({ source: path, target: path, readonly: true })),
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
