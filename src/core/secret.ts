import { failedPrecondition } from './error.ts';
import { isJsonObject } from './json.ts';
import { type Kind, refine, text, wrongAt } from './kind.ts';
import { LIMITS } from './limits.ts';
import { object, required, type ValueOf } from './shape.ts';

/** Stands in an environment in the place of a value that nobody is to read there. */
export interface SecretRef {
  readonly secret: string;
}

/** Variables as callers give them and records keep them: the values of secrets are not in them. */
export type Variables = Readonly<Record<string, string | SecretRef>>;

/** Variables as a sandbox has them. */
export type ResolvedVariables = Readonly<Record<string, string>>;

/** Whoever knows the values of secrets. */
export interface SecretSource {
  /**
   * The values of these secrets of a tenant, as they are now. Fails with `failed_precondition`, which names the one that does not exist or
   * cannot be read.
   */
  valuesOf(tenant: string, names: readonly string[]): Promise<ReadonlyMap<string, string>>;
  /** Fails as `valuesOf` does for what does not exist. Else no removal overlooks what refers to them and was written before. Nothing is decrypted. */
  check(tenant: string, names: readonly string[]): Promise<void>;
}

const SECRET_NAME = /^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$/;
/** How OpenAPI shows it. */
export const SECRET_NAME_PATTERN = SECRET_NAME.source;
export const SECRET_NAME_RULE = '1 to 128 letters, digits, ".", "_" or "-", the first a letter, a digit or "_"';

export function isSecretName(name: string): boolean {
  return SECRET_NAME.test(name);
}

/** A value of an environment: `value`, or `{"secret": "<name>"}`. */
export function variable(value: Kind<string>): Kind<string | SecretRef> {
  return {
    describe: options => ({
      anyOf: [
        value.describe(options),
        {
          type: 'object',
          description: 'The value of a secret, which is looked up when a sandbox starts.',
          required: ['secret'],
          properties: { secret: { type: 'string', pattern: SECRET_NAME_PATTERN } },
          additionalProperties: false,
        },
      ],
    }),
    read(given, path, problem) {
      if (!isJsonObject(given)) return value.read(given, path, problem);
      const { secret, ...others } = given;
      if (typeof secret !== 'string' || Object.keys(others).length > 0) {
        return wrongAt(path, 'must be a string, or {"secret": "<name>"}', problem);
      }
      if (isSecretName(secret)) return { secret };
      return wrongAt(`${path}.secret`, `must be ${SECRET_NAME_RULE}`, problem);
    },
  };
}

/** Halves of surrogate pairs are no UTF-8: what the code would see is not what was sent. */
const value = refine(text({ required: true }), (given, path, problem) => {
  if (/\p{Cs}/u.test(given)) problem(path, 'must be text that UTF-8 can hold');
  else if (Buffer.byteLength(given) > LIMITS.secretValueBytes) {
    problem(path, `must have at most ${LIMITS.secretValueBytes} bytes`);
  }
});

const PUT_FIELDS = {
  value: required(value, {
    maxLength: LIMITS.secretValueBytes,
    description: 'What the code sees. Nobody reads it back.',
  }),
};

/** The body of a write of a secret. */
export const SECRET_PUT = object<ValueOf<typeof PUT_FIELDS>>(PUT_FIELDS, { schema: { title: 'SecretPut' } });

/** The secrets that variables refer to, each once. */
export function secretsOf(variables: Variables): readonly string[] {
  const names = new Set<string>();
  for (const name in variables) {
    const given = variables[name];
    if (typeof given === 'object') names.add(given.secret);
  }
  return [...names];
}

/**
 * The variables with the values of the secrets that they refer to. Fails with `failed_precondition`, which names what is missing. `source`
 * undefined: this service keeps no secrets.
 */
export async function resolveVariables(
  tenant: string,
  variables: Variables,
  source: SecretSource | undefined,
): Promise<ResolvedVariables> {
  const names = secretsOf(variables);
  if (names.length === 0) return variables as ResolvedVariables;
  if (source === undefined)
    throw failedPrecondition(`secret ${names[0]} cannot be used: this service keeps no secrets`);
  const values = await source.valuesOf(tenant, names);
  return Object.fromEntries(
    Object.entries(variables).map(([name, given]) => [
      name,
      typeof given === 'string' ? given : (values.get(given.secret) as string),
    ]),
  );
}

/** The names of the variables whose values are secrets. */
export function secretVariables(variables: Variables): readonly string[] {
  return Object.keys(variables).filter(name => typeof variables[name] === 'object');
}
