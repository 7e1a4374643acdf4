import type { FunctionResolver } from '../core/agent.ts';
import type { PathExists } from '../lib/path-lookup.ts';
import type { Database } from '../storage/database.ts';
import { FunctionStore } from '../storage/queries/functions.ts';
import type { DurableWrites } from '../storage/writes/durable.ts';
import { createFunctionResolver } from './agent-functions.ts';
import { ChangeFeed, type ChangeListener } from './change-feed.ts';
import { FunctionListing, FunctionRegistry, type FunctionRegistryOptions, type RenderPage } from './functions.ts';
import { PoolRegistry } from './pools.ts';
import { ReservationRegistry } from './reservations.ts';

export interface RegistryOptions {
  readonly database: Database;
  readonly writes: DurableWrites;
  /** Business part of URNs. */
  readonly business: string;
  /** Clusters that reservations may name, at least one; the first is the default. */
  readonly clusters: readonly string[];
  readonly now?: () => number;
  readonly exists: PathExists;
  /** See `PoolRegistryOptions.images`. */
  readonly poolImages: readonly string[] | null;
  /** See `FunctionRegistryOptions`. */
  readonly prepare?: FunctionRegistryOptions['prepare'];
  /** True if other processes write to the database too. Default false. */
  readonly isShared?: boolean;
}

/**
 * Registry of functions, reservations and pools. The meta_service answers from it, and agents and the
 * function service run from it.
 */
export interface Registry {
  readonly business: string;
  readonly defaultCluster: string;
  readonly functions: FunctionRegistry;
  /** Returns the list of functions; `render` makes the response bytes. */
  listing(render: RenderPage): FunctionListing;
  readonly reservations: ReservationRegistry;
  readonly pools: PoolRegistry;
  readonly resolver: FunctionResolver;
  /**
   * Subscribes `listener` to stored changes of functions and their reservations. `onUnknown` is called when
   * any function may have changed. Returns the function that unsubscribes.
   */
  onChange(listener: ChangeListener, onUnknown?: () => void): () => void;
  /** Handles a notification of another replica (`publishChange`); null: any function may have changed. */
  changedElsewhere(key: string | null): void;
}

/** Creates the registry of functions, reservations, pools and secrets. */
export function createRegistry(options: RegistryOptions): Registry {
  const { database, writes, business, clusters, now = Date.now, exists, poolImages } = options;
  const { prepare, isShared = false } = options;
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
    pools: new PoolRegistry({ database, writes, images: poolImages }),
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
