import { cookiesWithoutToken, setsPlatformCookie } from '../forwarded-headers.ts';

/**
 * The cookie of a signed link. It belongs to the service: the program in a sandbox neither sees nor sets it.
 */
export const LINK_COOKIE = 'rookery_link';

/** The changes to headers for a kind of URL. */
export interface Way {
  /** Returns the cookies for the sandbox; `''`: none. */
  readonly cookies: (sent: string) => string;
  /** Returns a `Set-Cookie` for the client; undefined: it is omitted. */
  readonly setCookie: (value: string) => string | undefined;
  readonly location: (value: string) => string;
  /** Additional headers of each answer, as alternating names and values. */
  readonly added: readonly string[];
}

/**
 * Sandboxes the pages of a server without its own host name, which therefore get an opaque origin.
 * Their scripts cannot call the API in the name of the user who views them.
 */
const SANDBOXED = [
  'Content-Security-Policy',
  'sandbox allow-scripts allow-forms allow-modals allow-popups allow-downloads',
] as const;

const asItIs = (value: string) => value;

/** Header changes for URLs by instance and port, at the service's own host name. */
export const BY_PORT: Way = {
  cookies: cookiesWithoutToken,
  setCookie: value => (setsPlatformCookie(value) ? undefined : value),
  location: asItIs,
  added: SANDBOXED,
};

/** Header changes for public URLs by host. Pages, cookies and storage are restricted to that host name. */
export const BY_HOST: Way = {
  cookies: sent => withoutLink(cookiesWithoutToken(sent)),
  setCookie: value => (setsPlatformCookie(value) || value.includes(LINK_COOKIE) ? undefined : withoutDomain(value)),
  location: asItIs,
  added: [],
};

/**
 * Returns the header changes for public URLs by path, at the service's own host name.
 * The cookies of that name belong to the service or to other servers, so none is passed in either direction.
 */
export function byPath(prefix: string, host: string): Way {
  return {
    cookies: () => '',
    setCookie: () => undefined,
    location: value => belowPrefix(value, prefix, host),
    added: SANDBOXED,
  };
}

function withoutLink(cookies: string): string {
  return cookies
    .split('; ')
    .filter(pair => !pair.includes(LINK_COOKIE))
    .join('; ');
}

/** Removes the `Domain` of a cookie. Browsers would send such a cookie to neighbouring hosts too. */
function withoutDomain(value: string): string {
  return value
    .split(';')
    .filter((part, index) => index === 0 || !/^\s*domain\s*(=|$)/i.test(part))
    .join(';');
}

/** Maps a redirect of the inner server to the public path. `prefix` ends with a slash. */
function belowPrefix(value: string, prefix: string, host: string): string {
  const absolute = /^https?:\/\/([^/?#\\]*)(\/.*)?$/is.exec(value);
  if (absolute !== null && absolute[1]?.toLowerCase() === host) return prefix + (absolute[2] ?? '/').slice(1);
  return value.startsWith('/') && !/^\/[/\\]/.test(value) ? prefix + value.slice(1) : value;
}
