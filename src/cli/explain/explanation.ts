import type { Verdict } from '../../explain/rules.ts';
import { withoutMs } from '../../explain/words.ts';
import { age } from '../../lib/age.ts';
import type { ShownEvent } from '../events.ts';
import type { Io } from '../shared/io.ts';
import { coloured, printable, printJson } from '../shared/print.ts';

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
