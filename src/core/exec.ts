import { variables } from './environment.ts';
import { failAtFirst, type JsonObject } from './json.ts';
import { type Kind, list, number, text, wrongAt } from './kind.ts';
import { LIMITS } from './limits.ts';
import { object, optional, required, type ValueOf } from './shape.ts';

const program = text({ required: true, maxBytes: LIMITS.variableBytes });
const args = list(text({ maxBytes: LIMITS.variableBytes }));

/** A command: `/bin/sh -c` runs a text; a list is an argument vector. */
export const COMMAND: Kind<readonly string[]> = {
  describe: () => ({
    anyOf: [program.describe(), { ...args.describe(), minItems: 1, prefixItems: [program.describe()] }],
    description: 'A text is run by `/bin/sh -c`, a list is an argument vector.',
  }),
  read(value, path, problem) {
    if (typeof value === 'string') {
      const line = program.read(value, path, problem);
      return line === undefined ? undefined : ['/bin/sh', '-c', line];
    }
    if (!Array.isArray(value)) return wrongAt(path, 'must be a string or an array of strings', problem);
    const argv = args.read(value, path, problem);
    return argv?.[0] ? argv : wrongAt(path, 'must name a program', problem);
  },
};

const EXEC_FIELDS = {
  command: required(COMMAND),
  timeout: optional(
    number({ min: 0.001, max: LIMITS.execTimeoutSeconds.max }),
    LIMITS.execTimeoutSeconds.default,
    'Seconds; at the end of them the whole process group ends.',
  ),
  working_dir: optional(text(), ''),
  env: optional(variables(text()), {}),
  stdin: optional(text({ raw: true }), ''),
};

/** The body of an exec: one command inside a sandbox. */
export const EXEC = object<ValueOf<typeof EXEC_FIELDS>>(EXEC_FIELDS);

/** Reads the body of an exec. Fails with `invalid_request`. */
export function readExec(body: JsonObject): ValueOf<typeof EXEC_FIELDS> {
  return EXEC.read(body, '', failAtFirst) as ValueOf<typeof EXEC_FIELDS>;
}
