import { signal } from '@preact/signals';
import { useEffect, useRef, useState } from 'preact/hooks';
import { ApiError, messageOf, raw, session, tenant } from './api.ts';
import { SilenceWatch } from './silence.ts';

/** Events and metrics of the service: a single stream for the whole page. */

export interface LiveEvent {
  readonly id: string;
  /** Text of the event, which is the same in every answer of every replica. */
  readonly key: string;
  /** Replica that reported the event. */
  readonly node?: string;
  readonly type: string;
  readonly at: string;
  readonly owner?: 'agent' | 'function';
  readonly instance_id?: string;
  readonly namespace?: string;
  readonly name?: string;
  readonly function?: string;
  readonly instances?: number;
  readonly ready?: number;
  readonly job?: string;
  readonly status?: string;
  readonly message?: string;
  readonly attempt?: number;
  readonly reason?: string;
  /** Name of the alarm that failed. */
  readonly alarm?: string;
}

export type Sample = Readonly<Record<string, number | null>>;

const KEPT = 200;
/** Time without a message after which the connection counts as lost. The service sends one every 15 s. */
const SILENT_MS = 40_000;
const RETRY_MS = 2000;
const MAX_RETRY_MS = 15_000;

export const isLive = signal(false);
/** Unix time at which the connection was lost. Null while it stands, and before the first one. */
export const lostAtMs = signal<number | null>(null);
export const recent = signal<readonly LiveEvent[]>([]);
/** The newest point of the service's metrics. Null before the first, or if the caller may not see them. */
export const sample = signal<Sample | null>(null);
const listeners = new Set<(event: LiveEvent | null) => void>();

/**
 * Calls `listener` with each event, or with null if earlier events may be missing. Returns a function that
 * unsubscribes.
 */
export function onEvents(listener: (event: LiveEvent | null) => void): () => void {
  listeners.add(listener);
  return () => void listeners.delete(listener);
}

let network = new AbortController();

/** Returns a signal that aborts with `ends`, or when the service becomes silent. */
export function untilSilent(ends: AbortSignal): AbortSignal {
  return AbortSignal.any([ends, network.signal]);
}

function abortOpenReads(): void {
  const before = network;
  network = new AbortController();
  before.abort(new ApiError(0, 'the service does not answer'));
}

/**
 * Reads events until `ends` aborts. Reconnects after the last event when the connection breaks or becomes
 * silent.
 */
export async function follow(ends: AbortSignal): Promise<void> {
  let last = '';
  let retryMs = RETRY_MS;
  let wasSilent = false;
  // Drops events of the previous tenant or user.
  recent.value = [];
  sample.value = null;
  while (!ends.aborted) {
    const cut = new AbortController();
    const watch = new SilenceWatch(SILENT_MS, () => {
      wasSilent = true;
      abortOpenReads();
      cut.abort();
    });
    try {
      const headers = { accept: 'text/event-stream', ...(last === '' ? {} : { 'last-event-id': last }) };
      const signal = AbortSignal.any([ends, cut.signal]);
      const response = await raw('/api/events?metrics=true&recent=100', { headers, signal });
      if (response.status === 401) {
        session.value = null;
        return;
      }
      if (!response.ok || response.body === null) throw new Error(`the events answered ${response.status}`);
      isLive.value = true;
      lostAtMs.value = null;
      retryMs = RETRY_MS;
      // Requests sent during the silence may wait on a dead connection.
      if (wasSilent) abortOpenReads();
      wasSilent = false;
      let rest = '';
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let chunk = await reader.read(); !chunk.done && !ends.aborted; chunk = await reader.read()) {
        watch.heard();
        const blocks = (rest + chunk.value).split('\n\n');
        rest = blocks.pop() ?? '';
        last = publish(blocks) ?? last;
      }
    } catch {
      // The loop reconnects.
    } finally {
      watch.end();
    }
    // The next call of `follow` may have started.
    if (ends.aborted) return;
    if (isLive.value) lostAtMs.value = Date.now();
    isLive.value = false;
    // A random part spreads the reconnects of many pages.
    await pause(retryMs * (0.5 + Math.random() / 2));
    retryMs = Math.min(MAX_RETRY_MS, retryMs * 2);
  }
}

/** Waits for `ms`, or until the browser reports a network again. */
function pause(ms: number): Promise<void> {
  return new Promise(resolve => {
    const over = new AbortController();
    const end = () => {
      clearTimeout(timer);
      over.abort();
      resolve();
    };
    const timer = setTimeout(end, ms);
    addEventListener('online', end, { signal: over.signal });
  });
}

/** Publishes the events of the blocks. Returns the id of the last event. */
function publish(blocks: readonly string[]): string | undefined {
  let last: string | undefined;
  const added: LiveEvent[] = [];
  for (const { id, type, data } of messagesIn(blocks)) {
    if (id !== undefined) last = id;
    if (type === 'metrics') sample.value = JSON.parse(data) as Sample;
    else if (isMarker(type)) for (const listener of listeners) listener(null);
    else added.push(toEvent({ id, data }));
  }
  if (added.length > 0) {
    recent.value = [...added.toReversed(), ...recent.value].slice(0, KEPT);
    for (const event of added) for (const listener of [...listeners]) listener(event);
  }
  return last;
}

/** Returns the events of the blocks of a stream without metrics. */
export function eventsIn(blocks: readonly string[]): readonly LiveEvent[] {
  return messagesIn(blocks)
    .filter(({ type }) => !isMarker(type))
    .map(toEvent);
}

interface Message {
  readonly id: string | undefined;
  readonly type: string | undefined;
  readonly data: string;
}

function messagesIn(blocks: readonly string[]): readonly Message[] {
  return blocks.flatMap(block => {
    const fields = new Map(block.split('\n').map(line => [line.split(':', 1)[0], line.slice(line.indexOf(':') + 2)]));
    const data = fields.get('data');
    return data === undefined ? [] : [{ id: fields.get('id'), type: fields.get('event'), data }];
  });
}

function isMarker(type: string | undefined): boolean {
  return type === 'hello' || type === 'reset';
}

function toEvent({ id, data }: Pick<Message, 'id' | 'data'>): LiveEvent {
  return { id: id ?? '', key: data, ...JSON.parse(data) } as LiveEvent;
}

export interface Loaded<T> {
  readonly value: T | undefined;
  /** Error of the last read, or `''`. */
  readonly error: string;
  readonly reload: () => void;
}

const SOON_MS = 300;

/**
 * Reads a value, and reads it again after an event that may change it: a few times a second at most, less
 * often if a read takes long. `key` identifies the value.
 */
export function useLoaded<T>(
  key: string,
  read: (signal: AbortSignal) => Promise<T>,
  isAbout: (event: LiveEvent) => boolean = () => false,
): Loaded<T> {
  const [state, setState] = useState<{ readonly key: string; readonly value?: T; readonly error: string }>({
    key,
    error: '',
  });
  const latest = useRef({ read, isAbout });
  latest.current = { read, isAbout };
  const again = useRef<() => void>(() => undefined);
  const asked = `${key}|${tenant.value}`;
  useEffect(() => {
    const controller = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    let isReading = false;
    let isAsked = false;
    const run = async () => {
      timer = undefined;
      isReading = true;
      const beganMs = performance.now();
      try {
        const value = await latest.current.read(untilSilent(controller.signal));
        if (!controller.signal.aborted) setState({ key: asked, value, error: '' });
      } catch (error) {
        if (!controller.signal.aborted) {
          setState(before => ({
            ...(before.key === asked && before.value !== undefined ? { value: before.value } : {}),
            key: asked,
            error: messageOf(error),
          }));
        }
      }
      isReading = false;
      if (isAsked) soon(Math.max(SOON_MS, (performance.now() - beganMs) * 3));
      isAsked = false;
    };
    const soon = (delayMs: number) => {
      if (controller.signal.aborted) return;
      if (isReading) isAsked = true;
      else timer ??= setTimeout(() => void run(), delayMs);
    };
    const listener = (event: LiveEvent | null) => {
      if (event === null || latest.current.isAbout(event)) soon(SOON_MS);
    };
    again.current = () => soon(0);
    const end = onEvents(listener);
    void run();
    return () => {
      controller.abort();
      clearTimeout(timer);
      end();
    };
  }, [asked]);
  const isCurrent = state.key === asked;
  return {
    value: isCurrent ? state.value : undefined,
    error: isCurrent ? state.error : '',
    reload: () => again.current(),
  };
}
