/** The fields of a call of `GET /api/calls/{id}` that its waterfall uses. */
export interface WaterfallCall {
  readonly kind: 'agent' | 'function';
  readonly start_time: string;
  readonly outcome: 'ok' | 'error';
  readonly duration_ms: number;
  readonly queue_ms: number;
  readonly place_ms: number;
  readonly start_ms: number;
  readonly load_ms: number;
  readonly run_ms: number;
  /** Absent: the service is older. */
  readonly spans?: readonly WaterfallSpan[];
}

interface WaterfallSpan {
  readonly name: string;
  /** Position of the span that contains this one; null: none. */
  readonly parent: number | null;
  /** Since the handler started. */
  readonly start_ms: number;
  readonly duration_ms: number;
  readonly outcome: 'ok' | 'error';
  readonly attributes?: Readonly<Record<string, string | number | boolean>>;
  readonly error?: string;
}

/** A line of a waterfall. */
export interface WaterfallRow {
  readonly name: string;
  readonly kind: 'call' | 'stage' | 'span';
  /** Number of lines above that contain this one. */
  readonly depth: number;
  /** Since the start of the call. */
  readonly startMs: number;
  readonly durationMs: number;
  readonly isFailed: boolean;
  /** Attributes and the error of a span; `''`: none, or the reader is a viewer. */
  readonly text: string;
}

/** Shorter waits are no line of their own. */
const MIN_STAGE_MS = 0.01;

/**
 * Returns the lines of a call in the order of a tree: the call, its stages, and the spans of its code below
 * `run`. Time that no stage has measured is between the last stage and the end.
 */
export function waterfallOf(call: WaterfallCall): readonly WaterfallRow[] {
  const { duration_ms: durationMs, spans = [] } = call;
  const isFailed = call.outcome === 'error';
  const rows: WaterfallRow[] = [row('call', 'call', 0, 0, durationMs, { isFailed })];
  let atMs = 0;
  for (const name of ['queue', 'place', 'start', 'load'] as const) {
    const ms = call[`${name}_ms`];
    if (ms >= MIN_STAGE_MS) rows.push(row(name, 'stage', 1, atMs, ms));
    atMs += ms;
  }
  const runMs = call.run_ms;
  if (runMs > 0 || spans.length > 0) rows.push(row('run', 'stage', 1, atMs, runMs));
  rows.push(...rowsBelow(spans, null, atMs, 2));
  const restMs = durationMs - atMs - runMs;
  if (restMs >= MIN_STAGE_MS) rows.push(row('the rest', 'stage', 1, atMs + runMs, restMs));
  return rows;
}

/**
 * Returns the innermost span at a moment, else the line of `run`; null: the call did not run. Only the
 * handler writes lines of a log, so a moment before or after `run` counts as its start or end.
 */
export function rowAt(rows: readonly WaterfallRow[], ms: number): WaterfallRow | null {
  const run = rows.find(({ kind, name }) => kind === 'stage' && name === 'run');
  if (run === undefined) return null;
  const at = Math.min(Math.max(ms, run.startMs), run.startMs + run.durationMs);
  const around = rows.filter(
    ({ kind, startMs, durationMs }) => kind === 'span' && startMs <= at && at <= startMs + durationMs,
  );
  return around.reduce((one, other) => (other.depth > one.depth ? other : one), run);
}

/** Lines reach the log through a pipe, some of them after the answer of the call. */
const LATE_MS = 100;

/** Milliseconds of an agent's `queue_ms` that may be the transfer of its answer, after the run. */
const ANSWER_MS = 20;

/** Returns the times between which the handler of a call ran, as the queries of logs take them. */
export function logRangeOf(call: WaterfallCall): { readonly since: string; readonly until: string } {
  const { kind, start_time, queue_ms, place_ms, start_ms, load_ms, duration_ms } = call;
  const startMs = Date.parse(start_time);
  const waitMs = kind === 'agent' ? Math.max(0, queue_ms - ANSWER_MS) : queue_ms;
  return {
    since: new Date(Math.floor(startMs + waitMs + place_ms + start_ms + load_ms)).toISOString(),
    until: new Date(Math.ceil(startMs + duration_ms) + LATE_MS).toISOString(),
  };
}

/** Matches the time at the beginning of a line of a context's logger; that of Go is behind `time=`. */
const LOGGED = /^(?:time=)?(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d))/;

/** Returns the time of a line of the log since the start of a call, in milliseconds; null: it shows none. */
export function logOffsetMs(line: string, call: Pick<WaterfallCall, 'start_time'>): number | null {
  const [, time = ''] = LOGGED.exec(line) ?? [];
  const ms = Date.parse(time) - Date.parse(call.start_time);
  return Number.isNaN(ms) ? null : ms;
}

function rowsBelow(
  spans: readonly WaterfallSpan[],
  parent: number | null,
  runStartMs: number,
  depth: number,
): WaterfallRow[] {
  const children = [...spans.entries()].filter(([, span]) => span.parent === parent);
  return children.flatMap(([index, span]) => [
    row(span.name, 'span', depth, runStartMs + span.start_ms, span.duration_ms, {
      isFailed: span.outcome === 'error',
      text: textOf(span),
    }),
    // A parent is before its children, so no span is below itself.
    ...rowsBelow(spans, index, runStartMs, depth + 1),
  ]);
}

function row(
  name: string,
  kind: WaterfallRow['kind'],
  depth: number,
  startMs: number,
  durationMs: number,
  { isFailed = false, text = '' }: { readonly isFailed?: boolean; readonly text?: string } = {},
): WaterfallRow {
  return { name, kind, depth, startMs, durationMs, isFailed, text };
}

function textOf({ attributes = {}, error }: WaterfallSpan): string {
  const pairs = Object.entries(attributes).map(([name, value]) => `${name}=${value}`);
  return [...pairs, ...(error === undefined ? [] : [`error: ${error}`])].join(' ');
}
