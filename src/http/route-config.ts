import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import type { FastifyContextConfig } from 'fastify';
import type { ServiceError } from '../core/error.ts';
import type { Access, Admitted, Refusal, Role } from './access/credentials.ts';

/**
 * The OpenAPI documentation of a route. No code reads it at run time, so it can neither coerce nor drop a
 * field.
 */
export interface RouteDocs {
  readonly summary: string;
  readonly operationId: string;
  readonly description?: string;
  readonly tags?: readonly string[];
  readonly params?: object;
  readonly querystring?: object;
  readonly headers?: object;
  readonly body?: object;
  /** True if the body is optional. */
  readonly isBodyOptional?: boolean;
  readonly consumes?: readonly string[];
  /** Answers by status: `{ description, headers?, content: { <media type>: { schema } } }`, or a schema. */
  readonly response: Readonly<Record<number, object>>;
}

/**
 * Kinds of costly reads.
 * `scan`: a whole log, a long list, a tree of files.
 * `follow`: a log that continues.
 * `log`: `follow` if the query has `?follow=true`, otherwise `scan`.
 */
export type CostlyRead = 'scan' | 'follow' | 'log';

/**
 * Checks a request instead of the entry's gate (Host, Origin, token).
 * An admitted request comes with a route of its own. null: the resource does not exist, and the request is
 * answered as an unknown route.
 */
export type OwnGate = (request: {
  readonly raw: IncomingMessage;
  readonly params: unknown;
}) => Promise<(Admitted & { readonly route: Route }) | Refusal | null>;

/** The configuration of a route. `url` is undefined for an unknown route. */
export type Route = FastifyContextConfig & { readonly url?: string };

declare module 'fastify' {
  interface FastifyContextConfig {
    /** The right that a token must have. Required for every route. */
    access?: Access;
    /** Accepts requests with any Host header. */
    anyHost?: boolean;
    /** Accepts changes from pages of other origins. */
    anyOrigin?: boolean;
    /**
     * Marks a route whose requests reach a sandbox.
     * Pages of other origins may link to the route, but may not send requests to it, not even GET.
     */
    leadsInside?: boolean;
    /**
     * Serves only requests for a page (`Accept: text/html`). Other requests are answered as an unknown route.
     */
    onlyPages?: boolean;
    /** Serves requests before the service has started. */
    servesWhileStarting?: boolean;
    /** Marks answers that stay open by design. The access log never reports them as slow. */
    longLived?: boolean;
    /**
     * States that no field of a JSON answer is an environment, whatever its name. Viewers get the answer
     * unmasked.
     */
    noEnvironments?: boolean;
    /** Marks a costly read. The number of open reads of each kind is bounded, per tenant and in total. */
    costly?: CostlyRead;
    /** The resource that the route acts on, which one replica owns. That replica answers the request. */
    livesWith?: LivesWith;
    /** The gate for routes whose requests are for a sandbox that has access rights of its own. */
    gate?: OwnGate;
    docs?: RouteDocs;
    /**
     * True if the query is for the program in the sandbox, except the parameters that `docs` names. The
     * service passes such a query on unchanged.
     */
    hasForeignQuery?: boolean;
  }
  interface FastifyRequest {
    route: Route;
    traceId: string;
    /** Tenant of the token, else of the header, else `default`. */
    tenant: string;
    role: Role;
    /** The name of the token; `''`: it has none. */
    tokenName: string;
    /**
     * Time at which the admitting token expires, in milliseconds since 1970. null: it does not expire. See
     * `onTokenEnd`.
     */
    admittedUntilMs: number | null;
    /** Reason of a refusal or failure, for the access log. */
    failure: ServiceError | string | null;
    /**
     * Warnings in the answer, such as fields of the body that were ignored. null: the body has not been read.
     */
    warnings: readonly string[] | null;
  }
}

/**
 * Kinds of resources that one replica owns.
 * `instance`: an agent or a function instance, depending on the id.
 * `worker`: a new instance that some worker replica has to run.
 */
export type Thing = 'agent' | 'function' | 'instance' | 'job' | 'job-log' | 'worker';

/** The parts of a request that identify its resource. */
export interface Addressed {
  readonly params: unknown;
  readonly query: unknown;
  readonly headers: IncomingHttpHeaders;
}

/** The resource that a route acts on. Required for each route whose resource is owned by one replica. */
export interface LivesWith {
  readonly thing: Thing;
  /**
   * Returns the key of the resource.
   * null: the replica that received the request answers it, for example because the key is invalid.
   */
  readonly keyOf: (request: Addressed) => string | null;
  /** The error number if the owner is unreachable. Absent: the route's errors have no numbers. */
  readonly unreachable?: number;
}
