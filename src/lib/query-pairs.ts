/**
 * Queries in their original spelling. All code that finds or removes a parameter decodes names by these
 * functions, so that no spelling of a name escapes removal.
 */

/** Returns the text after the first question mark of a request's target; undefined without one. */
export function queryOf(url: string): string | undefined {
  const at = url.indexOf('?');
  return at === -1 ? undefined : url.slice(at + 1);
}

/** Returns the values of a parameter, decoded. */
export function valuesOf(query: string, name: string): string[] {
  return query
    .split('&')
    .filter(pair => nameOf(pair) === name)
    .map(pair => (pair.includes('=') ? decodedLoosely(pair.slice(pair.indexOf('=') + 1)) : ''));
}

/** Returns the name of a parameter, decoded. */
export function nameOf(pair: string): string {
  return decodedLoosely(pair.split('=', 1)[0] as string);
}

/**
 * Decodes each escape to its byte and leaves invalid ones unchanged, so that they hide nothing of the rest.
 * For ASCII texts.
 */
export function decodedLoosely(text: string): string {
  return text
    .replaceAll('+', ' ')
    .replace(/%[0-9a-f]{2}/gi, escaped => String.fromCharCode(Number.parseInt(escaped.slice(1), 16)));
}
