import type { CoreV1Event } from '@kubernetes/client-node';
import { failedPrecondition } from '../../core/error.ts';
import type { KubernetesApi } from './cluster.ts';

/**
 * Delays before the two queries of a pod's events. The first counts from the pod's node assignment, the
 * second from the first query. The cluster reports a failed mount nowhere else. Two queries, because a create
 * may send at most three requests.
 */
const LOOKS_MS = [2_000, 6_000];

/** The mount source is not a directory; it may be a file. */
export class IsFile extends Error {
  readonly source: string;

  constructor(source: string) {
    super(`${source} is no directory`);
    this.source = source;
  }
}

/** Checks if the node fails to mount a source for a starting pod. */
export class MountEvents {
  readonly #cluster: KubernetesApi;
  readonly #podUid: string;
  #timer: NodeJS.Timeout | undefined;
  #hasBegun = false;
  #isClosed = false;

  constructor(cluster: KubernetesApi, podUid: string) {
    this.#cluster = cluster;
    this.#podUid = podUid;
  }

  /** Starts the queries; further calls have no effect. */
  start(tell: (error: Error) => void): void {
    if (this.#hasBegun) return;
    this.#hasBegun = true;
    this.#query(tell, LOOKS_MS);
  }

  #query(tell: (error: Error) => void, looks: readonly number[]): void {
    const [first, ...others] = looks;
    if (first === undefined) return;
    this.#timer = setTimeout(async () => {
      const problem = await this.#problem().catch(() => undefined);
      if (this.#isClosed) return;
      if (problem === undefined) this.#query(tell, others);
      else tell(problem);
    }, first);
  }

  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#timer);
  }

  async #problem(): Promise<Error | undefined> {
    const { items } = await this.#cluster.request<{ items: CoreV1Event[] }>('list events', {
      path: `/api/v1/namespaces/${this.#cluster.namespace}/events`,
      query: { fieldSelector: `involvedObject.uid=${this.#podUid},reason=FailedMount` },
    });
    for (const { message = '' } of items) {
      const [, source, kind] = /hostPath type check failed: (.+) is not a (directory|file)/.exec(message) ?? [];
      if (source === undefined) continue;
      return kind === 'directory' ? new IsFile(source) : failedPrecondition(`mount source does not exist: ${source}`);
    }
    return undefined;
  }
}
