import type { IncomingHttpHeaders } from 'node:http';
import type { FastifyContextConfig, FastifyInstance } from 'fastify';
import { ServiceError } from '../core/error.ts';
import type { Sent } from '../core/parameter.ts';
import { Exchange } from './exchange.ts';
import type { EarlyRefusal, FastPathRoute } from './fast-path.ts';

export interface HotRoute {
  /** `POST` when absent. */
  readonly method?: FastPathRoute['method'];
  /** As the router has it, with at most one parameter. */
  readonly url: string;
  /** null: it has none, and `handle` gets `''`. */
  readonly parameter: string | null;
  readonly bodyLimit: number;
  readonly config: FastifyContextConfig;
  /** Whether a request may be answered piece by piece; absent: none is. */
  readonly streams?: (headers: IncomingHttpHeaders) => boolean;
  readonly early?: EarlyRefusal;
  /** How long the caller waits for its answer, where it says so, milliseconds; must not fail. Absent: as long as it takes. */
  readonly timeoutMs?: FastPathRoute['timeoutMs'];
  /** Answers the exchange, now or later. `refuse` answers what it throws. A request with a `query` never takes the fast path. */
  readonly handle: (exchange: Exchange, parameter: string, query: Sent) => void;
  /** Answers with an error, in the form of this route. */
  readonly refuse: (exchange: Exchange, error: unknown) => void;
  /** Answers when the replica that should have answered cannot be reached; absent: as `refuse` does. */
  readonly unreachable?: (exchange: Exchange, error: ServiceError) => void;
}

const NO_QUERY: Sent = {};

/** A route that is asked for very often: the router knows it as any other, and what is plain takes the fast path past the router. */
export function addHotRoute(app: FastifyInstance, hotRoute: HotRoute): void {
  const { method = 'POST', url, parameter, bodyLimit, config, streams, early, refuse } = hotRoute;
  // Answers of these routes pass no hook that masks: a role that only reads has no business here.
  if (config.access === 'read') throw new TypeError(`the hot route ${url} must not be for readers`);
  const handle = (exchange: Exchange, value: string, query = NO_QUERY): void => {
    try {
      hotRoute.handle(exchange, value, query);
    } catch (error) {
      if (!(error instanceof ServiceError)) app.fastPath.uncaught(error, exchange.traceId);
      if (!exchange.isAnswered) refuse(exchange, error);
    }
  };
  app.route<{ Params: Record<string, string>; Querystring: Sent }>({
    method,
    url,
    bodyLimit,
    config,
    handler: (request, reply) => {
      const value = parameter === null ? '' : (request.params[parameter] ?? '');
      handle(Exchange.ofRouter(request, reply), value, request.query);
    },
  });
  app.fastPath.add({
    method,
    pattern: new RegExp(`^${parameter === null ? url : url.replace(`:${parameter}`, '([A-Za-z0-9_.@:$-]+)')}$`),
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
