/**
 * Starts the Python loops behind a floor. Each has one unix socket, and returns results in the order of the
 * bodies.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const LOOP = fileURLToPath(new URL('loop.py', import.meta.url));

/** Connection to a Python loop. It returns results in the order of the bodies. */
export class Loop {
  readonly #socket: Socket;
  readonly #waiting: ((result: Buffer) => void)[] = [];
  #rest: Buffer = Buffer.alloc(0);

  constructor(socket: Socket) {
    this.#socket = socket;
    socket.on('data', chunk => this.#read(chunk));
  }

  call(body: Buffer, done: (result: Buffer) => void): void {
    this.#waiting.push(done);
    const frame = Buffer.allocUnsafe(4 + body.length);
    frame.writeUInt32BE(body.length);
    body.copy(frame, 4);
    this.#socket.write(frame);
  }

  #read(chunk: Buffer): void {
    this.#rest = this.#rest.length === 0 ? chunk : Buffer.concat([this.#rest, chunk]);
    while (this.#rest.length >= 4) {
      const end = 4 + this.#rest.readUInt32BE(0);
      if (this.#rest.length < end) return;
      const result = this.#rest.subarray(4, end);
      this.#rest = this.#rest.subarray(end);
      this.#waiting.shift()?.(result);
    }
  }
}

/**
 * Starts the loops that the program's arguments name (`<interpreter> <count>`). `SIGTERM` ends them and the
 * program.
 */
export async function startLoops(): Promise<readonly Loop[]> {
  const [python = 'python3', count = '1'] = process.argv.slice(2);
  const scratch = mkdtempSync(join(tmpdir(), 'rookery-floor-'));
  const children: ChildProcess[] = [];
  process.once('SIGTERM', () => {
    for (const child of children) child.kill('SIGKILL');
    rmSync(scratch, { recursive: true, force: true });
    process.exit(0);
  });
  const start = async (index: number) => {
    const path = join(scratch, `${index}.sock`);
    const child = spawn(python, [LOOP, path], { stdio: ['ignore', 'pipe', 'inherit'] });
    children.push(child);
    await new Promise(resolve => child.stdout.once('data', resolve));
    const socket = connect(path);
    await new Promise(resolve => socket.once('connect', resolve));
    return new Loop(socket);
  };
  return await Promise.all(Array.from({ length: Number(count) }, (_, index) => start(index)));
}
