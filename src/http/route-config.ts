import type { FastifyContextConfig } from 'fastify';
import type { ServiceError } from '../core/error.ts';
import type { Access, Role } from './credentials.ts';
import type { FastPath } from './fast-path.ts';

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
  readonly consumes?: readonly string[];
  /** By status: `{ description, headers?, content: { <media type>: { schema } } }`, or a schema. */
  readonly response: Readonly<Record<number, object>>;
}

/** `scan`: a whole log, a long list, a tree of files. `follow`: a log that goes on (with `?follow=true` of such a route). */
export type CostlyRead = 'scan' | 'follow';

/** What a route says of itself; `url` is undefined for an unknown route. */
export type Route = FastifyContextConfig & { readonly url?: string };

declare module 'fastify' {
  interface FastifyContextConfig {
    /** What a token must allow. Every route has to say it. */
    access?: Access;
    /** May be asked for under any Host. */
    anyHost?: boolean;
    /** Answers stay open by design: they are never "slow". */
    longLived?: boolean;
    /** Nothing in its JSON answers is an environment, whatever a field is called: a viewer gets them as they are. */
    noEnvironments?: boolean;
    /** A read that costs much: how many of its kind may be open is bounded, for each tenant and in all. */
    costly?: CostlyRead;
    docs?: RouteDocs;
  }
  interface FastifyInstance {
    /** The short way to hot routes; `addHotRoute` puts one on it. */
    fastPath: FastPath;
  }
  interface FastifyRequest {
    route: Route;
    traceId: string;
    /** Of the token, else of the header, else `default`. */
    tenant: string;
    role: Role;
    /** Why it was refused or failed, for the access log. */
    failure: ServiceError | string | null;
    /** What to tell the caller beside the answer: fields of the body that were ignored. Null: it has not been read. */
    warnings: readonly string[] | null;
  }
}
