import type { Variables } from '../../core/secret.ts';

/**
 * Returns the variables of a function as texts. References to secrets have the form that templates of
 * CloudFormation use.
 */
export function toLambdaVariables(variables: Variables): Readonly<Record<string, string>> {
  return Object.fromEntries(
    Object.entries(variables).map(([name, value]) => [
      name,
      typeof value === 'string' ? value : `{{resolve:secretsmanager:${value.secret}}}`,
    ]),
  );
}
