import { signal } from '@preact/signals';
import { useEffect, useRef, useState } from 'preact/hooks';
import { ApiError, messageOf, raw, session, tenant } from './api.ts';
import { SilenceWatch } from './silence.ts';

/** What happens in the service: one stream for the whole page. */

export interface LiveEvent {
  readonly id: string;
  /** The replica that it happened on. */
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
  readonly reason?: string;
}

export type Sample = Readonly<Record<string, number | null>>;

const KEPT = 200;
/** The service says something every 15 seconds, if only that it is there. */
const SILENT_MS = 40_000;
const RETRY_MS = 2000;
const MAX_RETRY_MS = 15_000;

export const isLive = signal(false);
export const recent = signal<readonly LiveEvent[]>([]);
/** The newest point of the service's metrics; null: none came yet, or they are not shown to this caller. */
export const sample = signal<Sample | null>(null);
const listeners = new Set<(event: LiveEvent | null) => void>();

/** Calls `listener` with each event; null: events before may be missing. The returned function ends it. */
export function onEvents(listener: (event: LiveEvent | null) => void): () => void {
  listeners.add(listener);
  return () => void listeners.delete(listener);
}

let network = new AbortController();

/** `ends`, or the moment when the service has fallen silent: what was asked before is answered no more. */
export function untilSilent(ends: AbortSignal): AbortSignal {
  return AbortSignal.any([ends, network.signal]);
}

function giveUpOpenReads(): void {
  const before = network;
  network = new AbortController();
  before.abort(new ApiError(0, 'the service does not answer'));
}

/** Follows until `ends` aborts; comes back behind the last event when the connection breaks, or nothing comes over it any more. */
export async function follow(ends: AbortSignal): Promise<void> {
  let last = '';
  let retryMs = RETRY_MS;
  let wasSilent = false;
  // Those of another tenant, or of somebody who was logged in before, are not for this one.
  recent.value = [];
  sample.value = null;
  while (!ends.aborted) {
    const cut = new AbortController();
    const watch = new SilenceWatch(SILENT_MS, () => {
      wasSilent = true;
      giveUpOpenReads();
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
      retryMs = RETRY_MS;
      // What was asked meanwhile may wait on a connection that leads nowhere.
      if (wasSilent) giveUpOpenReads();
      wasSilent = false;
      let rest = '';
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let chunk = await reader.read(); !chunk.done && !ends.aborted; chunk = await reader.read()) {
        watch.heard();
        const blocks = (rest + chunk.value).split('\n\n');
        rest = blocks.pop() ?? '';
        last = take(blocks) ?? last;
      }
    } catch {
      // It is tried again.
    } finally {
      watch.end();
    }
    // Another one follows by now.
    if (ends.aborted) return;
    isLive.value = false;
    // Pages that lost the service in one moment do not come back in one.
    await pause(retryMs * (0.5 + Math.random() / 2));
    retryMs = Math.min(MAX_RETRY_MS, retryMs * 2);
  }
}

/** Shorter when the browser says that there is a network again. */
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

/** Takes events in; answers the id of the last one. */
function take(blocks: readonly string[]): string | undefined {
  let last: string | undefined;
  const added: LiveEvent[] = [];
  for (const block of blocks) {
    const fields = new Map(block.split('\n').map(line => [line.split(':', 1)[0], line.slice(line.indexOf(':') + 2)]));
    const data = fields.get('data');
    if (data === undefined) continue;
    const type = fields.get('event');
    const id = fields.get('id');
    if (id !== undefined) last = id;
    if (type === 'metrics') sample.value = JSON.parse(data) as Sample;
    else if (type === 'hello' || type === 'reset') for (const listener of listeners) listener(null);
    else added.push({ id: id ?? '', ...JSON.parse(data) } as LiveEvent);
  }
  if (added.length > 0) {
    recent.value = [...added.toReversed(), ...recent.value].slice(0, KEPT);
    for (const event of added) for (const listener of [...listeners]) listener(event);
  }
  return last;
}

export interface Loaded<T> {
  readonly value: T | undefined;
  /** Why it could not be read; `''`: it could. */
  readonly error: string;
  readonly reload: () => void;
}

const SOON_MS = 300;

/**
 * Reads something, and reads it again when an event says that it may have changed: at most a few times a second, less often when reading it
 * takes long. `key` names what is read.
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
