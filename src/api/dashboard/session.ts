import { randomBytes } from 'node:crypto';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { Type } from 'typebox';
import { failedPrecondition, invalidRequest, unauthenticated } from '../../core/error.ts';
import { readSession, SESSION } from '../../core/session.ts';
import { DEFAULT_TENANT } from '../../core/tenant.ts';
import { type Identity, type TokenVerifier, tokenOf } from '../../http/access/credentials.ts';
import { errorDocs } from '../../http/docs.ts';
import { readRequest } from '../../http/request.ts';

export interface SessionRoutesOptions {
  /** Verifies tokens. null: authentication is off. */
  readonly auth: TokenVerifier | null;
  readonly version: string;
  /** Tenants whose tokens see the metrics of the whole service. null: every token does. */
  readonly visibleTo: readonly string[] | null;
}

const Session = Type.Object(
  {
    authentication: Type.Boolean({ description: 'False: every caller is a developer of every tenant.' }),
    tenant: Type.Union([Type.String(), Type.Null()], {
      description: 'null: any; the header `X-Tenant-Id` says which.',
    }),
    role: Type.Union([Type.Literal('viewer'), Type.Literal('user'), Type.Literal('developer')]),
    sees_service: Type.Boolean({
      description: 'Whether the numbers, replicas and settings of the whole service are shown.',
    }),
    version: Type.String(),
  },
  { title: 'Session' },
);
const Link = Type.Object({ code: Type.String(), expires_seconds: Type.Integer() }, { title: 'LoginLink' });

/** Characters of a token. A header can carry all of them. */
const TOKEN = /^[\w.~+/=-]{1,8192}$/;
const COOKIE = 'iam_token';
/** Largest cookie, including its name. Browsers silently drop a larger one. */
const MAX_COOKIE_CHARS = 4096;
const json = (description: string, schema: object) => ({ description, content: { 'application/json': { schema } } });
const tags = ['session'];
const REFUSED = {
  401: errorDocs('The token is not valid, or the link was used.'),
  403: errorDocs('A cross-site request, or a role that there is not.'),
  413: errorDocs('The body is too large.'),
  421: errorDocs('The Host is not one that this server answers to.'),
};

const DOCS = {
  read: {
    tags,
    operationId: 'getSession',
    summary: 'Whom the caller speaks for',
    response: { 200: json('It.', Session) },
  },
  login: {
    tags,
    operationId: 'login',
    summary: 'Log in with a token, or the code of a one-time link',
    description: 'Sets the cookie `iam_token` (HttpOnly, SameSite=Strict), which the API takes as a token.',
    body: SESSION.describe(),
    response: {
      200: json('Whom the token speaks for.', Session),
      400: errorDocs('Neither a token nor a code, or both; or a token that no cookie can hold.'),
      ...REFUSED,
    },
  },
  logout: {
    tags,
    operationId: 'logout',
    summary: 'Log out: forget the cookie',
    response: { 200: json('It is.', Type.Object({ code: Type.Integer() })), ...REFUSED },
  },
  link: {
    tags,
    operationId: 'makeLoginLink',
    summary: 'A code that logs a browser in once, within a minute, with the token of this request',
    response: {
      200: json('The code.', Link),
      409: errorDocs('Authentication is off.'),
    },
  },
};

/**
 * Adds the login of the dashboard, which stores a token in the cookie that the API accepts.
 * The client sends the token, or the code of a one-time link.
 * Scripts cannot read the cookie, and browsers do not send it for pages of other sites. The gate's check of
 * the origin covers the remaining cases.
 */
export function addSessionRoutes(app: FastifyInstance, { auth, version, visibleTo }: SessionRoutesOptions): void {
  const codes = new LoginCodes();
  const shown = (identity: Identity) => ({ authentication: auth !== null, ...sessionOf(identity, visibleTo), version });

  app.get(
    '/api/session',
    {
      config: {
        access: 'read',
        noEnvironments: true,
        docs: DOCS.read,
      },
    },
    async request => {
      const token = auth === null ? undefined : tokenOf(request.raw);
      return shown((token === undefined ? undefined : auth?.known(token)) ?? { tenant: undefined, role: request.role });
    },
  );

  app.post(
    '/api/session',
    {
      config: {
        access: 'public',
        docs: DOCS.login,
      },
    },
    async (request, reply) => {
      const sent = readRequest(request, SESSION, readSession);
      if ((sent.token === '') === (sent.code === ''))
        throw invalidRequest('invalid request body: token or code is required');
      if (auth === null) return shown({ tenant: undefined, role: 'developer' });
      const token = sent.token === '' ? codes.use(sent.code) : sent.token.trim();
      if (!TOKEN.test(token)) throw unauthenticated('authentication failed: this is no token');
      const identity = auth.known(token) ?? (await auth.verify(token));
      const most = MAX_COOKIE_CHARS - COOKIE.length;
      if (token.length > most) {
        throw invalidRequest(
          `the token has ${token.length} characters, and a browser keeps ${most} as a cookie: log in with one that has fewer claims`,
        );
      }
      setCookie(request, reply, token, '');
      return shown(identity);
    },
  );

  app.delete(
    '/api/session',
    {
      config: {
        access: 'public',
        docs: DOCS.logout,
      },
    },
    async (request, reply) => {
      setCookie(request, reply, '', '; Max-Age=0');
      return { code: 200 };
    },
  );

  app.post(
    '/api/session/links',
    {
      config: {
        access: 'read',
        noEnvironments: true,
        docs: DOCS.link,
      },
    },
    async request => {
      const token = tokenOf(request.raw);
      if (auth === null || token === undefined) throw failedPrecondition('authentication is off: no login is needed');
      return { code: codes.make(request.tenant, token), expires_seconds: CODE_SECONDS };
    },
  );
}

function sessionOf({ tenant, role }: Identity, visibleTo: readonly string[] | null) {
  const seesService = visibleTo === null || visibleTo.includes(tenant ?? DEFAULT_TENANT);
  return { tenant: tenant ?? null, role, sees_service: seesService };
}

function setCookie({ headers }: FastifyRequest, reply: FastifyReply, value: string, more: string): void {
  // Only a proxy can report that the browser speaks TLS.
  const secure = headers['x-forwarded-proto'] === 'https' ? '; Secure' : '';
  reply.header('Set-Cookie', `${COOKIE}=${value}; Path=/; HttpOnly; SameSite=Strict${secure}${more}`);
  reply.header('Cache-Control', 'no-store');
}

const CODE_BYTES = 24;
/** Lifetime of a code, long enough to open a browser. */
export const CODE_SECONDS = 60;
const MAX_CODES_OF_TENANT = 32;

interface Waiting {
  readonly tenant: string;
  readonly token: string;
  readonly untilMs: number;
}

/**
 * Creates codes for one-time links, each for a token.
 * A code is valid once, for a minute, and reveals nothing about the token.
 */
export class LoginCodes {
  readonly #waiting = new Map<string, Waiting>();
  readonly #now: () => number;

  constructor(now: () => number = Date.now) {
    this.#now = now;
  }

  /** Returns a code for a token of `tenant`. Removes the tenant's oldest open code if there are too many. */
  make(tenant: string, token: string): string {
    for (const [code, { untilMs }] of this.#waiting) if (untilMs <= this.#now()) this.#waiting.delete(code);
    const ofTenant = [...this.#waiting].filter(([, waiting]) => waiting.tenant === tenant);
    const [oldest] = ofTenant;
    if (oldest !== undefined && ofTenant.length >= MAX_CODES_OF_TENANT) this.#waiting.delete(oldest[0]);
    const code = randomBytes(CODE_BYTES).toString('base64url');
    this.#waiting.set(code, { tenant, token, untilMs: this.#now() + CODE_SECONDS * 1000 });
    return code;
  }

  /** Returns the token of a code, and invalidates the code. Fails with `unauthenticated`. */
  use(code: string): string {
    const found = this.#waiting.get(code);
    this.#waiting.delete(code);
    if (found === undefined || found.untilMs <= this.#now()) {
      throw unauthenticated('authentication failed: the link was used, or is older than a minute');
    }
    return found.token;
  }
}
