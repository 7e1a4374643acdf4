import type { MessagePort } from 'node:worker_threads';
import { CompiledQuery } from 'kysely';
import { internal, ServiceError } from '../core/error.ts';
import { fileAt, lostSentence } from './data-dir-watch.ts';
import { connect, type Database } from './database.ts';
import { type DurableWrites, openDurableWrites, type WriteOperation } from './durable.ts';
import { type FromThread, type Order, type SentOutcome, sendError, type ToThread } from './write-messages.ts';

/** The write operations that may be ordered, by their names. */
export type WriteOperations = Readonly<Record<string, WriteOperation<never, unknown>>>;

interface Opened {
  readonly database: Database;
  readonly writes: DurableWrites;
  readonly operations: WriteOperations;
}

/**
 * The inside of the thread that writes: does what comes through `port` to the database at `file`, until it is asked to end. With the
 * first message the database has to be there, up to date.
 */
export function serveWrites(port: MessagePort, file: string, operations: WriteOperations): void {
  const disk = new Disk(
    async () => {
      const { database } = await (opening as Promise<Opened>);
      await database.executeQuery(PROBE);
    },
    problem => port.postMessage({ outcomes: [], problem } satisfies FromThread),
  );
  const answers = new Answers(port, disk, [file, `${file}-wal`]);
  const open = new Set<Promise<void>>();
  let opening: Promise<Opened> | undefined;
  port.on('message', async ({ orders, isLast }: ToThread) => {
    opening ??= openFor(file, operations).finally(() => answers.begin());
    const opened = await opening;
    for (const order of orders) {
      const done = run(order, opened)
        .then(
          result => {
            disk.took();
            answers.add([order[0], result], opened.writes);
          },
          (error: unknown) => {
            disk.refused(error);
            answers.add([order[0], null, sendError(error)], opened.writes);
          },
        )
        .then(() => void open.delete(done));
      open.add(done);
    }
    if (!isLast) return;
    await Promise.all(open);
    disk.close();
    await opened.writes.close();
    // A full disk keeps the log as it is.
    await opened.database.executeQuery(CHECKPOINT).catch(() => undefined);
    await opened.database.destroy();
    answers.flush(opened.writes);
    port.close();
  });
}

async function openFor(file: string, operations: WriteOperations): Promise<Opened> {
  const database = connect(file);
  return { database, writes: await openDurableWrites(database, file), operations };
}

async function run([, operation, what, parameters]: Order, { database, writes, operations }: Opened): Promise<unknown> {
  if (operation !== null)
    return await writes.write(operations[operation] as WriteOperation<readonly unknown[], unknown>, ...what);
  return await database.executeQuery(CompiledQuery.raw(what, [...(parameters ?? [])]));
}

const PROBE_MS = 2_000;
const CHECKPOINT = CompiledQuery.raw('pragma wal_checkpoint(truncate)');
/** Writes a page and changes nothing. */
const PROBE = CompiledQuery.raw('pragma user_version = 0');

/** Whether the disk takes what is written. While it does not, it is asked now and then, since perhaps nobody else writes. */
class Disk {
  problem: string | null = null;
  readonly #probe: () => Promise<unknown>;
  readonly #tell: (problem: string | null) => void;
  #timer: NodeJS.Timeout | undefined;
  #isClosed = false;

  constructor(probe: () => Promise<unknown>, tell: (problem: string | null) => void) {
    this.#probe = probe;
    this.#tell = tell;
  }

  took(): void {
    if (this.problem === null) return;
    this.problem = null;
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  refused(error: unknown): void {
    if (!(error instanceof ServiceError) || error.code !== 'unavailable') return;
    this.problem = error.message;
    if (this.#isClosed) return;
    this.#timer ??= setTimeout(async () => {
      this.#timer = undefined;
      try {
        await this.#probe();
        this.took();
        if (!this.#isClosed) this.#tell(this.problem);
      } catch (again) {
        this.refused(again);
      }
    }, PROBE_MS).unref();
  }

  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#timer);
  }
}

/** Answers all writes of one turn with one message. */
class Answers {
  readonly #port: MessagePort;
  readonly #disk: Disk;
  readonly #paths: readonly string[];
  #opened: readonly (string | null)[] = [];
  #lost: string | null = null;
  #outcomes: SentOutcome[] = [];

  constructor(port: MessagePort, disk: Disk, paths: readonly string[]) {
    this.#port = port;
    this.#disk = disk;
    this.#paths = paths;
  }

  /** The files are there. */
  begin(): void {
    this.#opened = this.#paths.map(fileAt);
  }

  add(outcome: SentOutcome, writes: DurableWrites): void {
    this.#outcomes.push(outcome);
    if (this.#outcomes.length === 1) setImmediate(() => this.flush(writes));
  }

  flush(writes: DurableWrites): void {
    if (this.#outcomes.length === 0) return;
    const lost = this.#whatIsLost();
    const outcomes = lost === null ? this.#outcomes : this.#outcomes.map(([id]) => failed(id, lost));
    const message: FromThread = { outcomes, problem: lost ?? writes.problem() ?? this.#disk.problem };
    this.#outcomes = [];
    this.#port.postMessage(message);
  }

  /** Called between each turn's writes and their answers: a write into a file that nobody can open again is lost. */
  #whatIsLost(): string | null {
    for (const [index, path] of this.#paths.entries()) {
      if (this.#lost === null && fileAt(path) !== this.#opened[index]) this.#lost = lostSentence(path);
    }
    return this.#lost;
  }
}

function failed(id: number, problem: string): SentOutcome {
  return [id, null, sendError(internal(problem))];
}
