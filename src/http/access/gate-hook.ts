import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { sendError } from '../answer.ts';
import { answerUnknownRoute } from '../error-answers.ts';
import type { OwnGate, Route } from '../route-config.ts';
import { traceIdOf } from '../trace.ts';
import { giveUrlBack } from './address-host.ts';
import type { Gate } from './gate.ts';
import { isRefusal, type Verdict } from './verdict.ts';

type Done = (error?: Error) => void;

const UNKNOWN: Route = {};
const NO_ROUTE = undefined as unknown as Route;

/** Adds the fields that `FastifyRequest` has here, and the headers that every answer has. */
export function addRequestFields(app: FastifyInstance, hasAuth: boolean): void {
  app.decorateRequest('route', NO_ROUTE);
  app.decorateRequest('traceId', '');
  app.decorateRequest('tenant', '');
  app.decorateRequest('role', 'viewer');
  app.decorateRequest('admittedUntilMs', null);
  app.decorateRequest('failure', null);
  app.decorateRequest('warnings', null);
  app.addHook('onRequest', (request, reply, done) => {
    request.traceId = traceIdOf(request.raw.headers);
    request.route = request.routeOptions.config;
    reply.header('X-Trace-Id', request.traceId);
    reply.header('X-Content-Type-Options', 'nosniff');
    if (hasAuth && request.route.access !== 'public') reply.header('Cache-Control', 'no-store');
    done();
  });
}

/** Adds the hook that runs `gate`, or the gate of the route, before a route runs. */
export function addGateHook(app: FastifyInstance, gate: Gate): void {
  app.addHook('onRequest', (request, reply, done) => {
    const { route } = request;
    if (route.gate !== undefined) judgeByRoute(route.gate, gate, request, reply, done);
    else judge(route.onlyPages === true && !asksForPage(request) ? UNKNOWN : route, gate, request, reply, done);
  });
}

function judgeByRoute(own: OwnGate, gate: Gate, request: FastifyRequest, reply: FastifyReply, done: Done): void {
  giveUrlBack(request.raw);
  own(request)
    .then(found => {
      if (found === null) {
        judge(UNKNOWN, gate, request, reply, done);
        return;
      }
      if (!isRefusal(found)) request.route = found.route;
      pass(found, request, reply, done);
    })
    .catch(done);
}

function judge(route: Route, gate: Gate, request: FastifyRequest, reply: FastifyReply, done: Done): void {
  request.route = route;
  const verdict = gate(request.raw, route);
  if (verdict instanceof Promise) verdict.then(later => pass(later, request, reply, done)).catch(done);
  else pass(verdict, request, reply, done);
}

function pass(verdict: Verdict, request: FastifyRequest, reply: FastifyReply, done: Done): void {
  if (isRefusal(verdict)) {
    sendError(reply, verdict.reason, verdict);
    return;
  }
  request.tenant = verdict.tenant;
  request.role = verdict.role;
  request.admittedUntilMs = verdict.untilMs ?? null;
  // An unknown route is answered before its body is read, which that route need not accept.
  if (request.route.url === undefined) answerUnknownRoute(request, reply);
  else done();
}

/** Returns true if the request accepts HTML by name. Browsers do this when they navigate. */
function asksForPage({ headers }: FastifyRequest): boolean {
  return headers.accept?.includes('text/html') === true;
}
