import { cookiesWithoutToken, setsPlatformCookie } from '../forwarded-headers.ts';

/** The cookie of a signed link. It is the service's: what runs in a sandbox neither sees nor sets it. */
export const LINK_COOKIE = 'rookery_link';

/** What the way that a request comes by makes of headers. */
export interface Way {
  /** What goes in of a `Cookie`; `''`: nothing. */
  readonly cookies: (sent: string) => string;
  /** What comes back of a `Set-Cookie`; undefined: nothing. */
  readonly setCookie: (value: string) => string | undefined;
  readonly location: (value: string) => string;
  /** Headers of each answer beside those that the server gave, names and values in turn. */
  readonly added: readonly string[];
}

/**
 * The rights of a page from a sandbox that has no host name of its own: not those of the service's pages. It gets an origin of its own, so that its
 * scripts cannot ask the API in the name of whoever looks at it.
 */
const SANDBOXED = [
  'Content-Security-Policy',
  'sandbox allow-scripts allow-forms allow-modals allow-popups allow-downloads',
] as const;

const asItIs = (value: string) => value;

/** By instance and port, at the service's own host name. */
export const BY_PORT: Way = {
  cookies: cookiesWithoutToken,
  setCookie: value => (setsPlatformCookie(value) ? undefined : value),
  location: asItIs,
  added: SANDBOXED,
};

/** By a host name of its own: pages, cookies and storage are those of that name, and of no other. */
export const BY_HOST: Way = {
  cookies: sent => withoutLink(cookiesWithoutToken(sent)),
  setCookie: value => (setsPlatformCookie(value) || value.includes(LINK_COOKIE) ? undefined : withoutDomain(value)),
  location: asItIs,
  added: [],
};

/** By a path at the service's own host name. Cookies of that name are other people's: none goes in, and none comes back. */
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

/** A cookie for the domain above would be sent to the neighbours, and perhaps to the service. */
function withoutDomain(value: string): string {
  return value
    .split(';')
    .filter((part, index) => index === 0 || !/^\s*domain\s*(=|$)/i.test(part))
    .join(';');
}

/** A redirect to the root of the server inside leads to where that is outside. `prefix` ends with a slash. */
function belowPrefix(value: string, prefix: string, host: string): string {
  const absolute = /^https?:\/\/([^/?#\\]*)(\/.*)?$/is.exec(value);
  if (absolute !== null && absolute[1]?.toLowerCase() === host) return prefix + (absolute[2] ?? '/').slice(1);
  return value.startsWith('/') && !/^\/[/\\]/.test(value) ? prefix + value.slice(1) : value;
}
