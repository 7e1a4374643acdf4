import { isDeepStrictEqual } from 'node:util';
import { inWords } from '../../explain/words.ts';
import { CliError } from '../shared/exit.ts';
import type { Io } from '../shared/io.ts';
import { printTable } from '../shared/print.ts';
import { type Call, targetOf } from './records.ts';

/** An answer of a call, recorded or new. */
export interface Answer {
  /** Id in the history; `-` when the call has no record. */
  readonly id: string;
  readonly target: string;
  readonly outcome: 'ok' | 'error';
  readonly error_code: string | null;
  readonly error: string;
  readonly duration_ms: number;
  /** Null for a failure. */
  readonly output: string | null;
  readonly output_bytes: number;
  readonly is_output_cut: boolean;
  /** True if the history has replaced hidden values, as in every record. */
  readonly is_recorded: boolean;
}

const PARTS = ['outcome', 'error_code', 'error', 'output'] as const;
/** Lines of an output or error that the table shows. */
const MAX_LINES = 100;
/** Text that the history shows in place of a hidden value. */
export const HIDDEN = '[redacted]';

/** Returns the answer of a record. */
export function recordedAnswer(call: Call): Answer {
  const { id, outcome, error_code, error = '', duration_ms, output = null, output_bytes, is_output_cut = false } = call;
  const target = targetOf(call);
  return {
    id,
    target,
    outcome,
    error_code,
    error,
    duration_ms,
    output,
    output_bytes,
    is_output_cut,
    is_recorded: true,
  };
}

/**
 * Returns the parts in which two answers differ. Durations do not count. Fails if the recorded output is cut
 * or has hidden values, and the new call has no record that was cut and hidden in the same way.
 */
export function differencesOf(recorded: Answer, answer: Answer): readonly (typeof PARTS)[number][] {
  return PARTS.filter(part => (part === 'output' ? !isSameOutput(recorded, answer) : recorded[part] !== answer[part]));
}

function isSameOutput(recorded: Answer, answer: Answer): boolean {
  if (recorded.output === null || answer.output === null) return recorded.output === answer.output;
  if (!answer.is_recorded && (recorded.is_output_cut || recorded.output.includes(HIDDEN))) {
    throw new CliError(
      'The answers cannot be compared: the recorded output is cut or has hidden values, and the history did not keep the new call. Replay it when fewer calls run, or set history.perSecond higher.',
    );
  }
  const isOneCut = recorded.is_output_cut !== answer.is_output_cut;
  if ((recorded.is_output_cut || isOneCut) && recorded.output_bytes !== answer.output_bytes) return false;
  // A recording of all calls keeps more of an output.
  if (isOneCut) {
    const [cut, whole] = recorded.is_output_cut ? [recorded, answer] : [answer, recorded];
    return (whole.output ?? '').startsWith(cut.output ?? '');
  }
  return recorded.output === answer.output || isSameJson(recorded.output, answer.output);
}

/** Ignores spaces and the order of members. Long numbers are compared as text, because doubles round them. */
function isSameJson(one: string, other: string): boolean {
  if (/\d{16}/.test(one + other)) return false;
  try {
    return isDeepStrictEqual(JSON.parse(one), JSON.parse(other));
  } catch {
    return false;
  }
}

interface Row {
  readonly title: string;
  readonly recorded: string;
  readonly answer: string;
}

/** Prints two answers side by side, and the parts that differ. */
export function printComparison(io: Io, recorded: Answer, answer: Answer, differences: readonly string[]): void {
  const row = (title: string, text: (of: Answer) => string) => ({
    ...{ title, recorded: text(recorded), answer: text(answer) },
  });
  const rows = [
    row('call', ({ id }) => id),
    row('ran', ({ target }) => target),
    row('outcome', ({ outcome }) => outcome),
    row('code', ({ error_code }) => error_code ?? '-'),
    row('time', ({ duration_ms }) => inWords(duration_ms)),
    ...rowsOf('output', linesOf(recorded.output), linesOf(answer.output)),
    ...rowsOf('error', linesOf(recorded.error || null), linesOf(answer.error || null)),
  ];
  printTable<Row>(
    io,
    [
      { title: '', text: ({ title }) => title },
      { title: 'RECORDED', text: each => each.recorded, isFlexible: true },
      { title: 'NEW', text: each => each.answer, isFlexible: true },
    ],
    rows,
  );
  io.out.write(differences.length === 0 ? '\nThe answers are equal.\n' : `\nDifferent: ${differences.join(', ')}\n`);
}

function rowsOf(title: string, recorded: readonly string[], answer: readonly string[]): readonly Row[] {
  const count = Math.min(MAX_LINES, Math.max(recorded.length, answer.length));
  const rows = Array.from({ length: count }, (_, at) => ({
    ...{ title: at === 0 ? title : '', recorded: recorded[at] ?? '', answer: answer[at] ?? '' },
  }));
  const more = (lines: readonly string[]) =>
    lines.length > MAX_LINES ? `… ${lines.length - MAX_LINES} more lines` : '';
  const last = { title: '', recorded: more(recorded), answer: more(answer) };
  return last.recorded === '' && last.answer === '' ? rows : [...rows, last];
}

/** Returns the lines of an indented JSON text, or those of any other text. */
function linesOf(text: string | null): readonly string[] {
  if (text === null) return [];
  try {
    return /\d{16}/.test(text) ? [text] : JSON.stringify(JSON.parse(text), null, 2).split('\n');
  } catch {
    return text.split('\n');
  }
}
