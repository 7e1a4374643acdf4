import { failedPrecondition } from './error.ts';
import { isJsonObject } from './json.ts';
import { type Kind, text, wrongAt } from './kind.ts';
import { LIMITS } from './limits.ts';
import { object, required, type ValueOf } from './shape.ts';

/** Replaces the value of a secret in an environment, so that readers of the environment do not see it. */
export interface SecretRef {
  readonly secret: string;
}

/** Variables as callers send them and records keep them, without the values of secrets. */
export type Variables = Readonly<Record<string, string | SecretRef>>;

/** Variables as a sandbox receives them. */
export type ResolvedVariables = Readonly<Record<string, string>>;

/** A source of the values of secrets. */
export interface SecretSource {
  /**
   * Returns the current values of these secrets of a tenant. Fails with `failed_precondition`, which names a
   * secret that does not exist or cannot be read.
   */
  valuesOf(tenant: string, names: readonly string[]): Promise<ReadonlyMap<string, string>>;
  /**
   * Fails like `valuesOf` if a secret does not exist, without decrypting. After success, a removal of a
   * secret sees all references that were written earlier.
   */
  check(tenant: string, names: readonly string[]): Promise<void>;
}

const SECRET_NAME = /^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$/;
/** The pattern in OpenAPI. */
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

const value = text({ required: true, maxBytes: LIMITS.secretValueBytes });

const PUT_FIELDS = {
  value: required(value, {
    maxLength: LIMITS.secretValueBytes,
    description: 'What the code sees. Nobody reads it back.',
  }),
};

/** The body of a write of a secret. */
export const SECRET_PUT = object<ValueOf<typeof PUT_FIELDS>>(PUT_FIELDS, { schema: { title: 'SecretPut' } });

/** Returns the secrets that variables refer to, each once. */
export function secretsOf(variables: Variables): readonly string[] {
  const names = new Set<string>();
  for (const name in variables) {
    const given = variables[name];
    if (typeof given === 'object') names.add(given.secret);
  }
  return [...names];
}

/**
 * Replaces references in variables by the values of their secrets. Fails with `failed_precondition`, which
 * names the missing secret. `source` undefined: this service keeps no secrets.
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

/** Returns the names of the variables whose values are secrets. */
export function secretVariables(variables: Variables): readonly string[] {
  return Object.keys(variables).filter(name => typeof variables[name] === 'object');
}

/**
 * The keys that encrypt secrets: 32 bytes each, in Base64 or hexadecimal, one on a line. The first key
 * encrypts; all keys decrypt.
 */

const KEY_BYTES = 32;

export const SECRET_KEY_RULE =
  'one key on a line, each of 32 bytes in Base64 or hexadecimal ("openssl rand -base64 32" makes one)';

/** Reads the keys. Returns null when the text breaks `SECRET_KEY_RULE`. */
export function readSecretKeys(text: string): readonly Uint8Array[] | null {
  const lines = text.split(/\s+/).filter(line => line !== '');
  const keys = lines.map(readKey).filter(key => key !== null);
  return keys.length === 0 || keys.length < lines.length ? null : keys;
}

function readKey(line: string): Uint8Array | null {
  if (/^[0-9A-Fa-f]{64}$/.test(line)) return new Uint8Array(Buffer.from(line, 'hex'));
  if (!/^[A-Za-z0-9+/_-]{43}=?$/.test(line)) return null;
  const key = new Uint8Array(Buffer.from(line, 'base64'));
  return key.length === KEY_BYTES ? key : null;
}
