import type { MessagePort } from 'node:worker_threads';
import { CompiledQuery } from 'kysely';
import { connect, type Database } from './database.ts';
import { type DurableWrites, openDurableWrites, type Work } from './durable.ts';
import { type FromThread, type Order, type SentOutcome, sendError, type ToThread } from './write-messages.ts';

/** The works that may be ordered, by their names. */
export type Works = Readonly<Record<string, Work<never, unknown>>>;

/**
 * The inside of the thread that writes: does what comes through `port` to the database at `file`, which exists and is up to date,
 * until it is told to end.
 */
export async function serveWrites(port: MessagePort, file: string, works: Works): Promise<void> {
  const database = connect(file);
  const writes = await openDurableWrites(database, file);
  const answers = new Answers(port, writes);
  const open = new Set<Promise<void>>();
  port.on('message', async ({ orders, isLast }: ToThread) => {
    for (const order of orders) {
      const done = run(order, { database, writes, works })
        .then(
          result => answers.add([order[0], result]),
          (error: unknown) => answers.add([order[0], null, sendError(error)]),
        )
        .then(() => void open.delete(done));
      open.add(done);
    }
    if (!isLast) return;
    await Promise.all(open);
    await writes.close();
    await database.destroy();
    answers.flush();
    port.close();
  });
}

async function run(
  [, work, what, parameters]: Order,
  { database, writes, works }: { database: Database; writes: DurableWrites; works: Works },
): Promise<unknown> {
  if (work !== null) return await writes.write(works[work] as Work<readonly unknown[], unknown>, ...what);
  return await database.executeQuery(CompiledQuery.raw(what, [...(parameters ?? [])]));
}

/** What was done in one turn is answered with one message. */
class Answers {
  readonly #port: MessagePort;
  readonly #writes: DurableWrites;
  #outcomes: SentOutcome[] = [];

  constructor(port: MessagePort, writes: DurableWrites) {
    this.#port = port;
    this.#writes = writes;
  }

  add(outcome: SentOutcome): void {
    this.#outcomes.push(outcome);
    if (this.#outcomes.length === 1) setImmediate(() => this.flush());
  }

  flush(): void {
    if (this.#outcomes.length === 0) return;
    const message: FromThread = { outcomes: this.#outcomes, problem: this.#writes.problem() };
    this.#outcomes = [];
    this.#port.postMessage(message);
  }
}
