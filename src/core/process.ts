import { variables } from './environment.ts';
import { COMMAND } from './exec.ts';
import { failAtFirst, type JsonObject } from './json.ts';
import { boolean, integer, number, text } from './kind.ts';
import { LIMITS } from './limits.ts';
import { maybe, object, optional, required, type ValueOf } from './shape.ts';

const MAX_TAG_CHARS = 200;
const size = { min: 1, max: 65_535 };

const PROCESS_FIELDS = {
  command: required(COMMAND),
  working_dir: optional(text(), '', 'Default: the working directory of the sandbox.'),
  env: optional(variables(text()), {}),
  user: optional(text(), '', 'An account inside; default: the user of the sandbox.'),
  tag: maybe(text({ required: true, maxChars: MAX_TAG_CHARS }), 'A name by which it can be selected like by its pid.'),
  stdin: optional(boolean, false, 'Opens a standard input; otherwise it is empty.'),
  tty: optional(boolean, false, 'With a terminal.'),
  cols: optional(integer(size), 80),
  rows: optional(integer(size), 24),
  timeout: optional(
    number({ min: 0, max: LIMITS.execTimeoutSeconds.max }),
    0,
    'Seconds after which the process is killed; 0: never.',
  ),
};

/** The body that starts a process which outlives its connection. */
export const PROCESS = object<ValueOf<typeof PROCESS_FIELDS>>(PROCESS_FIELDS);

/** Reads the body. Fails with `invalid_request`. */
export function readProcess(body: JsonObject): ValueOf<typeof PROCESS_FIELDS> {
  return PROCESS.read(body, '', failAtFirst) as ValueOf<typeof PROCESS_FIELDS>;
}

const SIGNAL_FIELDS = {
  signal: optional(text({ required: true, maxChars: 16 }), 'SIGTERM', 'Name of a signal, such as `SIGKILL`.'),
};

/** The body that signals a process. */
export const PROCESS_SIGNAL = object<ValueOf<typeof SIGNAL_FIELDS>>(SIGNAL_FIELDS);

/** Reads the body. Fails with `invalid_request`. */
export function readProcessSignal(body: JsonObject): ValueOf<typeof SIGNAL_FIELDS> {
  return PROCESS_SIGNAL.read(body, '', failAtFirst) as ValueOf<typeof SIGNAL_FIELDS>;
}
