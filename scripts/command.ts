import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';

/** The root of the work tree: every script runs its commands here. */
export const ROOT = fileURLToPath(new URL('..', import.meta.url));

/** What the script was asked for, `--` (which npm passes on) left out. */
export const ARGUMENTS: readonly string[] = process.argv.slice(2).filter(argument => argument !== '--');

export interface CommandResult {
  /** 0 is success; 127 when there is no such program; 128 + n for a signal. */
  readonly code: number;
  /** stdout and stderr as they came, `''` unless captured. */
  readonly output: string;
}

export interface CommandOptions {
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
  /** Keep the output instead of showing it. */
  readonly capture?: boolean;
  /** What runs longer is ended with SIGABRT, upon which a Python that has its faulthandler tells where it was. Default: no bound. */
  readonly seconds?: number;
}

/** What a program has started may keep its output open. */
const OUTPUT_AFTER_END_MS = 5000;

/** Runs a program to its end. Never rejects: the code and the output say what went wrong. */
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

/** A program that npm installed. */
export function bin(name: string): string {
  return `${ROOT}node_modules/.bin/${name}`;
}
