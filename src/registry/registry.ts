import type { FunctionResolver } from '../core/agent.ts';
import type { PathExists } from '../lib/path-exists.ts';
import type { Database } from '../storage/database.ts';
import type { DurableWrites } from '../storage/durable.ts';
import { FunctionStore } from '../storage/functions.ts';
import { createFunctionResolver } from './agent-functions.ts';
import { ChangeFeed, type ChangeListener } from './change-feed.ts';
import { FunctionListing, type RenderPage } from './function-listing.ts';
import { FunctionRegistry, type FunctionRegistryOptions } from './functions.ts';
import { PoolRegistry } from './pools.ts';
import { ReservationRegistry } from './reservations.ts';

export interface RegistryOptions {
  readonly database: Database;
  readonly writes: DurableWrites;
  /** The business part of URNs. */
  readonly business: string;
  /** The clusters that reservations may name; the first is the default. At least one. */
  readonly clusters: readonly string[];
  readonly now?: () => number;
  readonly exists: PathExists;
  /** As in `FunctionRegistryOptions`. */
  readonly prepare?: FunctionRegistryOptions['prepare'];
  /** True where other processes write to the database too. Default false. */
  readonly isShared?: boolean;
}

/** The registry: everything that the meta_service answers from, and what agents and the function service run from. */
export interface Registry {
  readonly business: string;
  readonly defaultCluster: string;
  readonly functions: FunctionRegistry;
  /** The list of functions, as whoever answers it renders it. */
  listing(render: RenderPage): FunctionListing;
  readonly reservations: ReservationRegistry;
  readonly pools: PoolRegistry;
  readonly resolver: FunctionResolver;
  /**
   * Calls `listener` after each change of a function or its reservations is stored, and `onUnknown` when any may have changed. The returned
   * function ends it.
   */
  onChange(listener: ChangeListener, onUnknown?: () => void): () => void;
  /** Another replica changed a function (`publishChange`); null: any may have changed. */
  changedElsewhere(key: string | null): void;
}

export function createRegistry(options: RegistryOptions): Registry {
  const { database, writes, business, clusters, now = Date.now, exists, prepare, isShared = false } = options;
  const [defaultCluster] = clusters;
  if (defaultCluster === undefined) throw new TypeError('a registry needs at least one cluster');
  const changes = new ChangeFeed();
  const store = new FunctionStore(database);
  const functions = new FunctionRegistry({
    store,
    writes,
    changes,
    business,
    now,
    exists,
    isShared,
    ...(prepare && { prepare }),
  });
  return {
    business,
    defaultCluster,
    functions,
    listing: render => new FunctionListing(store, render),
    reservations: new ReservationRegistry({ database, writes, changes, functions, clusters }),
    pools: new PoolRegistry(database, writes),
    resolver: createFunctionResolver(functions, business),
    onChange(listener, onUnknown = () => undefined) {
      const ends = [changes.onChange(listener), changes.onUnknown(onUnknown)];
      return () => {
        for (const end of ends) end();
      };
    },
    changedElsewhere: key => changes.changedElsewhere(key),
  };
}
