import type { IncomingMessage } from 'node:http';
import type { FastifyContextConfig } from 'fastify';
import type { ServiceError } from '../core/error.ts';
import type { Access, Role } from './credentials.ts';
import type { LivesWith } from './lives-with.ts';
import type { Admitted, Refusal } from './verdict.ts';

/** The documentation of a route: what OpenAPI shows. Nothing at run time looks at it, so it can neither coerce nor drop a field. */
export interface RouteDocs {
  readonly summary: string;
  readonly operationId: string;
  readonly description?: string;
  readonly tags?: readonly string[];
  readonly params?: object;
  readonly querystring?: object;
  readonly headers?: object;
  readonly body?: object;
  /** The body may be left out. */
  readonly isBodyOptional?: boolean;
  readonly consumes?: readonly string[];
  /** By status: `{ description, headers?, content: { <media type>: { schema } } }`, or a schema. */
  readonly response: Readonly<Record<number, object>>;
}

/** `scan`: a whole log, a long list, a tree of files. `follow`: a log that goes on. `log`: what its query says, the one or with `?follow=true` the other. */
export type CostlyRead = 'scan' | 'follow' | 'log';

/**
 * Checks a request in the place of the entry's gate: Host, Origin, token. What it lets in is told by a route of its own. Null: there is nothing
 * for it, and it is an unknown route.
 */
export type OwnGate = (request: {
  readonly raw: IncomingMessage;
  readonly params: unknown;
}) => Promise<(Admitted & { readonly route: Route }) | Refusal | null>;

/** The configuration of a route; `url` is undefined for an unknown route. */
export type Route = FastifyContextConfig & { readonly url?: string };

declare module 'fastify' {
  interface FastifyContextConfig {
    /** The right that a token must have. Every route has to name it. */
    access?: Access;
    /** May be asked for under any Host. */
    anyHost?: boolean;
    /** Pages of other origins may ask it to change things. */
    anyOrigin?: boolean;
    /** For who asks for a page (`Accept: text/html`); for all others it is an unknown route. */
    onlyPages?: boolean;
    /** Answers stay open by design: they are never "slow". */
    longLived?: boolean;
    /** Nothing in its JSON answers is an environment, whatever a field is called: a viewer gets them as they are. */
    noEnvironments?: boolean;
    /** A read that costs much: how many of its kind may be open is bounded, for each tenant and in all. */
    costly?: CostlyRead;
    /** What it is about lives on one replica: with several, the request is answered there. */
    livesWith?: LivesWith;
    /** Of routes whose requests are for what runs in a sandbox, each with rights of its own. */
    gate?: OwnGate;
    docs?: RouteDocs;
  }
  interface FastifyRequest {
    route: Route;
    traceId: string;
    /** Of the token, else of the header, else `default`. */
    tenant: string;
    role: Role;
    /** When the token that let it in holds no longer, in milliseconds since 1970; null: nothing ends. See `onTokenEnd`. */
    admittedUntilMs: number | null;
    /** Why it was refused or failed, for the access log. */
    failure: ServiceError | string | null;
    /** Warnings for the caller beside the answer: fields of the body that were ignored. Null: it has not been read. */
    warnings: readonly string[] | null;
  }
}
