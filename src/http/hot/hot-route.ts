import type { IncomingHttpHeaders } from 'node:http';
import type { FastifyContextConfig, FastifyInstance } from 'fastify';
import { ServiceError } from '../../core/error.ts';
import { Exchange } from './exchange.ts';
import type { EarlyRefusal, FastPathRoute } from './fast-path.ts';

export interface HotRoute {
  /** The path in the router's syntax, with one parameter. */
  readonly url: string;
  readonly parameter: string;
  readonly bodyLimit: number;
  readonly config: FastifyContextConfig;
  /** Returns true if the request may be answered in pieces. Absent: no request may. */
  readonly streams?: (headers: IncomingHttpHeaders) => boolean;
  readonly early?: EarlyRefusal;
  /**
   * Returns the timeout that the client set for its call, in milliseconds. Must not throw. Absent: no
   * timeout.
   */
  readonly timeoutMs?: FastPathRoute['timeoutMs'];
  /** Answers the exchange, immediately or later. `refuse` answers the errors that `handle` throws. */
  readonly handle: (exchange: Exchange, parameter: string) => void;
  /** Answers with an error, in the form of this route. */
  readonly refuse: (exchange: Exchange, error: unknown) => void;
  /** Answers an exchange whose owning replica is unreachable. Absent: `refuse` does. */
  readonly unreachable?: (exchange: Exchange, error: ServiceError) => void;
}

/**
 * Adds a route that is called very often.
 * The router serves it like any other route. Plain requests take the fast path.
 */
export function addHotRoute(app: FastifyInstance, hotRoute: HotRoute): void {
  const { url, parameter, bodyLimit, config, streams, early, refuse } = hotRoute;
  // Answers of hot routes pass no hook that masks, so these routes must not admit a viewer.
  if (config.access === 'read') throw new TypeError(`the hot route ${url} must not be for readers`);
  const handle = (exchange: Exchange, value: string): void => {
    try {
      hotRoute.handle(exchange, value);
    } catch (error) {
      if (!(error instanceof ServiceError)) app.fastPath.uncaught(error, exchange.traceId);
      if (!exchange.isAnswered) refuse(exchange, error);
    }
  };
  app.route<{ Params: Record<string, string> }>({
    method: 'POST',
    url,
    bodyLimit,
    config,
    handler: (request, reply) => {
      handle(Exchange.ofRouter(request, reply), request.params[parameter] ?? '');
    },
  });
  app.fastPath.add({
    pattern: new RegExp(`^${url.replace(`:${parameter}`, '([A-Za-z0-9_.@:$-]+)')}$`),
    bodyLimit,
    route: { ...config, url },
    parameter,
    handle,
    refuse,
    unreachable: hotRoute.unreachable ?? refuse,
    streams: streams ?? (() => false),
    timeoutMs: hotRoute.timeoutMs ?? (() => Number.POSITIVE_INFINITY),
    ...(early === undefined ? {} : { early }),
  });
}
