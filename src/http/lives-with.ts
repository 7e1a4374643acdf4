import type { IncomingHttpHeaders } from 'node:http';

/**
 * Things that live on one replica only. `instance`: an agent or an instance of a function, whichever the id names. `worker`: anything new that is
 * to run somewhere.
 */
export type Thing = 'agent' | 'function' | 'instance' | 'job' | 'job-log' | 'worker';

/** What a request says of the thing that it is about. */
export interface Addressed {
  readonly params: unknown;
  readonly query: unknown;
  readonly headers: IncomingHttpHeaders;
}

/** What a route is about; each route of something that lives on one replica says it. */
export interface LivesWith {
  readonly thing: Thing;
  /** Null: the replica that took the request answers it, for example because it names nothing that could be. */
  readonly keyOf: (request: Addressed) => string | null;
  /** The number of the failure, where the route's answers have one, when its replica cannot be reached. */
  readonly unreachable?: number;
}
