/** Variables of an environment: texts, and secrets by their names. */
export type Variables = Readonly<Record<string, string | { readonly secret: string }>>;

/** Returns what is wrong with lines of `NAME=value`; `''`: nothing. `noun` names the value. */
export function faultOfLines(text: string, noun: string): string {
  const wrong = linesOf(text).find(line => line.indexOf('=') < 1);
  return wrong === undefined ? '' : `“${wrong.slice(0, 80)}” must be NAME=${noun}`;
}

/** Returns the variables of lines of `NAME=value` and of `NAME=secret`. */
export function variablesOf(texts: string, secrets: string): Variables {
  return Object.fromEntries([
    ...linesOf(texts).map(pairOf),
    ...linesOf(secrets).map(line => {
      const [name, secret] = pairOf(line);
      return [name, { secret: secret.trim() }] as const;
    }),
  ]);
}

function linesOf(text: string): readonly string[] {
  return text.split('\n').filter(line => line.trim() !== '');
}

function pairOf(line: string): readonly [name: string, value: string] {
  const at = line.indexOf('=');
  return [line.slice(0, at).trim(), line.slice(at + 1)];
}
