/** An address of the dashboard: the fragment of the page's URL, as `#/events?kind=failed`. */
export interface Address {
  readonly parts: readonly string[];
  readonly query: URLSearchParams;
}

/** Parses an address. Parts with an invalid encoding are returned as typed. */
export function addressOf(hash: string): Address {
  const [path = '', ...rest] = hash.split('?');
  const parts = path.replace(/^#\/?|\/+$/g, '').split('/');
  const query = new URLSearchParams(rest.join('?'));
  try {
    return { parts: parts.map(decodeURIComponent), query };
  } catch {
    return { parts, query };
  }
}

/** Returns the address with another query. */
export function withQuery(hash: string, query: URLSearchParams): string {
  const [path = ''] = hash.split('?');
  const text = String(query);
  return text === '' ? path : `${path}?${text}`;
}
