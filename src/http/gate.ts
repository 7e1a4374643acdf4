import type { FastifyReply, FastifyRequest, HookHandlerDoneFunction } from 'fastify';
import { internal, ServiceError } from '../core/error.ts';
import { REFUSAL_STATUS, refusal, sendError } from './answer.ts';
import { checkAccess, type Identity, isWebSocketUpgrade, type TokenVerifier, tokenOf } from './credentials.ts';
import type { HostRule } from './host-rule.ts';
import { tenantOf } from './tenant.ts';
import { traceIdOf } from './trace.ts';

export interface GateOptions {
  readonly hostRule: HostRule;
  /** null: authentication is off, every caller is trusted. */
  readonly auth: TokenVerifier | null;
  /** The body's `code` for a tenant header that is not a tenant. */
  readonly badTenantCode: number;
}

type Gate = (request: FastifyRequest, reply: FastifyReply, done: HookHandlerDoneFunction) => void;

const SAFE_METHODS = new Set(['GET', 'HEAD', 'OPTIONS']);
/** `type/subtype`, with or without parameters. */
const MEDIA_TYPE = /^[\w!#$%&'*+.^`|~-]+\/[\w!#$%&'*+.^`|~-]+\s*(;|$)/;

/**
 * What every request passes before its route: trace id, Host (421), Origin (403), token (401, 403), tenant (400, 403).
 * One synchronous hook, so that a warm call pays for no promise; only a token that was never seen waits.
 */
export function createGate({ hostRule, auth, badTenantCode }: GateOptions): Gate {
  const refuse = (reply: FastifyReply, error: unknown) => {
    const known =
      error instanceof ServiceError ? error : internal('the request could not be checked', { cause: error });
    const status = REFUSAL_STATUS[known.code] ?? 500;
    const answer = refusal(status, known.message);
    sendError(reply, known, status === 400 ? { status, body: { ...answer.body, code: badTenantCode } } : answer);
  };

  return (request, reply, done) => {
    const { raw } = request;
    const { headers } = raw;
    request.traceId = traceIdOf(headers);
    reply.header('X-Trace-Id', request.traceId);

    const config = request.routeOptions.config;
    request.route = config;
    if (config.anyHost !== true && !hostRule.allowsHost(headers.host, raw.socket?.localAddress)) {
      reply.request.failure = 'host not allowed';
      const { status, body } = refusal(
        421,
        `host not allowed: ${headers.host ?? '(none)'}; see the setting allowedHosts`,
      );
      reply.code(status).send(body);
      return;
    }
    const changes = !SAFE_METHODS.has(raw.method as string) || isWebSocketUpgrade(raw);
    if (changes && hostRule.isCrossSite(headers)) {
      reply.request.failure = 'cross-site request';
      const { status, body } = refusal(403, 'cross-site requests are not allowed');
      reply.code(status).send(body);
      return;
    }
    // A body is read whatever its type is called; a header that is no media type at all would be a 415.
    const contentType = headers['content-type'];
    if (contentType !== undefined && !MEDIA_TYPE.test(contentType)) delete headers['content-type'];

    const admit = (identity: Identity | undefined) => {
      try {
        if (identity !== undefined) checkAccess(identity, config.access ?? 'read');
        request.tenant = tenantOf(headers, identity?.tenant);
      } catch (error) {
        refuse(reply, error);
        return;
      }
      // Before the body, which an unknown route would otherwise have to be able to read.
      if (config.url === undefined) answerUnknownRoute(request, reply);
      else done();
    };

    if (auth === null || config.access === 'public') {
      admit(undefined);
      return;
    }
    const token = tokenOf(raw);
    if (token === undefined) {
      refuse(reply, new ServiceError('unauthenticated', 'authentication failed: no token was sent'));
      return;
    }
    const known = auth.known(token);
    if (known !== undefined) admit(known);
    else auth.verify(token).then(admit, error => refuse(reply, error));
  };
}

/** Unknown methods too: 404 and the path without its query, which may carry a token. */
export function answerUnknownRoute(request: FastifyRequest, reply: FastifyReply): void {
  const path = (request.raw.url ?? '').split('?', 1)[0];
  const { status, body } = refusal(404, `route not found: ${request.method} ${path}`);
  reply.code(status).send(body);
}
