import type { V1Pod } from '@kubernetes/client-node';
import { expect, test } from 'vitest';
import { unavailable } from '../../core/error.ts';
import { makeJob } from './batch-job.ts';
import type { ApiRequest, KubernetesApi } from './cluster.ts';
import type { Watched } from './watched.ts';

const NAME = 'rookery-00000000-0000-4000-8000-000000000000';
const JOBS = '/apis/batch/v1/namespaces/here/jobs';
const NO_PODS = { get: () => undefined, all: () => [], subscribe: () => () => undefined } as unknown as Watched<V1Pod>;

/** Fake API server that creates the requested Job and then calls `answer`. */
class OneJob {
  readonly jobs = new Set<string>();
  readonly asked: ApiRequest[] = [];
  readonly #answer: () => void;

  constructor(answer: () => void) {
    this.#answer = answer;
  }

  get cluster(): KubernetesApi {
    const request = async (_what: string, asked: ApiRequest) => {
      this.asked.push(asked);
      if (asked.method === 'DELETE') this.jobs.delete(asked.path);
      if (asked.method !== 'POST') return { items: [] };
      this.jobs.add(`${asked.path}/${NAME}`);
      this.#answer();
      return {};
    };
    return { namespace: 'here', request } as unknown as KubernetesApi;
  }
}

const make = (server: OneJob, signal: AbortSignal) =>
  makeJob(server.cluster, NO_PODS, NAME, { metadata: {}, spec: { containers: [] } } as never, signal);

test('makeJob removes the Job when the API server does not answer the creation', async () => {
  const server = new OneJob(() => {
    throw unavailable('the API server did not answer');
  });
  await expect(make(server, new AbortController().signal)).rejects.toThrow('the API server did not answer');
  expect([...server.jobs]).toEqual([]);
});

test('makeJob completes the creation and then removes the Job when its caller aborts', async () => {
  const caller = new AbortController();
  const server = new OneJob(() => caller.abort(new Error('given up')));
  await expect(make(server, caller.signal)).rejects.toMatchObject({ code: 'failed_precondition' });
  expect([...server.jobs]).toEqual([]);
  expect(server.asked.find(({ method }) => method === 'POST')).toMatchObject({ path: JOBS });
  expect(server.asked.find(({ method }) => method === 'POST')).not.toHaveProperty('signal');
});
