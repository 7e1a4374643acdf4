import { failedPrecondition } from '../core/error.ts';

/** What a sandbox runs: `RuntimeCommand` of the sandbox contract. */
export type ExecutorCommand =
  | { readonly kind: 'python'; readonly version: string }
  | { readonly kind: 'exec'; readonly argv: readonly string[] };

interface Executor {
  readonly runtimes: RegExp;
  /** As the specification calls it. */
  readonly name: string;
  /** The command of a runtime value, or the sentence why there is none. */
  readonly command: (runtime: string) => ExecutorCommand | string;
}

/** The runtime table of the specification, first match wins. A language that is added replaces its row's `command`. */
const EXECUTORS: readonly Executor[] = [
  {
    runtimes: /^python3\.(?:[6-9]|1[0-4])$/,
    name: 'Python3.x',
    command: runtime => ({ kind: 'python', version: runtime.slice('python'.length) }),
  },
  { runtimes: /^(?:go|http|custom image)$/, name: 'Go1.x', command: () => notInstalled('Go1.x') },
  { runtimes: /^java(?:8|11|17|21)$/, name: 'Java', command: () => notInstalled('Java') },
];

const FALLBACK: Executor = { runtimes: /^/, name: 'PosixCustom', command: () => notInstalled('PosixCustom') };

/** The executor of a runtime value, by its name. Every value has one. */
export function executorName(runtime: string): string {
  return executorOf(runtime).name;
}

/**
 * What a sandbox runs for a runtime value. Fails with `failed_precondition`
 * (`invalid function: runtime <r> is not available: <why>`).
 */
export function commandOf(runtime: string): ExecutorCommand {
  const command = executorOf(runtime).command(runtime);
  if (typeof command === 'string') {
    throw failedPrecondition(`invalid function: runtime ${runtime} is not available: ${command}`);
  }
  return command;
}

function executorOf(runtime: string): Executor {
  return EXECUTORS.find(executor => executor.runtimes.test(runtime)) ?? FALLBACK;
}

function notInstalled(executor: string): string {
  return `this installation has no ${executor} executor`;
}
