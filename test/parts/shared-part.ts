import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { connect, createServer, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** A running part, with the facts that test files need, as JSON. */
export interface RunningPart<Facts> {
  readonly facts: Facts;
  stop(): Promise<void>;
}

/**
 * A part that is costly to start, one for all test files of a run. Vitest's main process holds it: `setup`
 * offers it on a socket. The first test file that asks starts it; the end of the run stops it.
 */
export class SharedPart<Facts> {
  readonly #name: string;
  readonly #start: () => Promise<RunningPart<Facts>>;

  constructor(name: string, start: () => Promise<RunningPart<Facts>>) {
    this.#name = name;
    this.#start = start;
  }

  /** Returns the facts of the part; for test files and the start of other parts. */
  async ask(): Promise<Facts> {
    const socket = process.env[this.#offer];
    if (socket === undefined || !existsSync(socket)) throw new Error(`this run of Vitest offers no ${this.#name}`);
    const text = await new Promise<string>((resolve, reject) => {
      const chunks: Buffer[] = [];
      connect(socket)
        .on('data', chunk => chunks.push(chunk))
        .once('end', () => resolve(Buffer.concat(chunks).toString()))
        .once('error', reject);
    });
    const answer = JSON.parse(text) as { readonly facts?: Facts; readonly error?: string };
    if (answer.facts === undefined) throw new Error(answer.error);
    return answer.facts;
  }

  /** Global set-up of Vitest, which calls it once for each project. */
  async setup(): Promise<void> {
    let holder = held.get(this.#name);
    if (holder === undefined) {
      holder = new Holder(this.#start);
      held.set(this.#name, holder);
      process.env[this.#offer] = holder.socket;
      await holder.listen();
    }
    holder.users += 1;
  }

  async teardown(): Promise<void> {
    const holder = held.get(this.#name);
    if (holder === undefined) return;
    holder.users -= 1;
    if (holder.users > 0) return;
    held.delete(this.#name);
    delete process.env[this.#offer];
    await holder.close();
  }

  get #offer(): string {
    return `ROOKERY_TEST_${this.#name.toUpperCase().replaceAll(' ', '_')}_OFFER`;
  }
}

class Holder {
  readonly directory = mkdtempSync(join(tmpdir(), 'rookery-offer-'));
  readonly socket = join(this.directory, 'socket');
  /** Number of Vitest projects that use the part; Vitest sets up each project separately. */
  users = 0;
  readonly #start: () => Promise<RunningPart<unknown>>;
  readonly #server: Server;
  #part: Promise<RunningPart<unknown>> | null = null;

  constructor(start: () => Promise<RunningPart<unknown>>) {
    this.#start = start;
    this.#server = createServer(socket => {
      socket.on('error', () => socket.destroy());
      this.#part ??= this.#start();
      this.#part.then(
        ({ facts }) => socket.end(JSON.stringify({ facts })),
        error => socket.end(JSON.stringify({ error: String(error) })),
      );
    });
    this.#server.unref();
  }

  async listen(): Promise<void> {
    await new Promise<void>(resolve => this.#server.listen(this.socket, resolve));
  }

  async close(): Promise<void> {
    this.#server.close();
    const part = await this.#part?.catch(() => null);
    await part?.stop();
    rmSync(this.directory, { recursive: true, force: true });
  }
}

/** Key of the shared state in `globalThis`, since each Vitest project has its own modules. */
const HELD = Symbol.for('rookery.test.shared-parts');
const everywhere = globalThis as { [HELD]?: Map<string, Holder> };
everywhere[HELD] ??= new Map();
const held = everywhere[HELD];
