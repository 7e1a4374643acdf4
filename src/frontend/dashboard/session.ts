import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { Type } from 'typebox';
import { failedPrecondition, invalidRequest, unauthenticated } from '../../core/error.ts';
import { readSession, SESSION } from '../../core/session.ts';
import { DEFAULT_TENANT } from '../../core/tenant.ts';
import { type Identity, type TokenVerifier, tokenOf } from '../../http/credentials.ts';
import { errorDocs } from '../../http/docs.ts';
import { readRequest } from '../../http/request.ts';
import { CODE_SECONDS, LoginCodes } from './login-codes.ts';

export interface SessionRoutesOptions {
  /** null: authentication is off. */
  readonly auth: TokenVerifier | null;
  readonly version: string;
  /** Tenants whose tokens see the service as a whole; null: everybody does. */
  readonly visibleTo: readonly string[] | null;
}

const Session = Type.Object(
  {
    authentication: Type.Boolean({ description: 'False: everybody is a developer of every tenant.' }),
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

/** As headers can carry it: a token is nothing else. */
const TOKEN = /^[\w.~+/=-]{1,8192}$/;
const COOKIE = 'iam_token';
/** Browsers drop a larger cookie and say nothing; its name counts. */
const MAX_COOKIE_CHARS = 4096;
const json = (description: string, schema: object) => ({ description, content: { 'application/json': { schema } } });
const tags = ['session'];
const REFUSED = {
  401: errorDocs('The token is not valid, or the link was used.'),
  403: errorDocs('A cross-site request, or a role that there is not.'),
  413: errorDocs('The body is too large.'),
  421: errorDocs('The Host is not one that this server answers to.'),
};

/**
 * The login of the dashboard: a token, or the code of a one-time link, becomes the cookie that the API takes anyway. No script can read it, and
 * no page of another site has it sent; the gate's rule about origins does the rest.
 */
export function addSessionRoutes(app: FastifyInstance, { auth, version, visibleTo }: SessionRoutesOptions): void {
  const codes = new LoginCodes();
  const shown = ({ tenant, role }: Identity) => ({
    authentication: auth !== null,
    tenant: tenant ?? null,
    role,
    sees_service: visibleTo === null || visibleTo.includes(tenant ?? DEFAULT_TENANT),
    version,
  });

  app.get(
    '/api/session',
    {
      config: {
        access: 'read',
        noEnvironments: true,
        docs: {
          tags,
          operationId: 'getSession',
          summary: 'Whom the caller speaks for',
          response: { 200: json('It.', Session) },
        },
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
        docs: {
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
        docs: {
          tags,
          operationId: 'logout',
          summary: 'Log out: forget the cookie',
          response: { 200: json('It is.', Type.Object({ code: Type.Integer() })), ...REFUSED },
        },
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
        docs: {
          tags,
          operationId: 'makeLoginLink',
          summary: 'A code that logs a browser in once, within a minute, with the token of this request',
          response: {
            200: json('The code.', Link),
            409: errorDocs('Authentication is off.'),
            429: errorDocs('Too many links are open.'),
          },
        },
      },
    },
    async request => {
      const token = tokenOf(request.raw);
      if (auth === null || token === undefined) throw failedPrecondition('authentication is off: nobody has to log in');
      return { code: codes.make(token), expires_seconds: CODE_SECONDS };
    },
  );
}

function setCookie({ headers }: FastifyRequest, reply: FastifyReply, value: string, more: string): void {
  // Only a proxy in front can say that the browser speaks TLS.
  const secure = headers['x-forwarded-proto'] === 'https' ? '; Secure' : '';
  reply.header('Set-Cookie', `${COOKIE}=${value}; Path=/; HttpOnly; SameSite=Strict${secure}${more}`);
  reply.header('Cache-Control', 'no-store');
}
