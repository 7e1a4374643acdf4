import { expect, test } from 'vitest';
import { gate } from '../../test/agents/harness.ts';
import { storedInstance } from '../../test/parts/stored-instance.ts';
import type { InstanceChange } from './changes.ts';
import { RecordWriter } from './record-writer.ts';
import type { InstanceRows } from './rows.ts';

const ROW = storedInstance({ owner: { kind: 'agent', key: 'a' } });

/** Makes a writer over records whose writes wait for `answers` and append their names to `written`. */
function writerOf(answers: Promise<boolean>) {
  const written: string[] = [];
  const write = (name: string) => async () => {
    written.push(`${name} begins`);
    const answer = await answers.finally(() => written.push(`${name} ends`));
    return answer;
  };
  const rows = { insert: write('insert'), move: write('move'), end: write('end') } as unknown as InstanceRows;
  const changes: Pick<InstanceChange, 'kind' | 'reason'>[] = [];
  const idle: boolean[] = [];
  const writer: RecordWriter = new RecordWriter({
    rows,
    notify: ({ kind, reason }) => void changes.push({ kind, reason }),
    idle: () => void idle.push(writer.isPublished),
  });
  return { writer, written, changes, idle };
}

test('writes of a record run one after another, and flushed waits for all of them', async () => {
  const { opened, open } = gate();
  const { writer, written, changes, idle } = writerOf(opened.then(() => true));
  const writes = [writer.insert(ROW), writer.move(ROW, 'started'), writer.end(ROW, 'discarded', 'stopped')];
  expect([written, writer.isPending]).toEqual([['insert begins'], true]);
  open();
  await writer.flushed();
  expect(written).toEqual(['insert begins', 'insert ends', 'move begins', 'move ends', 'end begins', 'end ends']);
  expect(await Promise.all(writes)).toEqual([true, true, true]);
  expect(changes.map(({ kind }) => kind)).toEqual(['created', 'ready', 'ended']);
  expect([writer.isPending, idle.at(-1)]).toEqual([false, false]);
});

test('a write runs after a failed one, and neither a failed nor a refused write is published', async () => {
  const failing = writerOf(Promise.reject(new Error('the disk is full')));
  const inserted = expect(failing.writer.insert(ROW)).rejects.toThrow('the disk is full');
  const moved = expect(failing.writer.move(ROW, 'started')).rejects.toThrow('the disk is full');
  await failing.writer.flushed();
  await Promise.all([inserted, moved]);
  expect(failing.changes).toEqual([]);
  const refused = writerOf(Promise.resolve(false));
  expect(await refused.writer.insert(ROW)).toBe(false);
  expect([refused.changes, refused.writer.isPublished]).toEqual([[], false]);
});

test('a start that leaves no instance is published as failed, with its reason, and as ended', async () => {
  const { writer, changes } = writerOf(Promise.resolve(true));
  await writer.insert(ROW);
  await writer.end(ROW, 'forgotten', 'no capacity');
  expect(changes).toEqual([
    { kind: 'created', reason: '' },
    { kind: 'failed', reason: 'no capacity' },
    { kind: 'ended', reason: '' },
  ]);
});
