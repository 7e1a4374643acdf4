import { isSecretName, type SecretRef, type Variables } from '../../core/secret.ts';

/** A reference to a secret, in the form that templates of CloudFormation use. */
const REFERENCE = /^\{\{resolve:secretsmanager:([^{}]+)\}\}$/;

/**
 * Returns the variables of a function as texts. References to secrets become
 * `{{resolve:secretsmanager:<name>}}`.
 */
export function toLambdaVariables(variables: Variables): Readonly<Record<string, string>> {
  return Object.fromEntries(
    Object.entries(variables).map(([name, value]) => [
      name,
      typeof value === 'string' ? value : `{{resolve:secretsmanager:${value.secret}}}`,
    ]),
  );
}

/** Reverses `toLambdaVariables`, so that a client that adds a variable keeps references to secrets. */
export function fromLambdaVariables(variables: Readonly<Record<string, string>>): Variables {
  return Object.fromEntries(Object.entries(variables).map(([name, value]) => [name, toReference(value) ?? value]));
}

function toReference(value: string): SecretRef | null {
  const secret = REFERENCE.exec(value)?.[1] ?? '';
  return isSecretName(secret) ? { secret } : null;
}
