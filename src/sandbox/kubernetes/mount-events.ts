import type { CoreV1Event } from '@kubernetes/client-node';
import { failedPrecondition } from '../../core/error.ts';
import type { Cluster } from './cluster.ts';

/**
 * When the events of a pod whose mounts are the node's are looked at, from the moment when it has a node: a mount that fails is told nowhere
 * else. Twice: a create is three requests at most.
 */
const LOOKS_MS = [2_000, 6_000];

/** A mount source is no directory: it may be a file. */
export class IsFile extends Error {
  readonly source: string;

  constructor(source: string) {
    super(`${source} is no directory`);
    this.source = source;
  }
}

/** Whether the node cannot mount what a pod that starts wants of it. */
export class MountEvents {
  readonly #cluster: Cluster;
  readonly #podUid: string;
  #timer: NodeJS.Timeout | undefined;
  #hasBegun = false;
  #isClosed = false;

  constructor(cluster: Cluster, podUid: string) {
    this.#cluster = cluster;
    this.#podUid = podUid;
  }

  /** Once, however often it is called. */
  begin(tell: (error: Error) => void): void {
    if (this.#hasBegun) return;
    this.#hasBegun = true;
    this.#look(tell, LOOKS_MS);
  }

  #look(tell: (error: Error) => void, looks: readonly number[]): void {
    const [first, ...others] = looks;
    if (first === undefined) return;
    this.#timer = setTimeout(async () => {
      const problem = await this.#problem().catch(() => undefined);
      if (this.#isClosed) return;
      if (problem === undefined) this.#look(tell, others);
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
