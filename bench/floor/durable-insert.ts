/**
 * Floor of a durable register: the least cost when the registry is a SQLite database.
 * A bare `node:http` server parses the body and passes it to a thread. The thread inserts a row of that name
 * and flushes the log. Then the server answers fixed bytes.
 * The server has no rules, tenants or metrics. Requests that wait at the same moment share a transaction and
 * a flush.
 * Arguments: a directory for the database, and a file with the answer.
 */
import { fdatasyncSync, openSync, readFileSync } from 'node:fs';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { isMainThread, parentPort, receiveMessageOnPort, Worker, workerData } from 'node:worker_threads';
import { openDatabase } from '../../src/storage/database.ts';
import { openSqlite } from '../../src/storage/sqlite.ts';

const INSERT =
  "insert into functions values ('default', ?, '$latest', '20260101000000000', ?, 0, '/usr', '', ?) on conflict do nothing";
const COUNT =
  "insert into function_totals values ('default', '$latest', ?, ?) on conflict do update set total = total + excluded.total, last_change = last_change + excluded.last_change";

interface InsertOrder {
  readonly id: number;
  readonly name: string;
}

if (isMainThread) await serve(process.argv[2] ?? '', readFileSync(process.argv[3] ?? ''));
else write(workerData as { file: string; record: string });

async function serve(dir: string, answer: Buffer): Promise<void> {
  const file = join(dir, 'floor.db');
  await (await openDatabase(file)).destroy();
  const { function: record } = JSON.parse(answer.toString()) as { function: object };
  // Node.js has no flag that lets a thread load TypeScript.
  const program = `import('tsx/esm/api').then(({ register }) => { register(); return import('${import.meta.url}'); })`;
  const thread = new Worker(program, { eval: true, workerData: { file, record: JSON.stringify(record) } });
  const waiting = new Map<number, ServerResponse>();
  let orders: InsertOrder[] = [];
  let lastId = 0;
  const send = () => {
    thread.postMessage(orders);
    orders = [];
  };
  thread.on('message', (ids: readonly number[]) => {
    for (const id of ids) {
      const response = waiting.get(id);
      waiting.delete(id);
      response?.writeHead(200, { 'content-type': 'application/json', 'content-length': answer.length }).end(answer);
    }
  });
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', chunk => chunks.push(chunk));
    request.once('end', () => {
      const { name } = JSON.parse(Buffer.concat(chunks).toString()) as { name: string };
      lastId += 1;
      waiting.set(lastId, response);
      if (orders.push({ id: lastId, name }) === 1) setImmediate(send);
    });
  });
  server.listen(0, '127.0.0.1', () => {
    console.log(`ready http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  });
}

function write({ file, record }: { file: string; record: string }): void {
  const database = openSqlite(file);
  const [begin, commit] = [database.prepare('begin'), database.prepare('commit')];
  const [insert, count] = [database.prepare(INSERT), database.prepare(COUNT)];
  count.run(0, 0);
  const log = openSync(`${file}-wal`, 'r+');
  parentPort?.once('close', () => database.close());
  let change = 0;
  parentPort?.on('message', (first: readonly InsertOrder[]) => {
    const group = [...first];
    for (;;) {
      const more = parentPort === null ? undefined : receiveMessageOnPort(parentPort);
      if (more === undefined) break;
      group.push(...(more.message as readonly InsertOrder[]));
    }
    begin.run();
    for (const { name } of group) {
      change += 1;
      insert.run(name, change, record);
    }
    count.run(group.length, group.length);
    commit.run();
    fdatasyncSync(log);
    parentPort?.postMessage(group.map(({ id }) => id));
  });
}
