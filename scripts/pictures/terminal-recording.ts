import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ROOT } from '../command.ts';

/** Recording of a terminal: each command with its output, and the time of each line. */
export interface Recording {
  readonly steps: readonly RecordedStep[];
}

export interface RecordedStep {
  readonly command: string;
  readonly lines: readonly RecordedLine[];
}

export interface RecordedLine {
  /** Time since the start of the command, in whole milliseconds. */
  readonly afterMs: number;
  readonly text: string;
}

/**
 * Commands of the recording, and a text that the output of each must contain. Otherwise the recording fails.
 */
export const TERMINAL_COMMANDS: readonly (readonly [command: string, shows: string])[] = [
  ['rookery serve 2>log &', 'ready frontend='],
  ['rookery agent create hello --code ./hello --handler handler.handle', ''],
  [`rookery agent invoke hello '{"name": "Ada"}'`, '{"message":"Hello, Ada!","calls":1}'],
  [`rookery agent invoke hello '{"name": "Grace"}'`, '{"message":"Hello, Grace!","calls":2}'],
  ['rookery agent exec hello -- python3 -c "print(6 * 7)"', '42'],
  ['kill -9 %1   # the service; the agent goes on', ''],
  ['rookery serve 2>log &', 'ready frontend='],
  [`rookery agent invoke hello '{"name": "Edsger"}'`, '{"message":"Hello, Edsger!","calls":3}'],
];

const STEP_TIMEOUT_MS = 60_000;
const MARK = '\x1e';
/** Default ports, which the recording shows in place of the free ports that it uses. */
const SHOWN_PORTS = [8888, 31182];

/**
 * Runs the commands in one bash, in a temporary directory, against a separate service. Removes everything at
 * the end.
 */
export async function recordTerminal(): Promise<Recording> {
  const directory = mkdtempSync(join(tmpdir(), 'rookery-recording-'));
  const ports = [await freePort(), await freePort()];
  cpSync(join(ROOT, 'examples/hello'), join(directory, 'hello'), { recursive: true });
  mkdirSync(join(directory, 'bin'));
  const program = `#!/bin/sh\nexec "${process.execPath}" "${join(ROOT, 'dist/main.js')}" "$@"\n`;
  writeFileSync(join(directory, 'bin/rookery'), program, { mode: 0o755 });
  const shell = new Shell(directory, ports);
  try {
    const steps: RecordedStep[] = [];
    for (const [command, shows] of TERMINAL_COMMANDS) {
      const lines = await shell.run(command, shows);
      steps.push({ command, lines: lines.map(line => ({ ...line, text: withShownPorts(line.text, ports) })) });
    }
    return { steps };
  } finally {
    await shell.close();
    rmSync(directory, { recursive: true, force: true });
  }
}

function withShownPorts(text: string, ports: readonly number[]): string {
  return ports.reduce((shown, port, index) => shown.replaceAll(`:${port}`, `:${SHOWN_PORTS[index]}`), text);
}

/** A bash with job control, whose output is read line by line. */
class Shell {
  readonly #child;
  readonly #waiting = new Set<() => void>();
  #lines: RecordedLine[] = [];
  #partial = '';
  #startedAt = 0;

  constructor(directory: string, ports: readonly number[]) {
    const inherited = Object.entries(process.env).filter(([name]) => !name.startsWith('ROOKERY_'));
    this.#child = spawn(
      'bash',
      ['-c', 'exec 2>&1 3<&0 </dev/null; set -m; while IFS= read -r line <&3; do eval "$line"; done'],
      {
        cwd: directory,
        stdio: ['pipe', 'pipe', 'inherit'],
        env: {
          ...Object.fromEntries(inherited),
          PATH: `${join(directory, 'bin')}:${process.env.PATH}`,
          XDG_CONFIG_HOME: join(directory, 'config'),
          ROOKERY_DATA_DIR: join(directory, 'data'),
          ROOKERY_PORT: String(ports[0]),
          ROOKERY_META_PORT: String(ports[1]),
          ROOKERY_ADDRESS: `http://127.0.0.1:${ports[0]}`,
        },
      },
    );
    this.#child.stdout.setEncoding('utf8').on('data', (chunk: string) => this.#read(chunk));
  }

  /** Runs a command. Returns its output lines when it has ended and one of them contains `shows`. */
  async run(command: string, shows: string): Promise<readonly RecordedLine[]> {
    this.#lines = [];
    this.#startedAt = performance.now();
    this.#child.stdin.write(`${command}\nprintf '${MARK}\\n'\n`);
    await this.#until(
      () => this.#lines.some(({ text }) => text === MARK) && this.#lines.some(({ text }) => text.includes(shows)),
      `"${command}" to print "${shows}"`,
    );
    // Drops bash's message about the end of a job, because an interactive bash prints another text at another
    // time.
    return this.#lines.filter(({ text }) => text !== MARK && text !== '' && !text.startsWith('bash: line '));
  }

  async close(): Promise<void> {
    const ended = once(this.#child, 'close');
    this.#child.stdin.end('rookery agent delete hello\nkill %%\nwait\n');
    await ended;
  }

  #read(chunk: string): void {
    const lines = (this.#partial + chunk).split('\n');
    this.#partial = lines.pop() ?? '';
    const afterMs = Math.round(performance.now() - this.#startedAt);
    this.#lines.push(...lines.map(text => ({ afterMs, text })));
    for (const wake of this.#waiting) wake();
  }

  async #until(isDone: () => boolean, what: string): Promise<void> {
    await new Promise<void>((resolve, reject) => {
      const timer = setTimeout(() => {
        this.#waiting.delete(look);
        reject(new Error(`waited for ${what}; it printed ${this.#lines.map(({ text }) => text).join('\n')}`));
      }, STEP_TIMEOUT_MS);
      const look = () => {
        if (!isDone()) return;
        clearTimeout(timer);
        this.#waiting.delete(look);
        resolve();
      };
      this.#waiting.add(look);
      look();
    });
  }
}

async function freePort(): Promise<number> {
  const server = createServer();
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  server.close();
  await once(server, 'close');
  if (address === null || typeof address === 'string') throw new Error('no free port');
  return address.port;
}
