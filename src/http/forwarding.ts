import type { IncomingMessage, ServerResponse } from 'node:http';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { internal, permissionDenied, ServiceError } from '../core/error.ts';
import type { Admitted } from './access/credentials.ts';
import { checkAccess, type Role } from './access/credentials.ts';
import type { Bodies } from './limits/bodies.ts';
import type { RequestHead } from './request.ts';
import type { Addressed, LivesWith, Route, Thing } from './route-config.ts';

/** Another replica: its node and the address (`host:port`) of its cluster listener. */
export interface PeerAddress {
  readonly nodeId: string;
  readonly address: string;
}

/**
 * The replica that owns a resource. null: this replica owns it, or no replica does. In both cases this
 * replica answers the request.
 */
export type Target = PeerAddress | null;

/**
 * Finds the replica that owns a resource.
 * Answers without a promise for a resource of this replica, so that a call to it costs one map lookup.
 */
export interface Locator {
  /**
   * Returns the owner of a resource.
   * `key`: the id of an agent, an instance or a job of the tenant, or the URN of a function without its
   * version.
   */
  locate(thing: Thing, key: string, tenant: string): Target | Promise<Target>;
  /**
   * Finds the owner again without the cache, because the replica that `locate` named is down or not the
   * owner.
   * The owner may be this replica by now. A request whose body has been read is then sent to this replica's
   * own listener. Fails with `unavailable` if no replica owns the resource for too long.
   */
  refresh(thing: Thing, key: string, tenant: string): Promise<PeerAddress>;
}

/** A request that is sent to another replica. */
export interface Outgoing {
  readonly raw: IncomingMessage;
  readonly response: ServerResponse;
  readonly traceId: string;
  readonly tenant: string;
  readonly role: Role;
  /** The value of `request.admittedUntilMs`. */
  readonly admittedUntilMs: number | null;
  /** The whole body, `none`, or `stream`: read from `raw` at the pace of the other replica. */
  readonly body: Buffer | 'none' | 'stream';
  /** Bytes that followed the head of an upgrade request. null: the request asks for no upgrade. */
  readonly upgradeHead: Buffer | null;
  /** Finds the current owner, after the addressed replica refused the request without running anything. */
  readonly refresh: () => Promise<PeerAddress>;
  /** Answers the client with an error. Must be called before any part of the answer is written. */
  readonly fail: (error: ServiceError) => void;
  /** Must be called before the head of an answer is written. `fail` must not be called afterwards. */
  readonly begin: () => void;
}

/** Sends requests to other replicas and returns their answers to the client. */
export interface Sender {
  send(target: PeerAddress, outgoing: Outgoing): void;
}

export interface ForwardingOptions {
  readonly locator: Locator;
  readonly sender: Sender;
}

/** The tenant, role and expiry that the forwarding replica states for a request. */
export interface Forwarded {
  readonly tenant: string;
  readonly role: Role;
  readonly untilMs: number | undefined;
  /**
   * True if the other replica sends the body only after `100 Continue`. A request for a resource that is not
   * here then costs no body.
   */
  readonly awaitsContinue: boolean;
  /** Writes the answer for a resource that this replica does not own. Nothing has run. */
  readonly notHere: (response: ServerResponse) => void;
}

/** Only the cluster listener adds entries, so no header can mark a request as forwarded. */
const forwarded = new WeakMap<RequestHead, Forwarded>();

/** Marks a request as forwarded. The cluster listener calls this for requests on its connections. */
export function markForwarded(request: IncomingMessage, by: Forwarded): void {
  forwarded.set(request, by);
}

export function forwardedOf(request: RequestHead): Forwarded | undefined {
  return forwarded.get(request);
}

/** Returns the tenant, role and expiry of a forwarded request. Fails with `permission_denied`. */
export function admitForwarded({ tenant, role, untilMs }: Forwarded, route: Route): Admitted {
  if (route.livesWith === undefined) throw permissionDenied('replicas do not forward requests of this route');
  checkAccess({ tenant, role }, route.access ?? 'read');
  return { tenant, role, untilMs };
}

/**
 * Longest time to retry a request that no replica has accepted. Exceeds the time to detect a dead replica and
 * to take over its shards.
 */
export const FORWARD_WAIT_MS = 15_000;

/** Largest announced body that is buffered before it is sent. A buffered body can be sent again. */
const WHOLE_BODY_BYTES = 64 * 1024;

/** A request that may be forwarded, from the fast path or from the router. */
export interface Passing {
  readonly livesWith: LivesWith;
  readonly addressed: Addressed;
  readonly raw: IncomingMessage;
  readonly response: ServerResponse;
  readonly traceId: string;
  readonly tenant: string;
  readonly role: Role;
  /**
   * The value of `request.admittedUntilMs`. Absent: the request is a call, which has bounds of its own.
   */
  readonly admittedUntilMs?: number | null;
  /** Bytes that followed the head of an upgrade request. null: the request asks for no upgrade. */
  readonly upgradeHead: Buffer | null;
  /** Called when a lookup finds that this replica owns the resource. */
  readonly here: () => void;
  /** Called when the answer of another replica begins. `fail` is not called afterwards. */
  readonly begin: () => void;
  /**
   * Answers the request with an error, before any part of an answer is written.
   * The error is a `BodyError` if the body did not arrive, otherwise a `ServiceError`.
   */
  readonly fail: (error: Error) => void;
}

/**
 * Decides for each request whether this replica answers it, and passes the others to a `Sender`.
 * The fast path and the router share this decision.
 */
export class Forwarding {
  readonly #locator: Locator;
  readonly #sender: Sender;
  readonly #bodies: Bodies;

  constructor({ locator, sender }: ForwardingOptions, bodies: Bodies) {
    this.#locator = locator;
    this.#sender = sender;
    this.#bodies = bodies;
  }

  /**
   * Returns false if this replica must answer the request; nothing has happened then.
   * True: the request was answered, or one of the functions of `passing` is called later.
   */
  tryForward(passing: Passing): boolean {
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
          if (!this.#sendTo(passing, found, key)) passing.here();
        })
        .catch((error: unknown) => passing.fail(numbered(asServiceError(error, passing.traceId), passing.livesWith)));
      return true;
    }
    return this.#sendTo(passing, target, key);
  }

  /**
   * Forwards a request whose resource moved to another replica before any part of the request ran.
   * If another replica forwarded the request, that replica finds the new owner. Otherwise this replica does.
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

  #sendTo(passing: Passing, target: Target, key: string): boolean {
    if (target === null) {
      letBodyCome(passing);
      return false;
    }
    const { raw, response } = passing;
    const by = forwardedOf(raw);
    if (by !== undefined) {
      // A request is forwarded once only. The first replica finds the new owner.
      passing.begin();
      by.notHere(response);
      return true;
    }
    this.#pass(passing, target, key);
    return true;
  }

  #pass(passing: Passing, target: PeerAddress, key: string): void {
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

  #send(passing: Omit<Passing, 'addressed'>, target: PeerAddress, key: string, body: Outgoing['body']): void {
    const { livesWith, raw, response, traceId, tenant, role, admittedUntilMs = null, upgradeHead, begin } = passing;
    const refresh = () => this.#locator.refresh(livesWith.thing, key, tenant);
    const fail = (error: ServiceError) => passing.fail(numbered(error, livesWith));
    const whom = { traceId, tenant, role, admittedUntilMs };
    this.#sender.send(target, { ...whom, raw, response, body, upgradeHead, refresh, fail, begin });
  }
}

/** Sends `100 Continue` to a forwarding replica that waits for it before it sends a long body. */
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

/**
 * Adds the forwarding decision to every route with `livesWith`.
 * The decision runs after the gate and, for a costly read, after its bound.
 */
export function addForwarding(app: FastifyInstance, forwarding: Forwarding): void {
  // Node passes the bytes after an upgrade head only to listeners of this event.
  const heads = new WeakMap<IncomingMessage, Buffer>();
  app.server.prependListener('upgrade', (request, _socket, head) => heads.set(request, head));

  // Until `done` is called, only this function answers the request.
  const forward = (request: FastifyRequest, reply: FastifyReply, done: (error?: Error) => void): void => {
    const { route, raw, traceId, tenant, role, admittedUntilMs } = request;
    if (route.livesWith === undefined) {
      done();
      return;
    }
    const isUpgrade = (request as FastifyRequest & { readonly ws?: boolean }).ws === true;
    const isTaken = forwarding.tryForward({
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
