import type { MessagePort } from 'node:worker_threads';
import { CompiledQuery } from 'kysely';
import { connect, type Database } from './database.ts';
import { type DurableWrites, openDurableWrites, type Work } from './durable.ts';
import { type FromThread, type Order, type SentOutcome, sendError, type ToThread } from './write-messages.ts';

/** The works that may be ordered, by their names. */
export type Works = Readonly<Record<string, Work<never, unknown>>>;

interface Opened {
  readonly database: Database;
  readonly writes: DurableWrites;
  readonly works: Works;
}

/**
 * The inside of the thread that writes: does what comes through `port` to the database at `file`, until it is told to end. With the
 * first message the database has to be there, up to date.
 */
export function serveWrites(port: MessagePort, file: string, works: Works): void {
  const answers = new Answers(port);
  const open = new Set<Promise<void>>();
  let opening: Promise<Opened> | undefined;
  port.on('message', async ({ orders, isLast }: ToThread) => {
    opening ??= openFor(file, works);
    const opened = await opening;
    for (const order of orders) {
      const done = run(order, opened)
        .then(
          result => answers.add([order[0], result], opened.writes),
          (error: unknown) => answers.add([order[0], null, sendError(error)], opened.writes),
        )
        .then(() => void open.delete(done));
      open.add(done);
    }
    if (!isLast) return;
    await Promise.all(open);
    await opened.writes.close();
    await opened.database.destroy();
    answers.flush(opened.writes);
    port.close();
  });
}

async function openFor(file: string, works: Works): Promise<Opened> {
  const database = connect(file);
  return { database, writes: await openDurableWrites(database, file), works };
}

async function run([, work, what, parameters]: Order, { database, writes, works }: Opened): Promise<unknown> {
  if (work !== null) return await writes.write(works[work] as Work<readonly unknown[], unknown>, ...what);
  return await database.executeQuery(CompiledQuery.raw(what, [...(parameters ?? [])]));
}

/** What was done in one turn is answered with one message. */
class Answers {
  readonly #port: MessagePort;
  #outcomes: SentOutcome[] = [];

  constructor(port: MessagePort) {
    this.#port = port;
  }

  add(outcome: SentOutcome, writes: DurableWrites): void {
    this.#outcomes.push(outcome);
    if (this.#outcomes.length === 1) setImmediate(() => this.flush(writes));
  }

  flush(writes: DurableWrites): void {
    if (this.#outcomes.length === 0) return;
    const message: FromThread = { outcomes: this.#outcomes, problem: writes.problem() };
    this.#outcomes = [];
    this.#port.postMessage(message);
  }
}
