import { PassThrough } from 'node:stream';
import { afterEach, expect, test, vi } from 'vitest';
import { EventLog } from './event-log.ts';
import { EventReader } from './event-reader.ts';
import { type Others, PeerEvents, streamEvents } from './peer-events.ts';

/** Replicas in one process, whose events pass through streams that a test can cut. */
class World {
  readonly logs = new Map<string, EventLog>();
  readonly warnings: string[] = [];
  readonly #streams = new Map<string, Set<PassThrough>>();
  readonly #followers: PeerEvents[] = [];

  add(id: string, size = 100): EventLog {
    const log = new EventLog({ node: id, size });
    this.logs.set(id, log);
    return log;
  }

  /** Makes the replica `id` follow all other replicas. */
  async follow(id: string, silenceMs?: number): Promise<void> {
    const others: Others = {
      living: () => [...this.logs.keys()].filter(each => each !== id).map(each => ({ id: each, address: each })),
      open: async (address, path) => {
        const log = this.logs.get(address);
        if (log === undefined) throw new Error('nobody is there');
        const stream = new PassThrough();
        this.#streams.set(address, (this.#streams.get(address) ?? new Set()).add(stream));
        streamEvents(log, new URLSearchParams(path.split('?')[1]).get('after'), stream);
        return stream;
      },
    };
    const log = this.logs.get(id) as EventLog;
    const follower = new PeerEvents(log, others, text => this.warnings.push(text), silenceMs);
    this.#followers.push(follower);
    await follower.start();
  }

  /** Breaks all connections to a replica. */
  cut(id: string): void {
    for (const stream of this.#streams.get(id) ?? []) stream.destroy();
    this.#streams.delete(id);
  }

  say(id: string, text: string): void {
    for (const stream of this.#streams.get(id) ?? []) stream.write(text);
  }

  close(): void {
    for (const follower of this.#followers) follower.close();
    for (const id of [...this.#streams.keys()]) this.cut(id);
  }
}

let world = new World();
afterEach(() => {
  world.close();
  world = new World();
});

/** Starts a reader, and returns the received events with their ids. */
function read(log: EventLog, from: number | string): { readonly heard: string[]; readonly ids: string[]; end(): void } {
  const heard: string[] = [];
  const ids: string[] = [];
  const to = new PassThrough().resume();
  const note = (what: string, id: string) => {
    heard.push(what);
    ids.push(id);
    return 'x';
  };
  const reader = new EventReader({
    log,
    to,
    isWanted: () => true,
    format: {
      event: ({ type, data }, id) => note((JSON.parse(data) as { job?: string }).job ?? type, id),
      marker: (type, id) => note(type, id),
      heartbeat: '',
    },
  });
  if (typeof from === 'number') reader.startWithRecent(from);
  else {
    const seen = log.seenBy(from);
    if (seen === null) reader.startAtEnd();
    else reader.resume(seen);
  }
  return { heard, ids, end: () => reader.end() };
}

const job = (log: EventLog, name: string) => log.add('a', 'job', { job: name });

test('readers of every replica receive each event of all replicas once, in the order of each replica', async () => {
  const [one, two, three] = ['1', '2', '3'].map(id => world.add(id)) as [EventLog, EventLog, EventLog];
  job(one, 'early');
  for (const id of ['1', '2', '3']) await world.follow(id);
  const readers = [one, two, three].map(log => read(log, 100));
  for (let at = 0; at < 20; at++)
    for (const [name, log] of Object.entries({ one, two, three })) job(log, `${name}-${at}`);
  await vi.waitFor(() => {
    for (const { heard } of readers) {
      expect(heard).toHaveLength(62);
      expect(new Set(heard).size).toBe(62);
      expect(heard.filter(each => each.startsWith('two'))).toEqual(Array.from({ length: 20 }, (_, at) => `two-${at}`));
    }
  });
  for (const { end } of readers) end();
});

test('a reader that resumes on another replica, from any id, receives the rest exactly once', async () => {
  const [one, two] = ['1', '2'].map(id => world.add(id)) as [EventLog, EventLog];
  await world.follow('1');
  await world.follow('2');
  const first = read(one, 0);
  for (let at = 0; at < 10; at++) {
    job(one, `one-${at}`);
    job(two, `two-${at}`);
    await new Promise(setImmediate);
  }
  await vi.waitFor(() => expect(first.heard).toHaveLength(21));
  for (const [at, id] of first.ids.entries()) {
    const again = read(two, id);
    await vi.waitFor(() => expect(again.heard).toHaveLength(21 - at));
    expect(again.heard[0]).toBe('hello');
    expect([...again.heard.slice(1), ...first.heard.slice(1, at + 1)].sort()).toEqual(first.heard.slice(1).sort());
    // Resumes once more, from the middle of the events of the second reader.
    const middle = Math.floor(again.ids.length / 2);
    const third = read(one, again.ids[middle] as string);
    expect([...third.heard.slice(1), ...again.heard.slice(1, middle + 1)].sort()).toEqual(again.heard.slice(1).sort());
    again.end();
    third.end();
  }
  first.end();
});

test('a reader whose id is ahead of the replica does not receive those events again', async () => {
  const [one, two] = ['1', '2'].map(id => world.add(id)) as [EventLog, EventLog];
  job(one, 'first');
  await world.follow('2');
  const again = read(two, `${two.run}-0.${one.run}-2`);
  job(two, 'own');
  await vi.waitFor(() => expect(again.heard).toEqual(['hello', 'own']));
  expect(two.seenBy(again.ids[1] as string)?.get(one.run)).toBe(2);
  job(one, 'seen');
  job(one, 'new');
  await vi.waitFor(() => expect(again.heard).toEqual(['hello', 'own', 'new']));
  again.end();
});

test('a broken connection between replicas loses no event', async () => {
  const [one, two] = ['1', '2'].map(id => world.add(id)) as [EventLog, EventLog];
  await world.follow('2');
  const reader = read(two, 0);
  job(one, 'a');
  await vi.waitFor(() => expect(reader.heard).toEqual(['hello', 'a']));
  world.cut('1');
  job(one, 'b');
  await vi.waitFor(() => expect(reader.heard).toEqual(['hello', 'a', 'b']));
  reader.end();
});

test('readers receive a reset when a replica is lost, restarts or no longer keeps their next events', async () => {
  world.add('1', 4);
  const two = world.add('2');
  await world.follow('2');
  const reader = read(two, 0);
  world.cut('1');
  for (let at = 0; at < 9; at++) job(world.logs.get('1') as EventLog, `${at}`);
  await vi.waitFor(() => expect(reader.heard).toEqual(['hello', 'reset', '5', '6', '7', '8']));
  job(world.add('1'), 'of the next');
  world.cut('1');
  await vi.waitFor(() => expect(reader.heard.slice(6)).toEqual(['reset', 'of the next']));
  world.logs.delete('1');
  world.cut('1');
  await vi.waitFor(() => expect(reader.heard.slice(8)).toEqual(['reset']));
  reader.end();
});

test('a lost replica causes a reset after its silence time although its connection stays open', async () => {
  const [one, two] = ['1', '2'].map(id => world.add(id)) as [EventLog, EventLog];
  await world.follow('1', 50);
  const reader = read(one, 0);
  job(two, 'before');
  await vi.waitFor(() => expect(reader.heard).toContain('before'));
  expect(reader.heard).not.toContain('reset');
  world.logs.delete('2');
  await vi.waitFor(() => expect(reader.heard.at(-1)).toBe('reset'));
  reader.end();
});

test.each([
  'nonsense',
  '["1","a","job","{}"]',
  '[1,"a","odd","{}"]',
  '[1,"a","job","{}\\n"]',
  '{"run":"x","from":0}',
  'too long',
])('a replica that sends %s causes a warning, and its events are read again', async text => {
  const [one, two] = ['1', '2'].map(id => world.add(id)) as [EventLog, EventLog];
  await world.follow('2');
  world.say('1', text === 'too long' ? 'x'.repeat(300_000) : `${text}\n`);
  await vi.waitFor(() => expect(world.warnings).toHaveLength(1));
  job(one, 'after');
  await vi.waitFor(() => expect(two.end).toBe(2));
});
