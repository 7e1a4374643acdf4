import type { JsonObject } from '../../core/json.ts';
import { readPool } from '../../core/pool.ts';
import { callMeta, metaPath } from '../function/meta-call.ts';
import { CliError } from '../shared/exit.ts';
import { refuseProblems } from '../shared/request-file.ts';
import type { DeployedPool } from './file.ts';
import { differences, nothing, type Planning, type Step } from './step.ts';

const CHANGEABLE = ['size', 'max_size'];

export async function planPool({ client, deployment }: Planning, id: string, pool: DeployedPool): Promise<Step> {
  const { group, size, maxSize, resources, image, labels, env } = pool;
  const body = {
    ...{ id, group, size, max_size: maxSize, resources, image },
    ...(Object.keys(labels).length === 0 ? {} : { labels }),
    ...(Object.keys(env).length === 0 ? {} : { environment: env }),
  };
  const read = readPool(body);
  if (!read.ok) refuseProblems(`${deployment.file}: pools.${id}`, read.problems);
  const { result } = await callMeta(client, 'GET', metaPath('/podpools', { id, offset: '1', limit: '1' }));
  const [found] = (result as { readonly pools: readonly JsonObject[] }).pools;
  const step = { kind: 'pool', name: id } as const;
  if (found === undefined) {
    return {
      ...step,
      action: 'create',
      changes: [],
      async apply() {
        await callMeta(client, 'POST', '/podpools', { pools: [body] });
        return '';
      },
    };
  }
  const wanted = Object.fromEntries(
    Object.keys(body).map(field => [field, read.value[field as keyof typeof read.value]]),
  );
  const { changes, hidden } = differences(wanted, found);
  const differing = [...changes, ...hidden];
  if (differing.length === 0) return { ...step, action: 'unchanged', changes, apply: nothing };
  return {
    ...step,
    action: 'update',
    changes,
    hidden,
    async apply() {
      const fixed = differing.filter(field => !CHANGEABLE.includes(field));
      if (fixed.length > 0) {
        throw new CliError(`its ${fixed.join(' and ')} cannot change: delete it first (rookery pool delete ${id})`);
      }
      const sent = { size: read.value.size, max_size: read.value.max_size };
      await callMeta(client, 'PUT', `/podpools/${encodeURIComponent(id)}`, sent);
      return '';
    },
  };
}
