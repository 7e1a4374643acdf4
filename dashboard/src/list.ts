import { useEffect, useRef, useState } from 'preact/hooks';
import { ApiError, messageOf, tenant } from './api.ts';
import { type LiveEvent, onEvents, untilSilent } from './live.ts';

/** Source of a list. */
export interface ListSource<T> {
  /** Reads the whole list in batches. */
  readonly all: (signal: AbortSignal) => AsyncIterable<readonly T[]>;
  /** Reads a single item. */
  readonly one: (id: string, signal: AbortSignal) => Promise<T>;
  readonly idOf: (item: T) => string;
  /** Returns the id of the item that an event changes, or undefined. */
  readonly about: (event: LiveEvent) => string | undefined;
}

const SOON_MS = 300;
/** Above this number of changed items, the whole list is read again. */
const MAX_ONES = 30;

/** Reads a list once, then reads the items that events change. New items are placed first. */
export function useList<T>(source: ListSource<T>): {
  readonly value: readonly T[] | undefined;
  readonly error: string;
} {
  const [state, setState] = useState<{ readonly of: string; readonly value?: readonly T[]; readonly error: string }>();
  const latest = useRef(source);
  latest.current = source;
  const of = tenant.value;
  useEffect(() => {
    const controller = new AbortController();
    const { signal } = controller;
    const changed = new Set<string>();
    let items = new Map<string, T>();
    let needsAll = true;
    let isReading = false;
    let timer: ReturnType<typeof setTimeout> | undefined;

    const readAll = async (ends: AbortSignal) => {
      const { all, idOf } = latest.current;
      const found = new Map<string, T>();
      for await (const batch of all(ends)) for (const item of batch) found.set(idOf(item), item);
      items = found;
    };
    const readOnes = async (ids: readonly string[], ends: AbortSignal) => {
      const { one } = latest.current;
      const read = await Promise.all(ids.map(async id => [id, await orNone(one(id, ends))] as const));
      const added: [string, T][] = [];
      for (const [id, item] of read) {
        if (item === undefined) items.delete(id);
        else if (items.has(id)) items.set(id, item);
        else added.push([id, item]);
      }
      if (added.length > 0) items = new Map([...added.reverse(), ...items]);
    };
    const run = async () => {
      timer = undefined;
      isReading = true;
      const beganMs = performance.now();
      const ids = [...changed];
      const isWhole = needsAll || ids.length > MAX_ONES;
      changed.clear();
      needsAll = false;
      try {
        const ends = untilSilent(signal);
        await (isWhole ? readAll(ends) : readOnes(ids, ends));
        if (!signal.aborted) setState({ of, value: [...items.values()], error: '' });
      } catch (error) {
        needsAll = true;
        const value = [...items.values()];
        if (!signal.aborted) setState({ of, ...(value.length > 0 ? { value } : {}), error: messageOf(error) });
      }
      isReading = false;
      if (changed.size > 0) soon(Math.max(SOON_MS, (performance.now() - beganMs) * 3));
    };
    const soon = (delayMs: number) => {
      if (!isReading && !signal.aborted) timer ??= setTimeout(() => void run(), delayMs);
    };
    const end = onEvents(event => {
      const id = event === null ? '' : latest.current.about(event);
      if (id === undefined) return;
      if (event === null) needsAll = true;
      changed.add(id);
      soon(SOON_MS);
    });
    void run();
    return () => {
      controller.abort();
      clearTimeout(timer);
      end();
    };
  }, [of]);
  return state?.of === of ? { value: state.value, error: state.error } : { value: undefined, error: '' };
}

const PAGE = 1000;

/**
 * Reads all pages of a numbered list. An item that moves to the next page during the read appears once,
 * because items are kept by id.
 */
export async function allPages<T>(
  idOf: (item: T) => string,
  read: (pageIndex: number, pageSize: number) => Promise<readonly T[]>,
): Promise<readonly T[]> {
  const found = new Map<string, T>();
  for (let pageIndex = 1; ; pageIndex += 1) {
    const items = await read(pageIndex, PAGE);
    for (const item of items) found.set(idOf(item), item);
    if (items.length < PAGE) return [...found.values()];
  }
}

async function orNone<T>(read: Promise<T>): Promise<T | undefined> {
  try {
    return await read;
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return undefined;
    throw error;
  }
}

const texts = new WeakMap<object, string>();

/** Returns the text in which a search looks for an item. Cached for each item. */
export function searchText<T extends object>(item: T, textOf: (item: T) => string): string {
  let text = texts.get(item);
  if (text === undefined) {
    text = textOf(item).toLowerCase();
    texts.set(item, text);
  }
  return text;
}
