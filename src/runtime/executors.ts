import type { Environment } from '../core/environment.ts';
import { failedPrecondition } from '../core/error.ts';
import { type HttpProfileName, httpProfileOf } from '../core/http-profiles.ts';
import type { MountSpec } from '../core/instance.ts';
import { LAMBDA_RUNTIME } from '../core/lambda-name.ts';
import { LIMITS } from '../core/limits.ts';
import { realPathOf } from '../lib/path-lookup.ts';
import { findJdk, findRuntimeJar } from './jdks.ts';
import { findLambdaClient, findNode, findNodeRuntime } from './nodes.ts';

/** The command of a sandbox. `RuntimeCommand` of the sandbox contract explains its members. */
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

/**
 * A program that an image must have on its PATH, in this major version.
 * `''`: the oldest supported version or newer.
 */
export interface ImageProgram {
  readonly name: 'java' | 'node';
  readonly version: string;
}

/** The parts of an instance that its executor uses. */
export interface ExecutorSubject {
  readonly runtime: string;
  /** Absent: `http`. */
  readonly httpProfile?: HttpProfileName;
  /** The path of the code, inside the sandbox. */
  readonly codePath: string;
  readonly handler: string;
  readonly memoryMb: number;
  /** `host`: programs are the host's. `image`: the image has them. */
  readonly rootfs: { readonly type: 'host' | 'image' };
}

/** The command and the mounts that an executor derives from an instance. */
export interface Execution {
  readonly command: ExecutorCommand;
  /** Mounts that the command needs, in addition to the client's. */
  readonly mounts: readonly MountSpec[];
}

const NO_IMAGE =
  'it runs the command of an image, and this sandbox runs on the files of the host; choose sandbox_type docker, or start the server from a bootstrap with runtime http';
/**
 * Share of the instance's memory for the heap. The rest is for the virtual machine, its threads and classes.
 * Neither Java nor Node detects the memory limit of its sandbox.
 */
const HEAP_SHARE = 0.6;
const MIN_HEAP_MB = 16;
/** Minimum heap with which Node starts. */
const MIN_NODE_HEAP_MB = 32;

interface Executor {
  readonly runtimes: RegExp;
  /** Name in the specification. */
  readonly name: string;
  /** Returns the execution of an instance, or a sentence why there is none. */
  readonly execution: (subject: ExecutorSubject, environment: Environment) => Execution | string;
}

/** The runtime table of the specification; the first match wins. */
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
  { runtimes: new RegExp(`^${LAMBDA_RUNTIME}$`), name: 'PosixCustom', execution: lambda },
  { runtimes: /^custom image$/, name: 'Go1.x', execution: customImage },
  { runtimes: /^java(?:8|11|17|21)$/, name: 'Java', execution: java },
  { runtimes: /^nodejs(?:20|22|24)?$/, name: 'Nodejs', execution: nodejs },
];

// A program of any language, which may support neither inherited sockets nor the runtime protocol.
const FALLBACK: Executor = {
  runtimes: /^/,
  name: 'PosixCustom',
  execution: subject => program(subject, { makesSocket: true, orServesHttp: true }),
};

/** Returns the name of a runtime value's executor. Every value has one. */
export function executorName(runtime: string): string {
  return executorOf(runtime).name;
}

/**
 * Returns the command of an instance's sandbox. Programs of the host are searched where `environment` says.
 * Fails with `failed_precondition` (`invalid function: runtime <r> is not available: <why>`).
 */
export function executionOf(subject: ExecutorSubject, environment: Environment = {}): Execution {
  const execution = executorOf(subject.runtime).execution(subject, environment);
  if (typeof execution === 'string') {
    throw failedPrecondition(`invalid function: runtime ${subject.runtime} is not available: ${execution}`);
  }
  return execution;
}

const KNOWN =
  'python3.6 to python3.14, go, http, lambda, custom image, java8, java11, java17, java21, nodejs20, nodejs22, nodejs24, nodejs';

/** Explains why a start of this runtime failed: the program that the runtime starts, then `message`. */
export function explainStart(subject: ExecutorSubject, message: string): string {
  const { runtime, codePath, handler } = subject;
  if (runtime === 'http') return explainHttp(subject, message);
  if (executorOf(runtime) !== FALLBACK || runtime === 'posix-custom-runtime') return message;
  const path = `${codePath.replace(/\/+$/, '')}/${handler}`;
  return `"${runtime}" is no known runtime (there are ${KNOWN}), so it is taken as posix-custom-runtime, which runs the program <codePath>/<handler>, here ${path}: ${message}`;
}

function explainHttp({ httpProfile }: ExecutorSubject, message: string): string {
  if (!message.startsWith('there is no program')) return message;
  const page = httpProfile ? 'docs/guides/http-profiles.md' : 'docs/languages/http.md';
  const { port } = httpProfileOf(httpProfile);
  return `${message}; runtime http starts this executable file, a server of HTTP on 127.0.0.1:${port} (${page})`;
}

function executorOf(runtime: string): Executor {
  return EXECUTORS.find(executor => executor.runtimes.test(runtime)) ?? FALLBACK;
}

/**
 * Runs the program `<codePath>/<handler>`. Without a handler there is no program, and each call reports that.
 */
function program(
  { codePath, handler }: ExecutorSubject,
  listening: { readonly makesSocket: boolean; readonly orServesHttp?: boolean },
): Execution {
  if (handler === '') return { command: { kind: 'exec', argv: [] }, mounts: [] };
  const directory = codePath.replace(/\/+$/, '');
  return {
    command: { kind: 'exec', argv: [`${directory}/${handler}`], deployDir: codePath, ...listening },
    mounts: [],
  };
}

/** Runs the host's own Java, at its own path inside, or the Java on the image's PATH. */
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
    mounts: shown.map(path => ({ source: realPathOf(path as string), target: path as string, readonly: true })),
  };
}

/** Runs the host's own Node, at its own path inside, or the Node on the image's PATH. */
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
        : // The heap size is set at the start, so only instances of the default memory can be started in
          // advance.
          { canWait: memoryMb === LIMITS.memoryMb.default }),
    },
    mounts: paths
      .filter(path => isImage || !isShown(path))
      .map(path => ({ source: realPathOf(path), target: path, readonly: true })),
  };
}

/** Checks for a path below /usr/, which every sandbox on the host's files sees. */
function isShown(path: string): boolean {
  return path.startsWith('/usr/');
}

/** Runs the image's own command. The server itself reads the handler. */
function customImage({ rootfs }: ExecutorSubject): Execution | string {
  return rootfs.type === 'image' ? { command: { kind: 'image' }, mounts: [] } : NO_IMAGE;
}

/** Starts the functions framework beside the code: that of Node.js if it exists, otherwise that of Python. */
const FRAMEWORK = `cd -- "$1" || exit
[ ! -x ./bootstrap ] || exec ./bootstrap
: "\${FUNCTION_SOURCE:=}"
if [ -e node_modules/@google-cloud/functions-framework ]; then
  set -- "$2" node_modules/@google-cloud/functions-framework/build/src/main.js
else
  set -- python3 -m functions_framework
  : "\${FUNCTION_SOURCE:=main.py}"
fi
exec "$@" --target "$FUNCTION_TARGET" \${FUNCTION_SOURCE:+--source "$FUNCTION_SOURCE"} --port "$PORT"`;

/**
 * Runs `<codePath>/bootstrap`, which starts the server. The server itself reads the handler.
 * Some profiles start the functions framework instead when that file does not exist.
 */
function http({ codePath, httpProfile, rootfs }: ExecutorSubject, environment: Environment): Execution {
  const directory = codePath.replace(/\/+$/, '');
  if (httpProfileOf(httpProfile).runsFramework) {
    const found = rootfs.type === 'image' ? null : findNode('', environment);
    const node = found === null || 'problem' in found ? 'node' : found.path;
    const argv = ['/bin/sh', '-c', FRAMEWORK, 'functions-framework', directory, node];
    const mounts = node === 'node' || isShown(node) ? [] : [{ source: realPathOf(node), target: node, readonly: true }];
    return { command: { kind: 'http', argv, deployDir: codePath }, mounts };
  }
  return { command: { kind: 'http', argv: [`${directory}/bootstrap`], deployDir: codePath }, mounts: [] };
}

/**
 * Runs code for AWS Lambda. The bridge in the sandbox chooses its program, which may be Node.js with a client
 * of ours. The first two arguments only mark the bridge.
 */
function lambda({ codePath, rootfs }: ExecutorSubject, environment: Environment): Execution {
  const found = rootfs.type === 'image' ? { path: 'node' } : findNode('', environment);
  const client = 'path' in found ? findLambdaClient() : null;
  const node = 'path' in found && client !== null ? found.path : '';
  const paths = [...(client === null ? [] : [client]), ...(rootfs.type === 'image' || node === '' ? [] : [node])];
  return {
    command: { kind: 'http', argv: ['/bin/sh', 'rookery-lambda', node, client ?? ''], deployDir: codePath },
    mounts: paths
      .filter(path => rootfs.type === 'image' || !isShown(path))
      .map(path => ({ source: realPathOf(path), target: path, readonly: true })),
  };
}
