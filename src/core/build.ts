import { failAtFirst, type JsonObject } from './json.ts';
import { type Kind, refine, text } from './kind.ts';
import { type RequestedSandboxType, SANDBOX_TYPES } from './sandbox-types.ts';
import { object, optional, required, type ValueOf } from './shape.ts';

const sandboxType: Kind<RequestedSandboxType> = {
  ...refine(text() as Kind<RequestedSandboxType>, (value, path, problem) => {
    if (value === '' || (SANDBOX_TYPES as readonly string[]).includes(value)) return;
    problem(path, `must be one of ${SANDBOX_TYPES.join(', ')} or empty, got "${value}"`);
  }),
  describe: () => ({ enum: ['', ...SANDBOX_TYPES] }),
};

const BUILD_FIELDS = {
  source: required(text({ required: true }), {
    description: 'The code: `code://<sha256>`, or a directory of the host.',
  }),
  runtime: required(text({ required: true }), { examples: ['python3.11'] }),
  sandbox_type: optional(sandboxType, '', 'Of what will run it. Empty: the default executor.'),
};

/** The body of a build, which installs the dependencies of some code in advance. */
export const BUILD = object<ValueOf<typeof BUILD_FIELDS>>(BUILD_FIELDS);

/** Reads the body of a build. Fails with `invalid_request`. */
export function readBuild(body: JsonObject): ValueOf<typeof BUILD_FIELDS> {
  return BUILD.read(body, '', failAtFirst) as ValueOf<typeof BUILD_FIELDS>;
}
