import type { IncomingHttpHeaders } from 'node:http';

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
