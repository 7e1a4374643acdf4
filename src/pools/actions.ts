import type { PoolPod } from '../sandbox/pools.ts';

/** Action of the controller on a pool. */
export type PoolAction =
  | { readonly do: 'apply'; readonly replicas: number }
  | { readonly do: 'scale'; readonly from: number; readonly to: number }
  | { readonly do: 'keepAtLeast'; readonly replicas: number }
  | { readonly do: 'retire' | 'remove' | 'repair'; readonly pod: PoolPod }
  | { readonly do: 'disband' };
