/**
 * The floor: the least that this shape can cost. A bare `node:http` server that passes the body of `POST /<n>` over one unix
 * socket to the nth bare Python loop, and its answer back. Arguments: the interpreter and how many loops.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const LOOP = fileURLToPath(new URL('loop.py', import.meta.url));
const [python = 'python3', count = '1'] = process.argv.slice(2);

/** One loop: bodies go in, results come back in the same order. */
class Loop {
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

const scratch = mkdtempSync(join(tmpdir(), 'rookery-floor-'));
const children: ChildProcess[] = [];

async function startLoop(index: number): Promise<Loop> {
  const path = join(scratch, `${index}.sock`);
  const child = spawn(python, [LOOP, path], { stdio: ['ignore', 'pipe', 'inherit'] });
  children.push(child);
  await new Promise(resolve => child.stdout?.once('data', resolve));
  const socket = connect(path);
  await new Promise(resolve => socket.once('connect', resolve));
  return new Loop(socket);
}

const loops = await Promise.all(Array.from({ length: Number(count) }, (_, index) => startLoop(index)));

const server = createServer((request, response) => {
  const loop = loops[Number(request.url?.slice(1))];
  if (loop === undefined) {
    response.writeHead(404).end();
    return;
  }
  const chunks: Buffer[] = [];
  request.on('data', chunk => chunks.push(chunk));
  request.on('end', () => {
    loop.call(chunks.length === 1 && chunks[0] !== undefined ? chunks[0] : Buffer.concat(chunks), result => {
      response.writeHead(200, { 'content-type': 'application/json', 'content-length': result.length });
      response.end(result);
    });
  });
});
server.listen(0, '127.0.0.1', () => {
  console.log(`ready http://127.0.0.1:${(server.address() as AddressInfo).port}`);
});

process.once('SIGTERM', () => {
  for (const child of children) child.kill('SIGKILL');
  rmSync(scratch, { recursive: true, force: true });
  process.exit(0);
});
