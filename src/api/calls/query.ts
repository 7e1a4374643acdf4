import { LIMITS } from '../../core/limits.ts';
import type { CallPlace } from '../../history/call-reader.ts';
import { MOMENT, readMoment } from '../log-answer.ts';
import { anyText, badQuery, functionName, integer, parsed } from '../query.ts';

const OUTCOMES = ['ok', 'error'] as const;
const POSITION = /^(?:now|\d{1,15})$/;
const CURSOR = /^(\d{1,16})\.([0-9a-f-]{36})$/;
const ID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;
const DASHED = /^([0-9a-f]{8})-([0-9a-f]{4})-([0-9a-f]{4})-([0-9a-f]{4})-([0-9a-f]{12})$/;
const PLAIN = /^([0-9a-f]{8})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{12})$/;

const moment = (description: string) =>
  parsed<number | undefined>({ ...MOMENT, description }, undefined, (text, name) => readMoment(text, name, Date.now()));

/** The query of a list of calls. */
export const CALLS_QUERY = {
  agent: anyText({ description: 'The `instance_id` of an agent.' }),
  function: functionName(),
  outcome: parsed<(typeof OUTCOMES)[number] | undefined>({ enum: OUTCOMES }, undefined, (text, name) => {
    const outcome = OUTCOMES.find(each => each === text);
    if (outcome === undefined) throw badQuery(name, `one of ${OUTCOMES.join(', ')}`, text);
    return outcome;
  }),
  trace_id: parsed<readonly string[] | undefined>(
    { type: 'string', description: 'The trace id of an error message, with or without dashes.' },
    undefined,
    spellingsOf,
  ),
  parent: parsed<string | undefined>(
    { type: 'string', pattern: `${ID.source}|^$`, description: 'The id of the call whose handler made them.' },
    undefined,
    (text, name) => {
      if (!ID.test(text)) throw badQuery(name, 'the id of a call', text);
      return text;
    },
  ),
  after: moment('Calls that started at this moment or later, or so long ago.'),
  before: moment('Calls that started before this moment.'),
  text: parsed<string | undefined>(
    {
      type: 'string',
      maxLength: LIMITS.callTextChars,
      description:
        'A part of the input, the output or the error; not for viewers. No index has it, so a page may have few calls, or none, although `next_cursor` leads on.',
    },
    undefined,
    (text, name) => {
      if (text.length > LIMITS.callTextChars) {
        throw badQuery(name, `at most ${LIMITS.callTextChars} characters`, `${text.slice(0, 32)}…`);
      }
      return text;
    },
  ),
  limit: integer({ min: 1, max: LIMITS.callList.max }, LIMITS.callList.default),
  cursor: parsed<CallPlace | null>(
    { type: 'string', pattern: `${CURSOR.source}|^$`, description: 'The `next_cursor` of the page before.' },
    null,
    (text, name) => {
      const [, startedAtMs, id] = CURSOR.exec(text) ?? [];
      if (startedAtMs === undefined || id === undefined) throw badQuery(name, 'the next_cursor of a page before', text);
      return { startedAtMs: Number(startedAtMs), id };
    },
  ),
  follow: parsed<number | 'now' | undefined>(
    {
      type: 'string',
      pattern: `${POSITION.source}|^$`,
      description:
        '`now`, or the `next_cursor` of an answer with this parameter: calls that were recorded after it, in the order of their records. Such a page may have no calls. Its `next_cursor` is never null, and stays the same when the history has no later records.',
    },
    undefined,
    (text, name) => {
      if (!POSITION.test(text)) throw badQuery(name, 'now, or the next_cursor of an answer before', text);
      return text === 'now' ? text : Number(text);
    },
  ),
};

/** Returns the spellings of a trace id: calls inside a trace may have the one without dashes. */
function spellingsOf(text: string): readonly string[] {
  const [, ...parts] = DASHED.exec(text) ?? PLAIN.exec(text) ?? [];
  return parts.length === 0 ? [text] : [parts.join(''), parts.join('-')];
}
