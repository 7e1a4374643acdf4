import type { ShownEvent } from '../events.ts';
import type { Io } from '../shared/io.ts';
import { age, coloured, printable, printJson } from '../shared/print.ts';

/**
 * A row of a table that turns facts into sentences. Every row whose `when` is true says its sentence, in the
 * order of the table. The first of them with `next` names the command that helps.
 */
export interface Rule<Facts> {
  readonly when: (facts: Facts) => boolean;
  readonly says?: (facts: Facts) => string;
  readonly next?: (facts: Facts) => string;
}

export interface Verdict {
  readonly sentences: readonly string[];
  /** The command that helps; null: nothing to do. */
  readonly next: string | null;
}

/** The state of one subject in sentences, with the facts behind them. */
export interface Explanation extends Verdict {
  readonly kind: string;
  readonly name: string;
  readonly state: string;
  /** RFC 3339; null when it is unknown. */
  readonly since: string | null;
  /** The end of what its code printed. */
  readonly log: readonly string[];
  /** The log of `log`, as in "The end of its log". */
  readonly log_of: string;
  readonly events: readonly ShownEvent[];
  /** The record of the service, only for JSON. */
  readonly record: unknown;
}

/** The number of events that a person sees. */
const SHOWN_EVENTS = 8;

/** Applies a table to facts. */
export function applyRules<Facts>(rules: readonly Rule<Facts>[], facts: Facts): Verdict {
  const matching = rules.filter(({ when }) => when(facts));
  return {
    sentences: matching.flatMap(({ says }) => (says === undefined ? [] : [says(facts)])),
    next: matching.find(({ next }) => next !== undefined)?.next?.(facts) ?? null,
  };
}

/** Prints an explanation as text, or its facts as JSON. */
export function printExplanation(io: Io, explanation: Explanation, asJson: boolean): void {
  if (asJson) {
    printJson(io, explanation);
    return;
  }
  const { kind, name, state, since, sentences, log, log_of: logOf, events, next } = explanation;
  const bold = (text: string) => coloured(io, io.out, 'bold', printable(text));
  const write = (text: string) => io.out.write(`${printable(text)}\n`);
  const when = since === null ? '' : ` since ${withoutMs(since)} (${age(since)} ago)`;
  io.out.write(`${bold(`${kind} ${name} is ${state}`)}${printable(when)}.\n`);
  for (const sentence of sentences) write(sentence);
  if (log.length > 0) {
    write(`\nThe end of ${logOf}:`);
    for (const line of log) write(`  ${line}`);
  }
  if (events.length > 0) {
    write('\nBefore:');
    for (const event of events.slice(-SHOWN_EVENTS)) write(`  ${eventLine(event)}`);
  }
  if (next !== null) io.out.write(`\n${bold('Next:')} ${printable(next)}\n`);
}

function eventLine({ type, at, status, instances, ready, reason, message, instance_id: id, ...event }: ShownEvent) {
  const what = type === 'scaled' ? `${ready} of ${instances} instances are ready` : status;
  const instance = event.function === undefined ? undefined : id;
  const why = (reason ?? message)?.split('\n', 1)[0];
  return [at === undefined ? '-' : withoutMs(at), type, what, instance, why].filter(Boolean).join('  ');
}

/** Returns an RFC 3339 time without fractions of a second. */
export function withoutMs(time: string): string {
  return time.replace(/\.\d+Z$/, 'Z');
}

/** Ends a foreign text like a sentence, on its first line. */
export function sentence(text: string): string {
  const line = text.trim().split('\n', 1)[0] ?? '';
  return /[.!?…]$/.test(line) ? line : `${line}.`;
}

/** Returns `1 call`, `2 calls`. */
export function counted(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? '' : 's'}`;
}
