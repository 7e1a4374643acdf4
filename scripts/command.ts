import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';

/** Root of the work tree, in which every script runs its commands. */
export const ROOT = fileURLToPath(new URL('..', import.meta.url));

/** Arguments of the script, without the `--` that npm adds. */
export const ARGUMENTS: readonly string[] = process.argv.slice(2).filter(argument => argument !== '--');

export interface CommandResult {
  /** Exit code: 127 when the program does not exist, 128 after a signal. */
  readonly code: number;
  /** Output of stdout and stderr in the order of arrival, or `''` unless captured. */
  readonly output: string;
}

export interface CommandOptions {
  readonly env?: Readonly<Record<string, string | undefined>>;
  readonly cwd?: string;
  /** Keeps the output instead of printing it. */
  readonly capture?: boolean;
  /**
   * Time limit in seconds, after which SIGABRT ends the program. A Python with faulthandler then prints its
   * stack. Default: none.
   */
  readonly seconds?: number;
}

/**
 * Time after the program's exit in which the output stays open, because child processes may still hold it.
 */
const OUTPUT_AFTER_END_MS = 5000;

/** Runs a program to its end. Never rejects: the code and the output tell the error. */
export function run(program: string, args: readonly string[], options: CommandOptions = {}): Promise<CommandResult> {
  return new Promise(resolve => {
    const child = spawn(program, args, {
      cwd: options.cwd ?? ROOT,
      env: { ...process.env, ...options.env },
      stdio: options.capture ? ['ignore', 'pipe', 'pipe'] : ['ignore', 'inherit', 'inherit'],
    });
    const chunks: Buffer[] = [];
    child.stdout?.on('data', chunk => chunks.push(chunk));
    child.stderr?.on('data', chunk => chunks.push(chunk));
    const output = () => Buffer.concat(chunks).toString();
    const bound = options.seconds && setTimeout(() => child.kill('SIGABRT'), options.seconds * 1000);
    child.once('exit', () => {
      const drop = setTimeout(() => {
        child.stdout?.destroy();
        child.stderr?.destroy();
      }, OUTPUT_AFTER_END_MS);
      child.once('close', () => clearTimeout(drop));
    });
    child.once('close', () => clearTimeout(bound));
    child.once('error', error => resolve({ code: 127, output: `${program}: ${error.message}` }));
    child.once('close', (code, signal) => resolve({ code: code ?? (signal === null ? 1 : 128), output: output() }));
  });
}

/** Returns the path of a program that npm installed. */
export function bin(name: string): string {
  return `${ROOT}node_modules/.bin/${name}`;
}
