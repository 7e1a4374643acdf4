import { expect, test } from 'vitest';
import { resourceExhausted, unavailable } from '../../core/error.ts';
import type { DirectoryWatch, WatchEvent } from '../../sandbox/files.ts';
import { PolledWatchers } from './polled-watchers.ts';

/** A watch that a test ends. */
class TestWatch implements DirectoryWatch {
  readonly events: WatchEvent[] = [];
  readonly ended: Promise<Error | null>;
  isOpen = true;
  #reason: Error | null = null;
  #end!: (reason: Error | null) => void;

  constructor() {
    this.ended = new Promise(resolve => {
      this.#end = resolve;
    });
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<WatchEvent> {}

  drain(): WatchEvent[] {
    if (this.#reason !== null && this.events.length === 0) throw this.#reason;
    return this.events.splice(0);
  }

  async flush(): Promise<void> {
    if (this.#reason !== null) throw this.#reason;
  }

  fail(reason: Error): void {
    this.#reason = reason;
    this.#end(reason);
  }

  close(): void {
    this.isOpen = false;
    this.#end(null);
  }
}

const MAX = 2;

/** Opens at most `MAX` watches at a time. */
function opener() {
  const watches: TestWatch[] = [];
  const open = async () => {
    if (watches.filter(({ isOpen }) => isOpen).length === MAX) throw resourceExhausted('too many');
    const watch = new TestWatch();
    watches.push(watch);
    return watch;
  };
  return { watches, open };
}

const { signal } = new AbortController();

test('a new watcher replaces the one that was polled the longest ago when all are idle', async () => {
  const watchers = new PolledWatchers(0);
  const { open } = opener();
  const first = await watchers.create('a', open, signal);
  const second = await watchers.create('a', open, signal);
  await watchers.drainEvents('a', first);
  const third = await watchers.create('a', open, signal);
  await expect(watchers.drainEvents('a', second)).rejects.toThrow('watcher not found');
  expect(await watchers.drainEvents('a', first)).toEqual([]);
  expect(await watchers.drainEvents('a', third)).toEqual([]);
  watchers.close();
});

test('a new watcher is refused when none is idle', async () => {
  const watchers = new PolledWatchers();
  const { open } = opener();
  await watchers.create('a', open, signal);
  await watchers.create('a', open, signal);
  await expect(watchers.create('a', open, signal)).rejects.toThrow('too many');
  watchers.close();
});

test('a failed watch reports its last events, then the reason once', async () => {
  const watchers = new PolledWatchers();
  const { watches, open } = opener();
  const id = await watchers.create('a', open, signal);
  watches[0]?.events.push({ type: 'create', name: 'x' });
  watches[0]?.fail(resourceExhausted('events were lost'));
  expect(await watchers.drainEvents('a', id)).toEqual([{ type: 'create', name: 'x' }]);
  await expect(watchers.drainEvents('a', id)).rejects.toThrow('events were lost');
  await expect(watchers.drainEvents('a', id)).rejects.toThrow('watcher not found');
});

test('watchers of an ended sandbox are forgotten', async () => {
  const watchers = new PolledWatchers();
  const { watches, open } = opener();
  const id = await watchers.create('a', open, signal);
  watches[0]?.fail(unavailable('the sandbox ended'));
  await watches[0]?.ended;
  await expect(watchers.drainEvents('a', id)).rejects.toThrow('watcher not found');
});
