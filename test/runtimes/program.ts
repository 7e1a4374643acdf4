import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { closeSync, mkdtempSync, openSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { RuntimeEndpoint } from '../../src/core/instance.ts';
import type { StartedRuntime } from '../suites/runtime.ts';

/** Way by which a separate runtime program learns where to listen. */
export type Listening = 'socket' | 'tcp' | { readonly inheritedAs: number };

/**
 * Returns each program with a way of listening, and each way with a program: the shorter list repeats. The
 * way concerns only how a connection opens, so a suite needs no run for each combination.
 */
export function withListening<Program>(
  programs: readonly [Program, ...Program[]],
  inheritedAs: number,
): readonly (readonly [program: Program, listening: Listening, name: string])[] {
  const ways: [Listening, string][] = [
    [{ inheritedAs }, 'on an inherited socket'],
    ['socket', 'on a socket of its own'],
    ['tcp', 'on TCP'],
  ];
  return Array.from({ length: Math.max(programs.length, ways.length) }, (_, index) => {
    const [listening, name] = ways[index % ways.length] as (typeof ways)[number];
    return [programs[index % programs.length] as Program, listening, name] as const;
  });
}

const PORT_FILE_WAIT_MS = 20_000;
const PORT_FILE_STEP_MS = 5;

/**
 * Script that makes a listening socket and executes the program, which inherits the socket as the expected
 * descriptor.
 */
const INHERIT = `
import os, socket, sys
path, fd = sys.argv[1], int(sys.argv[2])
listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
listener.bind(path)
listener.listen(16)
os.dup2(listener.fileno(), fd)
os.set_inheritable(fd, True)
os.execvp(sys.argv[3], sys.argv[3:])
`;

/**
 * Starts a program that speaks the runtime protocol, with the settings of docs/reference/runtime-protocol.md.
 */
export async function startProgram(
  argv: readonly string[],
  listening: Listening = 'socket',
  variables: Readonly<Record<string, string>> = {},
): Promise<StartedRuntime> {
  const directory = mkdtempSync(join(tmpdir(), 'rookery-program-'));
  const path = join(directory, 'runtime.sock');
  const portFile = join(directory, 'port');
  const logPath = join(directory, 'log');
  const secret = randomUUID();
  const mark = `ROOKERY_TEST_PROGRAM=${randomUUID()}`;
  const settings = settingsOf(listening, path, portFile);
  const inherited = typeof listening === 'object' ? ['python3', '-c', INHERIT, path, `${listening.inheritedAs}`] : [];
  const [command = '', ...rest] = [...inherited, ...argv];
  const log = openSync(logPath, 'a');
  const child = spawn(command, rest, {
    env: {
      PATH: process.env.PATH,
      HOME: process.env.HOME,
      ...settings,
      ROOKERY_RUNTIME_SECRET: secret,
      ...variables,
      ROOKERY_TEST_PROGRAM: mark.slice(mark.indexOf('=') + 1),
    },
    stdio: ['ignore', log, log],
  });
  closeSync(log);
  const exited = new Promise<number | null>((resolve, reject) => {
    child.once('exit', resolve);
    child.once('error', reject);
  });
  const dispose = async () => {
    child.kill('SIGKILL');
    await exited;
    killMarked(mark);
    rmSync(directory, { recursive: true, force: true });
  };
  try {
    const endpoint: RuntimeEndpoint = listening === 'tcp' ? await readAddress(portFile) : { kind: 'unix', path };
    return { endpoint, secret, exited, log: () => readFileSync(logPath, 'utf8'), dispose };
  } catch (error) {
    await dispose();
    throw error;
  }
}

/**
 * Kills the processes that the runtime started. Outside a sandbox they may outlive it, but their environment
 * contains the mark.
 */
function killMarked(mark: string): void {
  for (const pid of readdirSync('/proc')) {
    if (!/^\d+$/.test(pid)) continue;
    try {
      if (readFileSync(`/proc/${pid}/environ`, 'latin1').split('\0').includes(mark))
        process.kill(Number(pid), 'SIGKILL');
    } catch {
      // The process has ended.
    }
  }
}

function settingsOf(listening: Listening, path: string, portFile: string): Record<string, string> {
  if (listening === 'socket') return { ROOKERY_RUNTIME_SOCKET: path };
  if (listening === 'tcp') {
    return { ROOKERY_RUNTIME_SOCKET: 'tcp:127.0.0.1:0', ROOKERY_RUNTIME_PORT_FILE: portFile };
  }
  return { ROOKERY_RUNTIME_SOCKET: path, ROOKERY_RUNTIME_FD: `${listening.inheritedAs}` };
}

/** Reads the address that a runtime on TCP writes when it listens. */
async function readAddress(portFile: string): Promise<RuntimeEndpoint> {
  const signal = AbortSignal.timeout(PORT_FILE_WAIT_MS);
  for (;;) {
    try {
      const [host = '', port = ''] = readFileSync(portFile, 'utf8').trim().split(':');
      return { kind: 'tcp', host, port: Number(port) };
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
      await delay(PORT_FILE_STEP_MS, undefined, { signal });
    }
  }
}
