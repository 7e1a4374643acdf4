import { execFile } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';

const execute = promisify(execFile);

export interface Interpreter {
  /** `3.11` */
  readonly version: string;
  /** The real program: a version manager's shim costs 50 ms on every start. */
  readonly executable: string;
}

const MINORS = Array.from({ length: 15 }, (_, index) => index + 6); // 3.6 to 3.20
const ASK = 'import sys; print("%d.%d" % sys.version_info[:2]); print(sys.executable)';
const ASK_TIMEOUT_MS = 10_000;

/** Every Python from 3.6 on that this machine has, one of each minor version, oldest first. */
export async function findInterpreters(): Promise<readonly Interpreter[]> {
  const candidates = ['python3', ...MINORS.map(minor => `python3.${minor}`), ...managedPythons()];
  const answers = await Promise.all(candidates.map(ask));
  const byVersion = new Map<string, Interpreter>();
  for (const answer of answers)
    if (answer !== null && !byVersion.has(answer.version)) byVersion.set(answer.version, answer);
  return [...byVersion.values()].sort((a, b) => minorOf(a) - minorOf(b));
}

/** Those that pyenv installed: its shims answer only for the versions that are switched on. */
function managedPythons(): readonly string[] {
  const versions = join(process.env.PYENV_ROOT ?? join(homedir(), '.pyenv'), 'versions');
  try {
    return readdirSync(versions)
      .sort()
      .map(version => join(versions, version, 'bin/python3'));
  } catch {
    return [];
  }
}

async function ask(program: string): Promise<Interpreter | null> {
  try {
    const { stdout } = await execute(program, ['-c', ASK], { timeout: ASK_TIMEOUT_MS });
    const [version, executable] = stdout.trim().split('\n');
    if (version === undefined || executable === undefined || !/^3\.\d+$/.test(version)) return null;
    const interpreter = { version, executable };
    return minorOf(interpreter) >= 6 ? interpreter : null;
  } catch {
    return null; // not there, or a shim without a version behind it
  }
}

function minorOf(interpreter: Interpreter): number {
  return Number(interpreter.version.slice(2));
}
