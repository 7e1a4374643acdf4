import { invalidRequest } from '../../core/error.ts';
import type { InstanceStatus } from '../../core/instance.ts';
import { LIMITS } from '../../core/limits.ts';
import { anyText, badQuery, flag, integer, parsed, required } from '../query.ts';
import { MODE_PATTERN, MODE_TEXT, pathProblem, readMode } from './file-fields.ts';

const STATUSES: readonly InstanceStatus[] = ['CREATING', 'RUNNING', 'STOPPING', 'FAILED'];
const CURSOR = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

/** The query of an agent's log, in addition to `LOG_QUERY`. */
export const PREVIOUS_QUERY = {
  previous: integer({ min: 1, max: LIMITS.previousLogs.runs }, null, {
    description:
      'The log of an earlier run, whose sandbox was removed: 1 is the previous run. Only `tail` may be combined with it.',
  }),
};

/** The query of a list of agents. */
export const LIST_QUERY = {
  namespace: anyText({ description: 'Exact.' }),
  name: anyText({ description: 'Exact.' }),
  status: parsed<InstanceStatus | undefined>({ enum: STATUSES }, undefined, (text, name) => {
    const status = STATUSES.find(one => one === text);
    if (status === undefined) throw badQuery(name, `one of ${STATUSES.join(', ')}`, text);
    return status;
  }),
  limit: integer({ min: 1, max: LIMITS.agentList.max }, LIMITS.agentList.default),
  cursor: parsed<string | null>(
    {
      type: 'string',
      pattern: `${CURSOR.source}|^$`,
      description: 'The `next_cursor` of the page before.',
    },
    null,
    (text, name) => {
      if (!CURSOR.test(text)) throw badQuery(name, 'the next_cursor of a page before', text);
      return text;
    },
  ),
};

const SECONDS = /^\d+(\.\d+)?(e[+-]?\d{1,3})?$/i;

export const DELETE_QUERY = {
  grace: parsed<number | null>(
    {
      type: 'number',
      minimum: 0,
      maximum: LIMITS.deleteGraceMaxSeconds,
      description: 'Seconds for `pre_stop` and the end; default: the larger of 10 and the registered pre_stop time.',
    },
    null,
    (text, name) => {
      const max = LIMITS.deleteGraceMaxSeconds;
      const seconds = Number(text);
      if (!SECONDS.test(text) || seconds > max) throw badQuery(name, `seconds from 0 to ${max}`, text);
      return seconds;
    },
  ),
};

const path = required(
  parsed<string | undefined>(
    {
      type: 'string',
      minLength: 1,
      pattern: '^[^\\u0000]+$',
      description: 'A path inside the sandbox; a relative one begins at its working directory.',
    },
    undefined,
    (text, name) => {
      const problem = pathProblem(text);
      if (problem !== undefined) throw invalidRequest(`invalid query: ${name} ${problem}`);
      return text;
    },
  ),
);

export const DOWNLOAD_QUERY = { path };

export const FILES_QUERY = {
  path,
  max_depth: integer({ min: 1, max: LIMITS.fileList.maxDepth }, undefined, {
    description: `With \`recursive\`: 1 = what is in the directory itself; default ${LIMITS.fileList.maxDepth}.`,
  }),
  recursive: flag('What is in its directories too. Symbolic links are not followed.'),
};

export const MKDIR_QUERY = {
  path,
  mode: parsed<number | null>(
    { type: 'string', pattern: MODE_PATTERN, description: 'Permission bits in octal.' },
    null,
    (text, name) => readMode(text, wrong => badQuery(name, MODE_TEXT, wrong)),
  ),
  recursive: flag('Its parents too; one that is there already is no failure.'),
};
