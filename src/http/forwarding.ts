import type { IncomingMessage, ServerResponse } from 'node:http';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { internal, permissionDenied, ServiceError } from '../core/error.ts';
import type { Bodies } from './bodies.ts';
import { checkAccess, type Role } from './credentials.ts';
import type { Addressed, LivesWith, Thing } from './lives-with.ts';
import type { RequestHead } from './plain-request.ts';
import type { Route } from './route-config.ts';
import type { Admitted } from './verdict.ts';

/** Another replica: its node and the address (`host:port`) of its cluster listener. */
export interface Replica {
  readonly nodeId: string;
  readonly address: string;
}

/** Where a thing lives; null: here, or nowhere, which this replica then says. */
export type Target = Replica | null;

/** Who knows where things live. What is here is answered without a promise: calls of it pay for one look into a map. */
export interface Locator {
  /** `key`: the id of an agent, an instance or a job of the tenant, or the URN of a function without its version. */
  locate(thing: Thing, key: string, tenant: string): Target | Promise<Target>;
  /**
   * Looks anew, past whatever is remembered: the replica that `locate` named was not there, or does not have it. It may be this replica by now:
   * a request whose body has been read goes to its own listener then. Fails with `unavailable` when nobody has it for long.
   */
  refresh(thing: Thing, key: string, tenant: string): Promise<Replica>;
}

/** One request that goes to another replica. */
export interface Outgoing {
  readonly raw: IncomingMessage;
  readonly response: ServerResponse;
  readonly traceId: string;
  readonly tenant: string;
  readonly role: Role;
  /** As the request has it. */
  readonly admittedUntilMs: number | null;
  /** A whole body, `none`, or one that is read from `raw` as the other side takes it. */
  readonly body: Buffer | 'none' | 'stream';
  /** For a request that asks for an upgrade: what came behind its head. */
  readonly upgradeHead: Buffer | null;
  /** Where it may be instead, when nothing was run there. */
  readonly refresh: () => Promise<Replica>;
  /** Answers the caller with an error; nothing of an answer must have been written. */
  readonly fail: (error: ServiceError) => void;
  /** To be called before the head of an answer is written; `fail` may not be called any more. */
  readonly begin: () => void;
}

/** Passes requests to other replicas and their answers back. */
export interface Sender {
  send(target: Replica, outgoing: Outgoing): void;
}

export interface ForwardingOptions {
  readonly locator: Locator;
  readonly sender: Sender;
}

/** How another replica says whom a request that it passes on speaks for. */
export interface Forwarded {
  readonly tenant: string;
  readonly role: Role;
  readonly untilMs: number | undefined;
  /** The body comes after `100 Continue`: what is not here is then not sent. */
  readonly awaitsContinue: boolean;
  /** The answer when the thing is not here. Nothing has run. */
  readonly notHere: (response: ServerResponse) => void;
}

/** Only the cluster listener adds to it: no header makes a request a forwarded one. */
const forwarded = new WeakMap<RequestHead, Forwarded>();

/** To be called by the cluster listener, for a request that came over one of its connections. */
export function markForwarded(request: IncomingMessage, by: Forwarded): void {
  forwarded.set(request, by);
}

export function forwardedOf(request: RequestHead): Forwarded | undefined {
  return forwarded.get(request);
}

/** Whom a forwarded request speaks for. Fails with `permission_denied`. */
export function admitForwarded({ tenant, role, untilMs }: Forwarded, route: Route): Admitted {
  if (route.livesWith === undefined) throw permissionDenied('replicas do not forward requests of this route');
  checkAccess({ tenant, role }, route.access ?? 'read');
  return { tenant, role, untilMs };
}

/** How long a request that no replica has taken is tried: longer than one takes to be found dead, and its shards to be taken over. */
export const FORWARD_WAIT_MS = 15_000;

/** A body that is announced to be no larger is read whole before it is sent: then it can be sent anew. */
const WHOLE_BODY_BYTES = 64 * 1024;

/** One request on its way, whichever way that is. */
export interface Passing {
  readonly livesWith: LivesWith;
  readonly addressed: Addressed;
  readonly raw: IncomingMessage;
  readonly response: ServerResponse;
  readonly traceId: string;
  readonly tenant: string;
  readonly role: Role;
  /** As the request has it. Absent: it is a call, which has bounds of its own. */
  readonly admittedUntilMs?: number | null;
  /** Null: it asks for none. */
  readonly upgradeHead: Buffer | null;
  /** It lives here after all, which was not known at once. */
  readonly here: () => void;
  /** The answer of another replica begins; `fail` is not called any more. */
  readonly begin: () => void;
  /** Answers it with an error, nothing of its answer being there: the `BodyError` of a body that did not come, else a `ServiceError`. */
  readonly fail: (error: Error) => void;
}

/** Decides for each request whether it is answered here, and hands those to a `Sender` that are not. The fast path and the router ask the same. */
export class Forwarding {
  readonly #locator: Locator;
  readonly #sender: Sender;
  readonly #bodies: Bodies;

  constructor({ locator, sender }: ForwardingOptions, bodies: Bodies) {
    this.#locator = locator;
    this.#sender = sender;
    this.#bodies = bodies;
  }

  /** False: it is for this replica, and nothing has happened. True: it is answered, or one of the functions of `passing` is called later. */
  takes(passing: Passing): boolean {
    const { thing, keyOf } = passing.livesWith;
    const key = keyOf(passing.addressed);
    if (key === null) {
      letBodyCome(passing);
      return false;
    }
    const target = this.#locator.locate(thing, key, passing.tenant);
    if (target instanceof Promise) {
      target
        .then(found => {
          if (!this.#goes(passing, found, key)) passing.here();
        })
        .catch((error: unknown) => passing.fail(numbered(asServiceError(error, passing.traceId), passing.livesWith)));
      return true;
    }
    return this.#goes(passing, target, key);
  }

  /**
   * A request that was taken to be for this replica, whose thing went to another one before anything of it ran: it is looked for anew, and
   * the replica that passed the request on does so where there is one.
   */
  passOn(passing: Omit<Passing, 'addressed' | 'upgradeHead'>, key: string, body: Buffer | 'none'): void {
    const { livesWith, raw, response, tenant, begin, here } = passing;
    const by = forwardedOf(raw);
    if (by !== undefined) {
      begin();
      by.notHere(response);
      return;
    }
    const fail = (error: unknown) => passing.fail(numbered(asServiceError(error, passing.traceId), livesWith));
    new Promise<Target>(resolve => resolve(this.#locator.locate(livesWith.thing, key, tenant)))
      .then(target => {
        if (target === null) here();
        else this.#send({ ...passing, upgradeHead: null }, target, key, body);
      })
      .catch(fail);
  }

  #goes(passing: Passing, target: Target, key: string): boolean {
    if (target === null) {
      letBodyCome(passing);
      return false;
    }
    const { raw, response } = passing;
    const by = forwardedOf(raw);
    if (by !== undefined) {
      // Once forwarded, never again: the first replica looks anew.
      passing.begin();
      by.notHere(response);
      return true;
    }
    this.#pass(passing, target, key);
    return true;
  }

  #pass(passing: Passing, target: Replica, key: string): void {
    const { raw, tenant, upgradeHead } = passing;
    const send = (body: Outgoing['body']) => this.#send(passing, target, key, body);
    const { 'content-length': length, 'transfer-encoding': encoding } = raw.headers;
    if (upgradeHead !== null) send('none');
    else if (encoding !== undefined || Number(length ?? 0) > WHOLE_BODY_BYTES) send('stream');
    else if (length === undefined || Number(length) === 0) send('none');
    else {
      this.#bodies.read(raw, tenant, WHOLE_BODY_BYTES, (error, body) => {
        if (error === null) send(body ?? 'none');
        else passing.fail(error);
      });
    }
  }

  #send(passing: Omit<Passing, 'addressed'>, target: Replica, key: string, body: Outgoing['body']): void {
    const { livesWith, raw, response, traceId, tenant, role, admittedUntilMs = null, upgradeHead, begin } = passing;
    const refresh = () => this.#locator.refresh(livesWith.thing, key, tenant);
    const fail = (error: ServiceError) => passing.fail(numbered(error, livesWith));
    const whom = { traceId, tenant, role, admittedUntilMs };
    this.#sender.send(target, { ...whom, raw, response, body, upgradeHead, refresh, fail, begin });
  }
}

/** A replica that forwards a long body waits for this before it sends it. */
function letBodyCome({ raw, response }: Passing): void {
  if (forwardedOf(raw)?.awaitsContinue === true) response.writeContinue();
}

function numbered(error: ServiceError, { unreachable }: LivesWith): ServiceError {
  if (unreachable === undefined || error.code !== 'unavailable') return error;
  const { code, message, cause, retryAfterSeconds = 1 } = error;
  return new ServiceError(code, message, { cause, retryAfterSeconds, number: unreachable });
}

function asServiceError(error: unknown, traceId: string): ServiceError {
  if (error instanceof ServiceError) return error;
  return internal(`internal error: the log has it under trace id ${traceId}`, { cause: error });
}

/** Puts the decision in front of every route that says what it is about, after the gate and, where a read is bounded, after that bound. */
export function addForwarding(app: FastifyInstance, forwarding: Forwarding): void {
  // Node gives what came behind the head of an upgrade to listeners of this event only.
  const heads = new WeakMap<IncomingMessage, Buffer>();
  app.server.prependListener('upgrade', (request, _socket, head) => heads.set(request, head));

  // Until `done` is called, nobody but this answers the request.
  const forward = (request: FastifyRequest, reply: FastifyReply, done: (error?: Error) => void): void => {
    const { route, raw, traceId, tenant, role, admittedUntilMs } = request;
    if (route.livesWith === undefined) {
      done();
      return;
    }
    const isUpgrade = (request as FastifyRequest & { readonly ws?: boolean }).ws === true;
    const isTaken = forwarding.takes({
      livesWith: route.livesWith,
      addressed: request,
      raw,
      response: reply.raw,
      traceId,
      tenant,
      role,
      admittedUntilMs,
      upgradeHead: isUpgrade ? (heads.get(raw) ?? NOTHING) : null,
      here: done,
      begin: () => undefined,
      fail: done,
    });
    if (!isTaken) done();
  };
  app.addHook('onRoute', route => {
    const { livesWith, costly } = route.config ?? {};
    if (livesWith === undefined) return;
    if (costly === undefined) {
      const hooks = [route.onRequest ?? []].flat();
      if (!hooks.includes(forward)) route.onRequest = [forward, ...hooks];
      return;
    }
    const [bound, ...hooks] = [route.preValidation ?? []].flat();
    if (bound !== undefined && !hooks.includes(forward)) route.preValidation = [bound, forward, ...hooks];
  });
}

const NOTHING = Buffer.alloc(0);
