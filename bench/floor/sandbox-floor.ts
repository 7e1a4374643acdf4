import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

const PROGRAM = fileURLToPath(new URL('sandbox.py', import.meta.url));

/** Times of one turn, in milliseconds: from the order to the first result, and the end of the sandbox. */
export interface SandboxTimes {
  readonly createMs: number;
  readonly deleteMs: number;
}

/** The floor of creates and deletes: `sandbox.py`, which holds one sandbox at a time. */
export class SandboxFloor {
  readonly #process: ChildProcess;
  readonly #root: string;
  readonly #answers: AsyncIterator<string>;

  private constructor(process: ChildProcess, root: string, answers: AsyncIterator<string>) {
    this.#process = process;
    this.#root = root;
    this.#answers = answers;
  }

  /** Starts the program with the interpreter at `python`. Returns null unless this process is root. */
  static async tryStart(python: string): Promise<SandboxFloor | null> {
    if (process.getuid?.() !== 0) return null;
    const root = mkdtempSync(join(tmpdir(), 'rookery-floor-'));
    const child = spawn(python, [PROGRAM, root], { stdio: ['pipe', 'pipe', 'inherit'] });
    const floor = new SandboxFloor(child, root, createInterface({ input: child.stdout })[Symbol.asyncIterator]());
    await floor.#expect('ready');
    return floor;
  }

  /**
   * Makes a sandbox, runs `handler.handle` of the directory `code` in it, and ends the sandbox with all its
   * processes and control groups. Throws unless the handler returns `event`.
   */
  async time(code: string, event: unknown): Promise<SandboxTimes> {
    const startedAt = performance.now();
    this.#process.stdin?.write(`create ${code} ${JSON.stringify(event)}\n`);
    const result = await this.#next();
    const answeredAt = performance.now();
    if (JSON.stringify(JSON.parse(result)) !== JSON.stringify(event)) throw new Error(`the floor answered ${result}`);
    const deletingAt = performance.now();
    this.#process.stdin?.write('delete\n');
    await this.#expect('deleted');
    return { createMs: answeredAt - startedAt, deleteMs: performance.now() - deletingAt };
  }

  async stop(): Promise<void> {
    const ended = new Promise(resolve => this.#process.once('exit', resolve));
    this.#process.stdin?.end();
    await ended;
    rmSync(this.#root, { recursive: true });
  }

  async #expect(answer: string): Promise<void> {
    const line = await this.#next();
    if (line !== answer) throw new Error(`the floor answered ${line} instead of ${answer}`);
  }

  async #next(): Promise<string> {
    const line = await this.#answers.next();
    if (line.done) throw new Error('the floor ended');
    return line.value;
  }
}
