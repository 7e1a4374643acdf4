import { rowAt, type WaterfallRow, waterfallOf } from '../../explain/waterfall.ts';
import { inWords } from '../../explain/words.ts';
import type { Io } from '../shared/io.ts';
import { type Column, printTable } from '../shared/print.ts';
import type { Call } from './records.ts';

/** Columns of the bars. */
const WIDTH = 32;
const MS_DIGITS = 1;

/** Prints a call as a waterfall: its stages, and the spans of its code below `run`. */
export function printWaterfall(io: Io, call: Call): void {
  const rows = waterfallOf(call);
  const wholeMs = Math.max(...rows.map(({ startMs, durationMs }) => startMs + durationMs), 0.001);
  const hasText = rows.some(({ text }) => text !== '');
  const columns: Column<WaterfallRow>[] = [
    {
      title: 'PART',
      text: ({ name, depth }) => `${'  '.repeat(depth)}${name}`,
      isFlexible: true,
      gives: 'last',
      style: ({ isFailed }) => (isFailed ? 'red' : null),
    },
    { title: 'AT', text: ({ startMs }) => inWords(startMs) },
    { title: 'TIME', text: ({ durationMs }) => inWords(durationMs) },
    { title: 'WATERFALL', text: each => barOf(each, wholeMs) },
  ];
  if (hasText) columns.push({ title: 'ATTRIBUTES', text: ({ text }) => text, isFlexible: true, gives: 'first' });
  io.out.write('\n');
  printTable(io, columns, rows);
  const { dropped_spans: dropped = 0 } = call;
  if (dropped > 0) io.out.write(`(${dropped} spans and attributes above the limits are missing)\n`);
}

/** Returns the time of a log line and the part in which it was written: `+3.1ms fetch`; `''`: unknown. */
export function placeOf(offsetMs: number | null, call: Call): string {
  if (offsetMs === null) return '';
  const part = rowAt(waterfallOf(call), offsetMs)?.name ?? '';
  return `+${Math.max(0, offsetMs).toFixed(MS_DIGITS)}ms ${part}`.trim();
}

function barOf({ startMs, durationMs }: WaterfallRow, wholeMs: number): string {
  const from = Math.min(WIDTH - 1, Math.floor((startMs / wholeMs) * WIDTH));
  const length = Math.max(1, Math.min(WIDTH - from, Math.round((durationMs / wholeMs) * WIDTH)));
  return `${'.'.repeat(from)}${'#'.repeat(length)}${'.'.repeat(WIDTH - from - length)}`;
}
