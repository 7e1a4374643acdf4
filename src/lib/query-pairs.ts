/**
 * Queries as they were sent. Whoever looks for a parameter and whoever takes it out read names in one way, so that none is found and left in.
 */

/** What stands behind the first question mark of a request's target; undefined: nothing does. */
export function queryOf(url: string): string | undefined {
  const at = url.indexOf('?');
  return at === -1 ? undefined : url.slice(at + 1);
}

/** The values of a parameter, decoded. */
export function valuesOf(query: string, name: string): string[] {
  return query
    .split('&')
    .filter(pair => nameOf(pair) === name)
    .map(pair => (pair.includes('=') ? decodedLoosely(pair.slice(pair.indexOf('=') + 1)) : ''));
}

/** The name of a parameter, decoded. */
export function nameOf(pair: string): string {
  return decodedLoosely(pair.split('=', 1)[0] as string);
}

/** Each escape as its byte, and what is none as it is: a wrong one hides nothing of the rest. For texts of ASCII. */
export function decodedLoosely(text: string): string {
  return text
    .replaceAll('+', ' ')
    .replace(/%[0-9a-f]{2}/gi, escaped => String.fromCharCode(Number.parseInt(escaped.slice(1), 16)));
}
