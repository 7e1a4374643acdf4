import { isSecretName, SECRET_NAME_RULE, type SecretRef, type Variables } from '../../core/secret.ts';
import { usageError } from '../shared/exit.ts';

export interface VariableOptions {
  readonly env?: readonly string[];
  readonly secret?: readonly string[];
}

/** Returns the environment of `--env` and `--secret`, or undefined when neither is given. */
export function variablesOf({ env, secret }: VariableOptions): Variables | undefined {
  if (env === undefined && secret === undefined) return undefined;
  return { ...parsePairs(env ?? [], '--env'), ...Object.fromEntries((secret ?? []).map(parseSecret)) };
}

/** Parses `NAME=value` pairs into a map. */
export function parsePairs(pairs: readonly string[], flag: string): Record<string, string> {
  return Object.fromEntries(
    pairs.map(pair => {
      const at = pair.indexOf('=');
      if (at < 1) throw usageError(`${flag} must be NAME=value, not ${JSON.stringify(pair)}.`);
      return [pair.slice(0, at), pair.slice(at + 1)];
    }),
  );
}

/** Returns a variable of a record as text for people. */
export function shownVariable(value: string | SecretRef): string {
  return typeof value === 'string' ? value : `(secret ${value.secret})`;
}

function parseSecret(text: string): [string, SecretRef] {
  const at = text.indexOf('=');
  const [variable, name] = at === -1 ? [text, text] : [text.slice(0, at), text.slice(at + 1)];
  if (variable !== '' && isSecretName(name)) return [variable, { secret: name }];
  throw usageError(
    `--secret must be NAME or NAME=secret, where the name of the secret is ${SECRET_NAME_RULE}; not ${JSON.stringify(text)}.`,
  );
}
